"""
What certificates and KeyUpdates of an unauthenticated peer cost the proxy: little of its time, and few records of its
log.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from svc.testing.ca import TestAuthority
from svc.testing.certificates import der, rebuilt
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.keyupdates import key_update
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually

PEERS = 60


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    proxy = stack.enter_context(RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}"))
    folder = short_folder(stack)
    return SimpleNamespace(proxy=proxy, folder=folder, good=Credentials.fetch(authority, folder / "good"))


SHARED = Shared(_make)


def huge_names() -> tuple[list[bytes], ec.EllipticCurvePrivateKey]:
    """80 KB of certificates of one key, and of one name of 370 RDNs."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, str(number)) for number in range(370)])
    now = datetime.now(UTC)

    def certificate(*, ca: bool) -> bytes:
        builder = x509.CertificateBuilder(
            issuer_name=name,
            subject_name=name if ca else x509.Name([]),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + timedelta(hours=1),
        )
        usage = x509.KeyUsage(not ca, False, False, False, False, ca, False, False, False)
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://example.org/a")])
        builder = builder.add_extension(usage, critical=True).add_extension(names, critical=not ca)
        built = builder.add_extension(x509.BasicConstraints(ca, None), critical=True).sign(key, hashes.SHA256())
        return built.public_bytes(Encoding.DER)

    return [certificate(ca=False), *(certificate(ca=True) for _ in range(7))], key


def presenting(folder: Path, chain: list[bytes], key: Any) -> ssl.SSLContext:
    """Settings of a client that presents certificates as they are."""
    pem = "".join(ssl.DER_cert_to_PEM_cert(each) for each in chain).encode()
    folder.mkdir(exist_ok=True)
    path = folder / "client.pem"
    path.write_bytes(pem + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(path)
    return context


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        found = SHARED.get()
        self.proxy: RunningProxy = found.proxy
        self.good: Credentials = found.good
        self.folder: Path = found.folder

    def attempt(self, context: ssl.SSLContext) -> None:
        """A handshake that is refused."""
        with contextlib.suppress(OSError), RawConnection(self.proxy.port, context) as connection:
            connection.rest()

    def processor_seconds(self) -> float:
        """How long the proxy has computed."""
        process: Any = self.proxy.process
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def failures(self, reason: str) -> float:
        """How many handshakes failed for a reason."""
        return self.proxy.metric("svc_proxy_tls_handshake_failures_total", role="server", reason=reason)


class StrangerTests(_Case):
    """Certificates of an unknown authority."""

    def test_honest_beside_expensive_ones(self) -> None:
        """Beside sixty handshakes with 80 KB of huge names each an honest one takes less than a second."""
        context, good = presenting(self.folder / "huge", *huge_names()), self.good.context()
        before, spent = self.failures("svid_malformed"), self.processor_seconds()
        threads = [threading.Thread(target=self.attempt, args=(context,)) for _ in range(PEERS)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        with RawConnection(self.proxy.port, good) as connection:
            self.assertEqual(200, connection.request("/bytes/1").status)
        seconds = time.monotonic() - began
        for thread in threads:
            thread.join()
        eventually(lambda: self.failures("svid_malformed") == before + PEERS, 60, "sixty refusals")
        # Half a second of the processor for all of them together, and 12 s where names are compared. On a machine with
        # other work the honest handshake takes longer than its second.
        self.assertLess(self.processor_seconds() - spent, 3.0)
        self.assertLess(seconds, 6.0)

    def test_names_that_no_library_reads(self) -> None:
        """A BIT STRING in a name and an over-long one are malformed: counted, and logged once a second at most."""
        svid = TestAuthority("example.org", now=datetime.now(UTC)).svid("/a", subject="workload")
        time.sleep(1.1)  # One record a second for a reason and source.
        began, before = time.monotonic(), self.failures("svid_malformed")
        defects = self.failures("internal_error")
        lines = len(self.proxy.records("svc.runtime.message"))
        logged = len(self.proxy.records("svc.proxy.auth.denied"))
        for number in range(20):
            value = der(0x03, b"\0ab") if number % 2 else der(0x0C, b"x" * (65 + number))
            attribute = der(0x30, der(0x06, bytes.fromhex("550403")) + value)
            leaf = rebuilt(svid.leaf, {5: der(0x30, der(0x31, attribute))})
            self.attempt(presenting(self.folder / f"bits{number}", [leaf], svid.private_key))
        eventually(lambda: self.failures("svid_malformed") == before + 20, 60, "twenty refusals")
        self.assertEqual(self.failures("internal_error"), defects)
        eventually(lambda: len(self.proxy.records("svc.proxy.auth.denied")) > logged)
        self.assertLess(len(self.proxy.records("svc.proxy.auth.denied")) - logged, 4 + time.monotonic() - began)
        self.assertEqual(len(self.proxy.records("svc.runtime.message")), lines)
        self.assertEqual([], self.proxy.records("svc.runtime.failure"))


class KeyUpdateTests(_Case):
    """KeyUpdates of a client with an identity."""

    def test_too_many(self) -> None:
        """Sixty-five close the connection, which is counted by its cause and logged; others go on."""
        labels = {"cause": "key_update_limit"}
        before = self.proxy.metric("svc_proxy_connections_closed_total", **labels)
        with RawConnection(self.proxy.port, self.good) as connection:
            tls: Any = connection.socket
            for _ in range(3):
                key_update(tls)
                self.assertEqual(200, connection.request("/bytes/1").status)
            with contextlib.suppress(OSError):
                for _ in range(500):
                    key_update(tls)
                    connection.send(b"GET /bytes/1 HTTP/1.1\r\nHost: test\r\n\r\n")
                while connection.socket.recv(65536):
                    pass
        metric = "svc_proxy_connections_closed_total"
        eventually(lambda: self.proxy.metric(metric, **labels) == before + 1, 60, "one closed connection")
        [record] = eventually(lambda: self.proxy.records("svc.proxy.connection.aborted"), 60, "a record")
        self.assertEqual("key_update_limit", record["detail_reason"])
        self.assertTrue(record["attributes"]["source.address"].startswith("127.0.0.1:"))
        with RawConnection(self.proxy.port, self.good) as connection:
            self.assertEqual(200, connection.request("/bytes/1").status)
