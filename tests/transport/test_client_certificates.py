"""Tests of ``svc.transport.client_certificates``: who is accepted with an ordinary certificate, and by which name."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import X509Svid
from svc.testing.ca import TestAuthority, chain_pem, key_pem
from svc.testing.workload import MemorySource
from svc.transport.certificates import CertificateCreator
from svc.transport.client_certificates import (
    MAX_NAME,
    ClientAuthorities,
    ClientAuthoritiesUnusable,
    NameMissing,
    certificate_name,
    client_certificate,
)
from svc.transport.errors import (
    ClientCertificateInvalid,
    OwnCredentialsMissing,
    PeerCredentialsEnded,
    PeerNotVerified,
)
from svc.transport.evidence import peer_evidence
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, TlsProtocol
from tests.mixins import TestsMixin
from tests.transport.openssl_client import OpenSslClient
from tests.transport.pairs import AUTHORITY, NOW, Pair, source

#: OpenSSL verifies by the clock of the system, so these are valid for long.
ALWAYS: dict[str, Any] = {
    "not_before": datetime(2020, 1, 1, tzinfo=UTC),
    "not_after": datetime(2100, 1, 1, tzinfo=UTC),
    "uris": (),
}
ROOT = TestAuthority("factory.example", now=NOW, **ALWAYS)
MIDDLE = ROOT.intermediate(**ALWAYS)
OTHER = TestAuthority("factory.example", now=NOW, **ALWAYS)
SERVER = AUTHORITY.svid("/server")
END = datetime(2090, 1, 1, tzinfo=UTC)


def device(issuer: TestAuthority = ROOT, **fields: Any) -> X509Svid:
    """A certificate of a device with the common name gateway-1."""
    return issuer.svid(**{**ALWAYS, "subject": "gateway-1", "key_usage": None, "eku": None, **fields})


DEVICE = device()


def revocations(*revoked: X509Svid, issuer: TestAuthority = ROOT, ended: bool = False) -> bytes:
    """A revocation list, PEM."""
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(ALWAYS["not_before"])
        .next_update(datetime(2021, 1, 1, tzinfo=UTC) if ended else END)
    )
    for each in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(each.leaf.serial_number)
        made = made.add_revoked_certificate(entry.revocation_date(ALWAYS["not_before"]).build())
    return made.sign(issuer.private_key, hashes.SHA256()).public_bytes(Encoding.PEM)


def pem(*authorities: TestAuthority) -> bytes:
    """Their certificates."""
    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in authorities)


class ClientCertificatesMixin(TestsMixin):
    """What holds on every data path."""

    tls: ClassVar[type[TlsProtocol]]

    def setUp(self) -> None:
        """Write the files."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        for name, text in (("c.pem", chain_pem(SERVER)), ("k.pem", key_pem(SERVER)), ("ca.pem", pem(ROOT))):
            self.write(name, text)

    def write(self, name: str, text: bytes) -> None:
        """Replace a file."""
        (self.folder / "new").write_bytes(text)
        os.replace(self.folder / "new", self.folder / name)

    def creator(self, *, revoked: bool = False, **more: Any) -> CertificateCreator:
        """The creator of a listener with these files."""
        path = lambda name: str(self.folder / name)  # noqa: E731
        clients = ClientAuthorities((path("ca.pem"),), revoked=path("crl.pem") if revoked else "", **more)
        return CertificateCreator(path("c.pem"), path("k.pem"), clients=clients)

    def connect(self, svid: X509Svid | None, creator: CertificateCreator | None = None, **client: Any) -> Pair:
        """Carry the handshake of a client with a certificate."""
        pair = Pair(self.tls, by_certificate=creator or self.creator())
        credentials = None if svid is None else MemorySource(svid, AUTHORITY.bundles())
        made = OpenSslClient(credentials, **client)
        made.connect_to(pair)
        self.client = made
        return pair

    def refused(self, svid: X509Svid | None, creator: CertificateCreator | None = None, **client: Any) -> str:
        """Why a client is refused, before its protocol is built."""
        pair = self.connect(svid, creator, **client)
        self.assertEqual(pair.server_factory.built, [])
        [(_role, error, _address)] = pair.server_observer.failed
        self.assertIsInstance(error, ClientCertificateInvalid)
        self.assertEqual(error.reason, "client_certificate_invalid")
        self.assertEqual(pair.clock.getDelayedCalls(), [])
        self.assertTrue(pair.client_wire.lost)
        return str(error.evidence["cause"])

    def name(self, svid: X509Svid, creator: CertificateCreator | None = None, **client: Any) -> str:
        """The name of a client that is accepted."""
        pair = self.connect(svid, creator, **client)
        self.assertEqual(pair.server_observer.failed, [])
        return client_certificate(pair.server_app.transport).name

    def test_accepted(self) -> None:
        """A certificate of the authority with its name, with TLS 1.2 and 1.3; it is no evidence of a SPIFFE ID."""
        for version in (SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION):
            pair = self.connect(DEVICE, maximum=version)
            found = client_certificate(pair.server_app.transport)
            self.assertEqual(found.name, "gateway-1")
            self.assertEqual(found.not_after, DEVICE.leaf.not_valid_after_utc)
            self.assertRaises(PeerNotVerified, peer_evidence, pair.server_app.transport)
            pair.server_app.transport.write(b"hello")
            pair.pump()
            self.assertTrue(self.client.after_handshake)
            pair.server_app.transport.abortConnection()
            pair.pump()
            self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_refused(self) -> None:
        """None, one of another authority, one that has ended or is not valid yet, one for servers, self-signed."""
        serving = (ExtendedKeyUsageOID.SERVER_AUTH,)
        past, future = datetime(2021, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
        for version in (SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION):
            for svid, words in (
                (None, "presented none"),
                (device(OTHER), "certificate"),
                (AUTHORITY.svid("/client"), "issuer"),
                (device(not_after=past), "expired"),
                (device(not_before=future), "not yet valid"),
                (device(eku=serving), "purpose"),
                (device(self_signed=True), "self-signed"),
            ):
                self.assertIn(words, self.refused(svid, maximum=version))
        self.assertEqual(self.name(device(eku=(*serving, ExtendedKeyUsageOID.CLIENT_AUTH))), "gateway-1")

    def test_alert(self) -> None:
        """The client is sent an alert."""
        self.refused(device(subject=None))
        self.assertTrue(self.client.alert)

    def test_intermediates(self) -> None:
        """A chain over an intermediate authority is accepted; such an authority is trusted alone, without its root."""
        svid = device(MIDDLE)
        self.assertEqual(self.name(svid), "gateway-1")
        self.write("ca.pem", pem(MIDDLE))
        self.assertEqual(self.name(svid), "gateway-1")
        self.assertIn("issuer", self.refused(DEVICE))
        self.write("ca.pem", pem(OTHER, ROOT))
        self.assertEqual(self.name(DEVICE), "gateway-1")

    def test_names(self) -> None:
        """The name is read where it is configured, exactly once."""
        names = (x509.DNSName("d.example"), x509.UniformResourceIdentifier("urn:d:1"), x509.RFC822Name("d@example"))
        svid = device(names=names)
        for kind, expected in (
            ("commonName", "gateway-1"),
            ("dns", "d.example"),
            ("uri", "urn:d:1"),
            ("email", "d@example"),
        ):
            self.assertEqual(self.name(svid, self.creator(name=kind)), expected)
            if kind != "commonName":
                self.assertIn("0 names", self.refused(DEVICE, self.creator(name=kind)))
        twice = device(names=(*names, x509.DNSName("e.example")))
        self.assertIn("2 names", self.refused(twice, self.creator(name="dns")))
        self.assertIn("0 names", self.refused(device(subject=None)))

    def test_revoked(self) -> None:
        """A revoked certificate is refused, and every one where the list has expired or is of another authority."""
        gone, stays = device(), device()
        self.write("crl.pem", revocations(gone))
        self.assertIn("revoked", self.refused(gone, self.creator(revoked=True)))
        self.assertEqual(self.name(stays, self.creator(revoked=True)), "gateway-1")
        self.write("crl.pem", revocations(ended=True))
        self.assertIn("CRL has expired", self.refused(stays, self.creator(revoked=True)))
        self.write("crl.pem", revocations(issuer=AUTHORITY))
        self.assertIn("unable to get certificate CRL", self.refused(stays, self.creator(revoked=True)))
        self.write("crl.pem", revocations(issuer=AUTHORITY) + revocations(gone))
        self.assertIn("revoked", self.refused(gone, self.creator(revoked=True)))
        self.assertEqual(self.name(stays, self.creator(revoked=True)), "gateway-1")

    def test_files_change(self) -> None:
        """New connections are verified by the new files; certificates of open ones are verified by them on request."""
        self.write("crl.pem", revocations() + revocations(issuer=MIDDLE))
        creator = self.creator(revoked=True)
        pairs = [self.connect(each, creator) for each in (DEVICE, device(MIDDLE))]
        one, two = (client_certificate(each.server_app.transport) for each in pairs)
        for each in (one, two):
            creator.verify_again(each)
        self.assertFalse(creator.renew())
        self.write("crl.pem", revocations(DEVICE) + revocations(issuer=MIDDLE))
        self.assertTrue(creator.renew())
        error = self.assertRaises(ClientCertificateInvalid, creator.verify_again, one)
        self.assertIn("revoked", str(error))
        creator.verify_again(two)
        self.assertIn("revoked", self.refused(DEVICE, creator))
        self.write("ca.pem", pem(OTHER))
        self.assertTrue(creator.renew())
        self.assertRaises(ClientCertificateInvalid, creator.verify_again, two)
        self.write("ca.pem", b"nothing")
        self.assertRaises(ClientAuthoritiesUnusable, creator.renew)
        self.assertRaises(ClientAuthoritiesUnusable, creator.renew)
        self.assertRaises(ClientCertificateInvalid, creator.verify_again, two)
        self.write("ca.pem", pem(ROOT))
        self.write("crl.pem", revocations(DEVICE) + revocations(issuer=MIDDLE))
        self.assertTrue(creator.renew())
        creator.verify_again(two)

    def test_end(self) -> None:
        """The end is that of the first certificate on the path that ends."""
        root = TestAuthority("factory.example", now=NOW, **{**ALWAYS, "not_after": END})
        self.write("ca.pem", pem(root))
        pair = self.connect(device(root))
        found = client_certificate(pair.server_app.transport)
        self.assertEqual(found.not_after, END)
        found.verify_peer_time(END)
        later = datetime(2090, 1, 1, 0, 0, 1, tzinfo=UTC)
        error = self.assertRaises(PeerCredentialsEnded, found.verify_peer_time, later)
        self.assertIn("gateway-1", str(error))

    def test_svid_of_the_server(self) -> None:
        """Without files the SVID of a source is presented, the newest one; without any no connection is accepted."""
        own = source("/broker")
        clients = ClientAuthorities((str(self.folder / "ca.pem"),))
        creator = CertificateCreator(source=own, clients=clients)
        self.assertIsNone(creator.not_after)
        for _ in range(2):
            self.assertEqual(self.name(DEVICE, creator), "gateway-1")
            shown = self.client.connection.get_peer_certificate()
            assert shown is not None
            self.assertEqual(shown.to_cryptography(), own.svid.leaf)
            own.rotate(AUTHORITY.svid("/broker"))
        self.write("ca.pem", pem(OTHER))
        self.assertTrue(creator.renew())
        self.assertIn("certificate", self.refused(DEVICE, creator))
        own.withdraw()
        self.assertRaises(OwnCredentialsMissing, creator.check_ready)
        pair = Pair(self.tls, by_certificate=creator)
        self.assertIsNone(pair.server)


class FastClientCertificateTests(ClientCertificatesMixin, SynchronousTestCase):
    """The fast data path."""

    tls = FastTlsProtocol


class StockClientCertificateTests(ClientCertificatesMixin, SynchronousTestCase):
    """Twisted's own data path."""

    tls = StockTlsProtocol


class NameTests(SynchronousTestCase):
    """The name in a certificate."""

    def test_bounds(self) -> None:
        """The longest name, the next one, and names that cannot be printed; nothing of them is shown."""
        longest = x509.DNSName("d" * MAX_NAME)
        self.assertEqual(certificate_name(device(names=(longest,)).leaf, "dns"), longest.value)
        for wrong in (x509.DNSName("d" * (MAX_NAME + 1)), x509.DNSName("a\nb"), x509.DNSName("")):
            error = self.assertRaises(NameMissing, certificate_name, device(names=(wrong,)).leaf, "dns")
            self.assertNotIn("a\nb", str(error))

    def test_without_a_handshake(self) -> None:
        """A transport that is not of such a listener has no certificate."""
        self.assertRaises(PeerNotVerified, client_certificate, StringTransport())


class UnusableTests(SynchronousTestCase):
    """Files that cannot be used at the start."""

    def test_reasons(self) -> None:
        """Each defect names the files."""
        folder = Path(self.mktemp())
        folder.mkdir()
        own = source("/broker")
        for name, text in (
            ("ca", pem(ROOT)),
            ("rubbish", b"rubbish"),
            ("half", pem(ROOT)[:-40]),
            ("crl", revocations()),
        ):
            (folder / name).write_bytes(text)
        for authority, revoked, words in (
            ("none", "", "No such file"),
            ("rubbish", "", "no PEM"),
            ("half", "", "no PEM"),
            ("crl", "", "no PEM"),
            ("ca", "none", "No such file"),
            ("ca", "ca", "no PEM"),
            ("ca", "rubbish", "no PEM"),
        ):
            clients = ClientAuthorities((str(folder / authority),), revoked=revoked and str(folder / revoked))
            error = self.assertRaises(ClientAuthoritiesUnusable, CertificateCreator, source=own, clients=clients)
            self.assertIn(words, str(error))
            self.assertIn(str(folder / authority), str(error))
