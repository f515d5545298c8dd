"""Tests of ``svc.transport.certificates``: who is served by a certificate alone, and how it is renewed."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import ClassVar

from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL
from twisted.internet.error import ConnectionAborted
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import X509Svid
from svc.testing.ca import chain_pem, key_pem
from svc.transport.certificates import CertificateCreator, CertificateUnusable
from svc.transport.errors import PeerNotVerified
from svc.transport.evidence import peer_evidence
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, TlsProtocol
from svc.transport.limits import Timeouts, handshake_limit, waiting_limit
from tests.transport.pairs import AUTHORITY, Pair, source
from tests.transport.strangers import Stranger

FIRST, SECOND = AUTHORITY.svid("/first"), AUTHORITY.svid("/second")


class Files:
    """The two files of a listener."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.certificate, self.key = folder / "c.pem", folder / "k.pem"
        self.hold(FIRST)

    def hold(self, svid: X509Svid, key: X509Svid | None = None) -> None:
        """Write a certificate and a key into files that replace those of before, as certbot and cert-manager do."""
        for path, text in ((self.certificate, chain_pem(svid)), (self.key, key_pem(key or svid))):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(text)
            os.replace(fresh, path)

    def creator(self) -> CertificateCreator:
        """Make what serves by them."""
        return CertificateCreator(str(self.certificate), str(self.key))


class ServingTestsMixin:
    """What holds on every data path."""

    tls: ClassVar[type[TlsProtocol]]

    def setUp(self) -> None:
        """Write the files."""
        self.files = Files(Path(self.mktemp()))
        self.creator = self.files.creator()

    def pair(self, **options: object) -> Pair:
        """Make two ends of a connection that is served by the certificate."""
        return Pair(self.tls, by_certificate=self.creator, **options)

    def shown(self, pair: Pair, client: Stranger | None = None) -> object:
        """Say which certificate a client is shown."""
        client = client or Stranger()
        client.talk_to(pair)
        found = client.connection.get_peer_certificate()
        assert found is not None
        return found.to_cryptography()

    def test_strangers_are_served(self) -> None:
        """A client without a certificate gets through TLS 1.2 and 1.3; there is no evidence, and nothing is left."""
        for version in (SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION):
            pair = self.pair()
            client = Stranger(maximum=version)
            self.assertEqual(self.shown(pair, client), FIRST.leaf)
            pair.server_app.transport.write(b"hello")
            pair.pump()
            self.assertTrue(client.after_handshake)
            self.assertRaises(PeerNotVerified, peer_evidence, pair.server_app.transport)
            self.assertEqual((pair.server_observer.done, pair.server_observer.failed), ([], []))
            pair.server_app.transport.abortConnection()
            pair.pump()
            self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_a_client_certificate_proves_nothing(self) -> None:
        """A client that would show an SVID is not asked for it, and stays unknown."""
        pair = self.pair()
        Stranger(source("/client")).talk_to(pair)
        self.assertRaises(PeerNotVerified, peer_evidence, pair.server_app.transport)

    def test_old_versions_are_refused(self) -> None:
        """TLS 1.1 is not spoken, and no protocol is built."""
        pair = self.pair()
        Stranger(maximum=SSL.TLS1_1_VERSION).talk_to(pair)
        self.assertEqual(pair.server_factory.built, [])

    def test_hybrid_by_default(self) -> None:
        """The key agreement is post-quantum where the client can do it."""
        client = Stranger()
        self.shown(self.pair(), client)
        self.assertEqual(client.connection.get_group_name(), "X25519MLKEM768")

    def test_silence_waits_and_a_handshake_has_a_place_and_a_time(self) -> None:
        """Silence holds a waiting place, the first octet one for handshakes; both end with the time."""
        waiting, handshakes = waiting_limit(2), handshake_limit(2)
        pair = self.pair(waiting=waiting, handshakes=handshakes, timeouts=Timeouts(handshake=7))
        pair.server_wire.protocol = pair.server
        pair.server.makeConnection(pair.server_wire)
        self.assertEqual((waiting.held, handshakes.held, pair.server_factory.built), (1, 0, []))
        pair.server.dataReceived(b"\x16")
        self.assertEqual((waiting.held, handshakes.held), (0, 1))
        pair.clock.advance(7.1)
        self.assertTrue(pair.server_wire.aborted)
        pair.server_wire.lose(ConnectionAborted())
        self.assertEqual((waiting.held, handshakes.held, pair.server_factory.built), (0, 0, []))
        self.assertEqual([each[1] for each in pair.server_observer.failed], ["handshake_timeout"])

    def test_renewed(self) -> None:
        """Other files are shown to who comes next; who is there goes on, and the same files are not read again."""
        before = self.pair()
        client = Stranger()
        self.shown(before, client)
        self.assertFalse(self.creator.renew())
        self.files.hold(SECOND)
        self.assertTrue(self.creator.renew())
        self.assertFalse(self.creator.renew())
        self.assertEqual(self.shown(self.pair()), SECOND.leaf)
        self.assertEqual(self.creator.not_after, SECOND.not_after)
        client.after_handshake = b""
        before.server_app.transport.write(b"still here")
        before.pump()
        self.assertTrue(client.after_handshake)

    def test_what_does_not_work_changes_nothing(self) -> None:
        """A key of another certificate, half a file and no file keep the old pair; it is tried until it works."""
        self.files.hold(SECOND, key=FIRST)
        for _ in range(2):
            self.assertRaises(CertificateUnusable, self.creator.renew)
        self.files.certificate.write_bytes(chain_pem(SECOND)[:300])
        self.assertRaises(CertificateUnusable, self.creator.renew)
        self.files.key.unlink()
        error = self.assertRaises(CertificateUnusable, self.creator.renew)
        self.assertEqual(error.what, "No such file or directory")
        self.assertEqual(self.shown(self.pair()), FIRST.leaf)
        self.files.hold(SECOND)
        self.assertTrue(self.creator.renew())
        self.assertEqual(self.shown(self.pair()), SECOND.leaf)

    def test_written_in_place(self) -> None:
        """Files that are written without being replaced are taken too, and so are links that point elsewhere."""
        self.files.certificate.write_bytes(chain_pem(SECOND))
        self.files.key.write_bytes(key_pem(SECOND))
        self.assertTrue(self.creator.renew())
        other = Files(Path(self.mktemp()))
        for mine, theirs in ((self.files.certificate, other.certificate), (self.files.key, other.key)):
            mine.unlink()
            mine.symlink_to(theirs.absolute())
        self.assertTrue(self.creator.renew())
        self.assertEqual(self.shown(self.pair()), FIRST.leaf)


class FastServingTests(ServingTestsMixin, SynchronousTestCase):
    """The fast data path."""

    tls = FastTlsProtocol


class StockServingTests(ServingTestsMixin, SynchronousTestCase):
    """Twisted's own data path."""

    tls = StockTlsProtocol


def _of_another_version(svid: X509Svid) -> bytes:
    """A certificate that one of the parsers takes and another does not."""
    der = svid.leaf.public_bytes(Encoding.DER).replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x58", 1)
    return ssl.DER_cert_to_PEM_cert(der).encode()


class UnusableTests(SynchronousTestCase):
    """Files that cannot serve from the beginning."""

    def test_reasons(self) -> None:
        """Each defect is an error with both names, the reason and a hint."""
        files = Files(Path(self.mktemp()))
        files.hold(FIRST, key=SECOND)
        error = self.assertRaises(CertificateUnusable, files.creator)
        self.assertEqual((error.reason, error.key), ("certificate_unusable", str(files.key)))
        for text in (b"nothing", _of_another_version(FIRST), chain_pem(FIRST)[:-40]):
            files.hold(FIRST)
            files.certificate.write_bytes(text)
            self.assertIn("no PEM", str(self.assertRaises(CertificateUnusable, files.creator)))
        files.certificate.unlink()
        self.assertIn("No such file", str(self.assertRaises(CertificateUnusable, files.creator)))
