"""Tests of ``svc.transport.certificates``: clients without identity, renewal of the files, and verifying clients."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL
from twisted.internet.error import ConnectionAborted
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import X509Svid
from svc.testing.ca import TestAuthority, chain_pem, key_pem
from svc.transport.certificates import (
    CertificateClientCreator,
    CertificateCreator,
    CertificateUnusable,
    TlsParameters,
    UnverifiedClientCreator,
    tls_parameters,
)
from svc.transport.errors import PeerNotVerified, ServerCertificateInvalid
from svc.transport.evidence import peer_evidence
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, TlsFactory, TlsProtocol
from svc.transport.limits import Timeouts, handshake_limit, waiting_limit
from tests.mixins import TestsMixin
from tests.transport.openssl_client import OpenSslClient
from tests.transport.pairs import AUTHORITY, NOW, SERVER_ADDRESS, Pair, Recording, source

FIRST, SECOND = AUTHORITY.svid("/first"), AUTHORITY.svid("/second")


class Files:
    """The two files of a listener."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.certificate, self.key = folder / "c.pem", folder / "k.pem"
        self.write(FIRST)

    def write(self, svid: X509Svid, key: X509Svid | None = None) -> None:
        """Replace the files with a new certificate and key, as certbot and cert-manager do."""
        for path, text in ((self.certificate, chain_pem(svid)), (self.key, key_pem(key or svid))):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(text)
            os.replace(fresh, path)

    def creator(self) -> CertificateCreator:
        """Create the creator of these files."""
        return CertificateCreator(str(self.certificate), str(self.key))


class ServingTestsMixin(TestsMixin):
    """What holds on every data path."""

    tls: ClassVar[type[TlsProtocol]]

    def setUp(self) -> None:
        """Write the files."""
        self.files = Files(Path(self.mktemp()))
        self.creator = self.files.creator()

    def pair(self, **options: Any) -> Pair:
        """Create both ends of a connection to a server with the certificate."""
        return Pair(self.tls, by_certificate=self.creator, **options)

    def received(self, pair: Pair, client: OpenSslClient | None = None) -> object:
        """The certificate that a client receives."""
        client = client or OpenSslClient()
        client.connect_to(pair)
        found = client.connection.get_peer_certificate()
        assert found is not None
        return found.to_cryptography()

    def test_clients_without_certificate(self) -> None:
        """A client without a certificate is accepted with TLS 1.2 and 1.3, without evidence; no timer is left."""
        for version in (SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION):
            pair = self.pair()
            client = OpenSslClient(maximum=version)
            self.assertEqual(self.received(pair, client), FIRST.leaf)
            pair.server_app.transport.write(b"hello")
            pair.pump()
            self.assertTrue(client.after_handshake)
            self.assertRaises(PeerNotVerified, peer_evidence, pair.server_app.transport)
            self.assertEqual((pair.server_observer.done, pair.server_observer.failed), ([], []))
            pair.server_app.transport.abortConnection()
            pair.pump()
            self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_client_certificate_is_not_requested(self) -> None:
        """A client with an SVID is not asked to present it, so there is no evidence."""
        pair = self.pair()
        OpenSslClient(source("/client")).connect_to(pair)
        self.assertRaises(PeerNotVerified, peer_evidence, pair.server_app.transport)

    def test_old_versions_are_refused(self) -> None:
        """TLS 1.1 is refused, and no protocol is built."""
        pair = self.pair()
        OpenSslClient(maximum=SSL.TLS1_1_VERSION).connect_to(pair)
        self.assertEqual(pair.server_factory.built, [])

    def test_hybrid_by_default(self) -> None:
        """The key agreement is post-quantum where the client can do it."""
        client = OpenSslClient()
        self.received(self.pair(), client)
        self.assertEqual(client.connection.get_group_name(), "X25519MLKEM768")

    def test_limits_and_timeout(self) -> None:
        """A silent client counts as waiting, from its first octet as a handshake; both end with the timeout."""
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
        self.assertEqual(
            [error.reason for _role, error, _address in pair.server_observer.failed], ["handshake_timeout"]
        )

    def test_renewed(self) -> None:
        """New connections get the new files, open ones go on, and unchanged files are not read again."""
        before = self.pair()
        client = OpenSslClient()
        self.received(before, client)
        self.assertFalse(self.creator.renew())
        self.files.write(SECOND)
        self.assertTrue(self.creator.renew())
        self.assertFalse(self.creator.renew())
        self.assertEqual(self.received(self.pair()), SECOND.leaf)
        self.assertEqual(self.creator.not_after, SECOND.not_after)
        client.after_handshake = b""
        before.server_app.transport.write(b"still here")
        before.pump()
        self.assertTrue(client.after_handshake)

    def test_unusable_files_change_nothing(self) -> None:
        """With a key of another certificate, a truncated or no file the old pair stays; each call tries again."""
        self.files.write(SECOND, key=FIRST)
        for _ in range(2):
            self.assertRaises(CertificateUnusable, self.creator.renew)
        self.files.certificate.write_bytes(chain_pem(SECOND)[:300])
        self.assertRaises(CertificateUnusable, self.creator.renew)
        self.files.key.unlink()
        error = self.assertRaises(CertificateUnusable, self.creator.renew)
        self.assertEqual(error.what, "No such file or directory")
        self.assertEqual(self.received(self.pair()), FIRST.leaf)
        self.files.write(SECOND)
        self.assertTrue(self.creator.renew())
        self.assertEqual(self.received(self.pair()), SECOND.leaf)

    def test_written_in_place(self) -> None:
        """Files that are overwritten in place are read too, and so are links with another target."""
        self.files.certificate.write_bytes(chain_pem(SECOND))
        self.files.key.write_bytes(key_pem(SECOND))
        self.assertTrue(self.creator.renew())
        other = Files(Path(self.mktemp()))
        for mine, theirs in ((self.files.certificate, other.certificate), (self.files.key, other.key)):
            mine.unlink()
            mine.symlink_to(theirs.absolute())
        self.assertTrue(self.creator.renew())
        self.assertEqual(self.received(self.pair()), FIRST.leaf)


class FastServingTests(ServingTestsMixin, SynchronousTestCase):
    """The fast data path."""

    tls = FastTlsProtocol


class StockServingTests(ServingTestsMixin, SynchronousTestCase):
    """Twisted's own data path."""

    tls = StockTlsProtocol


def _of_another_version(svid: X509Svid) -> bytes:
    """A certificate that one of the parsers accepts and another does not."""
    der = svid.leaf.public_bytes(Encoding.DER).replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x58", 1)
    return ssl.DER_cert_to_PEM_cert(der).encode()


class UnusableTests(SynchronousTestCase):
    """Files that are unusable at the start."""

    def test_reasons(self) -> None:
        """Each defect is an error with both file names, the reason and a hint."""
        files = Files(Path(self.mktemp()))
        files.write(FIRST, key=SECOND)
        error = self.assertRaises(CertificateUnusable, files.creator)
        self.assertEqual((error.reason, error.key), ("certificate_unusable", str(files.key)))
        for text in (b"nothing", _of_another_version(FIRST), chain_pem(FIRST)[:-40]):
            files.write(FIRST)
            files.certificate.write_bytes(text)
            self.assertIn("no PEM", str(self.assertRaises(CertificateUnusable, files.creator)))
        files.certificate.unlink()
        self.assertIn("No such file", str(self.assertRaises(CertificateUnusable, files.creator)))


#: OpenSSL verifies certificates of servers by the clock of the system, so these are valid for long.
_ALWAYS: dict[str, Any] = {
    "not_before": datetime(2020, 1, 1, tzinfo=UTC),
    "not_after": datetime(2100, 1, 1, tzinfo=UTC),
}
ROOT = TestAuthority("roots.example", now=NOW, **_ALWAYS)
NAMES = (
    x509.DNSName("broker.example.org"),
    x509.IPAddress(ip_address("192.0.2.1")),
    x509.IPAddress(ip_address("fe80::1")),
)


class VerifyingTestsMixin(TestsMixin):
    """A client that verifies the certificate of a server, on every data path."""

    tls: ClassVar[type[TlsProtocol]]

    def setUp(self) -> None:
        """Make the root one of the system's."""
        roots = Path(self.mktemp())
        roots.write_bytes(ROOT.certificate.public_bytes(Encoding.PEM))
        # OpenSSL reads it from the environment of the process.
        environment = patch.dict(os.environ, SSL_CERT_FILE=str(roots.absolute()))
        environment.start()
        self.addCleanup(environment.stop)

    def connect(self, host: str, svid: X509Svid, *, verified: bool = True) -> Pair:
        """Carry the handshake of a client for ``host``, which verifies or not, with a server of this certificate."""
        files = Files(Path(self.mktemp()))
        files.write(svid)
        pair = Pair(self.tls, by_certificate=files.creator())
        self.observer = Recording()
        creator = CertificateClientCreator(host, observer=self.observer) if verified else UnverifiedClientCreator(host)
        factory = TlsFactory(
            creator,
            pair.client_factory,
            clock=pair.clock,
            protocol=self.tls,
        )
        pair.client = factory.buildProtocol(SERVER_ADDRESS)
        return pair.connect()

    def refused(self, host: str, svid: X509Svid) -> str:
        """The cause for which the server is refused, before the client's protocol is built."""
        pair = self.connect(host, svid)
        self.assertEqual([], pair.client_factory.built)
        [(_role, error, _address)] = self.observer.failed
        self.assertIsInstance(error, ServerCertificateInvalid)
        self.assertEqual(host.removesuffix("."), error.evidence["name"])
        self.assertEqual([], pair.clock.getDelayedCalls())
        return str(error.evidence["cause"])

    def test_valid(self) -> None:
        """A chain to a root of the system with the name or the address of the host is accepted; both sides talk."""
        svid = ROOT.svid(names=NAMES, **_ALWAYS)
        for host in ("broker.example.org", "broker.example.org.", "192.0.2.1", "fe80::1%eth0"):
            pair = self.connect(host, svid)
            pair.client_app.transport.write(b"hello")
            pair.pump()
            self.assertEqual(b"hello", pair.server_app.received)
            self.assertRaises(PeerNotVerified, peer_evidence, pair.client_app.transport)
            found = tls_parameters(pair.client_app.transport)
            assert found is not None
            self.assertEqual(("1.3", "X25519MLKEM768", True), (found.version, found.group, found.post_quantum))
            self.assertTrue(found.cipher.startswith("TLS_"))

    def test_parameters(self) -> None:
        """A classical key agreement is not post-quantum, and a transport without TLS has no parameters."""
        self.assertFalse(TlsParameters("1.2", "secp256r1", "ECDHE-ECDSA-AES256-GCM-SHA384").post_quantum)
        self.assertIsNone(tls_parameters(StringTransport()))

    def test_other_name(self) -> None:
        """A certificate for another name or address is refused, also one with a SPIFFE ID alone."""
        svid = ROOT.svid(names=NAMES, **_ALWAYS)
        for host in ("broker.example.com", "example.org", "192.0.2.2"):
            self.assertEqual("it names another host", self.refused(host, svid))
        self.assertEqual("it names another host", self.refused("broker.example.org", ROOT.svid(**_ALWAYS)))

    def test_other_root(self) -> None:
        """A chain that leads to no root of the system, or is self-signed, is refused with OpenSSL's words."""
        other = TestAuthority("roots.example", now=NOW, **_ALWAYS)
        self.assertIn("issuer certificate", self.refused("broker.example.org", other.svid(names=NAMES, **_ALWAYS)))
        svid = ROOT.svid(names=NAMES, self_signed=True, **_ALWAYS)
        self.assertIn("self-signed", self.refused("broker.example.org", svid))

    def test_expired(self) -> None:
        """A certificate that has ended is refused as that."""
        ended: dict[str, Any] = {**_ALWAYS, "not_after": datetime(2021, 1, 1, tzinfo=UTC)}
        self.assertIn("expired", self.refused("broker.example.org", ROOT.svid(names=NAMES, **ended)))

    def test_unverified(self) -> None:
        """A client that verifies nothing talks to each server by TLS 1.3, and has no evidence of it."""
        ended: dict[str, Any] = {**_ALWAYS, "not_after": datetime(2021, 1, 1, tzinfo=UTC)}
        pair = self.connect("broker.example.org", ROOT.svid(self_signed=True, **ended), verified=False)
        pair.client_app.transport.write(b"hello")
        pair.pump()
        self.assertEqual(b"hello", pair.server_app.received)
        self.assertRaises(PeerNotVerified, peer_evidence, pair.client_app.transport)
        found = tls_parameters(pair.client_app.transport)
        self.assertEqual("1.3", found and found.version)


class FastVerifyingTests(VerifyingTestsMixin, SynchronousTestCase):
    """The fast data path."""

    tls = FastTlsProtocol


class StockVerifyingTests(VerifyingTestsMixin, SynchronousTestCase):
    """Twisted's own data path."""

    tls = StockTlsProtocol
