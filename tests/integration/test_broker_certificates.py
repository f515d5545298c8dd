"""The broker with a certificate of its own: unauthenticated connections, and a certificate that is renewed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import X509Svid
from svc.testing.ca import TestAuthority, chain_pem, key_pem
from tests.peers.broker import RunningBroker
from tests.peers.connection_churn import HALF_HELLO, SilentConnections
from tests.peers.folders import short_folder
from tests.peers.keyupdates import key_update
from tests.peers.mqttclient import RawClient
from tests.peers.waiting import eventually

AUTHORITY = TestAuthority("example.org", now=datetime.now(UTC))
ACL = [{"who": "anonymous", "publish": ["#"], "subscribe": ["#"]}]
#: A PROXY protocol header of version 2 that names 192.0.2.7:4711 as the client.
PROXIED = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\x7f\x00\x00\x01\x12\x67\x22\xb3"


def write(folder: Path, svid: X509Svid, key: X509Svid | None = None) -> None:
    """Put a certificate and a key where the listener has them, each by a rename."""
    for name, text in (("c.pem", chain_pem(svid)), ("k.pem", key_pem(key or svid))):
        (folder / "new").write_bytes(text)
        os.replace(folder / "new", folder / name)


class CertificateCase(SynchronousTestCase):
    """A broker with one listener that has a certificate and low connection limits."""

    listener: dict[str, Any] = {}
    connect = 60

    def setUp(self) -> None:
        """Start it."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.folder = short_folder(stack)
        self.first = AUTHORITY.svid("/first")
        write(self.folder, self.first)
        files = {"certificate": str(self.folder / "c.pem"), "key": str(self.folder / "k.pem")}
        self.broker = RunningBroker(
            listener={"name": "open", "tls": files, "acl": ACL, "connections": 60, "handshakes": 5, **self.listener},
            limits={"connect": f"{self.connect}s"},
        )
        stack.enter_context(self.broker)
        self.stack = stack

    def client(self, before: bytes = b"") -> tuple[RawClient, bytes]:
        """Open a connection, after octets before TLS; returns it with the certificate that it received."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        shown: list[bytes] = []

        def wrap(plain: socket.socket) -> ssl.SSLSocket:
            plain.sendall(before)
            wrapped = context.wrap_socket(plain)
            shown.append(wrapped.getpeercert(binary_form=True) or b"")
            return wrapped

        raw = self.stack.enter_context(RawClient(self.broker.port, tls=wrap))
        return raw, shown[0]

    def assert_served(self) -> None:
        """A client gets its CONNACK long before any timeout."""
        began = time.monotonic()
        raw, _ = self.client()
        self.assertEqual(raw.connect("guest").code, 0)
        self.assertLess(time.monotonic() - began, self.connect / 2)

    def logged(self, event: str) -> set[str]:
        """The precise reasons of records, once there is one."""
        records = eventually(lambda: self.broker.records(event), what=f"a record of {event}")
        return {each["detail_reason"] for each in records}


class StrangersTests(CertificateCase):
    """Clients that use slots and send nothing."""

    def test_silence(self) -> None:
        """
        More silent connections than the listener takes keep no client out, from elsewhere or from their own address.
        """
        for source in ("127.0.0.2", "127.0.0.1"):
            with SilentConnections(self.broker.port, 100, source=source):
                self.assert_served()
        self.assertEqual(self.logged("svc.proxy.connection.refused"), {"waiting_limit"})

    def test_stalled_handshakes(self) -> None:
        """A client that holds all handshake slots is evicted for an address that has none."""
        with SilentConnections(self.broker.port, 20, source="127.0.0.2", first=HALF_HELLO):
            self.assert_served()
        self.assertEqual(self.logged("svc.proxy.connection.refused"), {"handshake_limit"})

    def test_key_updates(self) -> None:
        """A client with more KeyUpdates than the limit is closed, counted and logged; others are served."""
        raw, _ = self.client()
        self.assertEqual(raw.connect("guest").code, 0)
        with contextlib.suppress(OSError):
            for _ in range(500):
                key_update(raw._socket)  # type: ignore[arg-type]
        self.assertEqual(self.logged("svc.proxy.connection.aborted"), {"key_update_limit"})
        refused = {"reason": "key_update_limit"}
        eventually(
            lambda: self.broker.metric("svc_broker_refusals_total", **refused) == 1, what="one closed connection"
        )
        self.assert_served()


class SlowTests(CertificateCase):
    """Clients that evict no others and never finish."""

    connect = 3

    def ended_after(self, say: Callable[[socket.socket], None]) -> float:
        """Send something each half second until the broker closes the connection; return the seconds that it took."""
        with socket.create_connection(("127.0.0.1", self.broker.port), timeout=0.5) as plain:
            began = time.monotonic()
            while time.monotonic() - began < 60:
                try:
                    say(plain)
                    if not plain.recv(100):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            return time.monotonic() - began

    def test_time(self) -> None:
        """Neither silence nor a handshake in single octets outlasts ``connect``."""
        hello = iter(HALF_HELLO)
        for say in (lambda _plain: None, lambda plain: plain.sendall(bytes([next(hello)]))):
            seconds = self.ended_after(say)
            self.assertGreater(seconds, self.connect - 0.5)
            self.assertLess(seconds, 30)
        self.assertEqual(self.logged("svc.proxy.handshake.failed"), {"handshake_timeout"})


class RenewalTests(CertificateCase):
    """A certificate that is renewed while the broker runs."""

    def end(self) -> float:
        """The end that the metric shows."""
        return self.broker.metric("svc_broker_certificate_not_after_seconds", listener="open")

    def shown(self) -> bytes:
        """The certificate that a new client is shown."""
        raw, certificate = self.client()
        raw.close()
        return certificate

    def records(self, kind: str) -> list[dict[str, Any]]:
        """The log records about certificates."""
        return self.broker.records(f"svc.broker.certificate.{kind}")

    def test_renewal(self) -> None:
        """A pair that does not match is logged once and not used; a matching one is used on SIGHUP; clients stay."""
        stays, certificate = self.client()
        self.assertEqual(stays.connect("stays").code, 0)
        self.assertEqual(certificate, self.first.leaf.public_bytes(Encoding.DER))
        self.assertEqual(self.end(), self.first.not_after.timestamp())
        second = AUTHORITY.svid("/second", ttl=(self.first.not_after - AUTHORITY.now) / 2)
        write(self.folder, second, key=self.first)
        (record,) = eventually(lambda: self.records("rejected"), 60, "the record of a pair that does not match")
        self.assertEqual((record["detail_reason"], record["attributes"]["listener"]), ("certificate_unusable", "open"))
        time.sleep(6)
        self.assertEqual(len(self.records("rejected")), 1)
        self.assertEqual(self.shown(), certificate)
        write(self.folder, second)
        self.broker.signal(signal.SIGHUP)
        (record,) = eventually(lambda: self.records("renewed"), 60, "the new certificate")
        self.assertEqual(record["attributes"], {"listener": "open", "not_after": second.not_after.isoformat()})
        self.assertEqual(self.shown(), second.leaf.public_bytes(Encoding.DER))
        self.assertEqual(self.end(), second.not_after.timestamp())
        self.assertEqual((stays.sync(), stays.ended), ([], False))

    def test_silent_clients(self) -> None:
        """Files that are replaced are found without a signal."""
        second = AUTHORITY.svid("/second")
        write(self.folder, second)
        eventually(lambda: self.records("renewed"), 60, "the new certificate")
        self.assertEqual(self.shown(), second.leaf.public_bytes(Encoding.DER))


class ProxiedTests(CertificateCase):
    """Behind a load balancer."""

    listener = {"proxyProtocol": "v2"}

    def test_address(self) -> None:
        """The PROXY header before TLS gives the address of the client."""
        raw, _ = self.client(PROXIED)
        raw.octets(b"rubbish")
        raw.until_end()
        (record,) = eventually(lambda: self.broker.records("svc.broker.client.refused"), 60, "the record")
        self.assertEqual(record["attributes"]["source.address"], "192.0.2.7:4711")
