"""Connections with broken PROXY protocol headers, at a proxy and at a broker: closed, counted, and not forwarded."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from datetime import UTC, datetime

from twisted.trial.unittest import SynchronousTestCase

from svc.testing.ca import TestAuthority, chain_pem, key_pem
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.daemon import MonitoredDaemon
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
ADDRESSES = b"\xc0\x00\x02\x07\x7f\x00\x00\x01\x12\x67\x22\xb3"


def header(command: int = 0x21, family: int = 0x11, block: bytes = ADDRESSES, length: int | None = None) -> bytes:
    """A header with these parts, right or wrong."""
    return SIGNATURE + struct.pack("!BBH", command, family, len(block) if length is None else length) + block


#: Headers that are closed at once.
BROKEN = {
    "version 1": b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 8883\r\n",
    "TLS without a header": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "garbage in front": b"GARBAGE" + header(),
    "a line end in front": b"\r\n" + header(),
    "a wrong last octet of the signature": SIGNATURE[:-1] + b"\r" + header()[12:],
    "version 1 in a header of version 2": header(0x11),
    "version 3": header(0x31),
    "an unknown command": header(0x22),
    "an unknown family": header(family=0x41),
    "an unknown transport": header(family=0x13),
    "IPv4 addresses that are cut short": header(block=ADDRESSES[:-1]),
    "IPv6 addresses that are cut short": header(family=0x21, block=bytes(35)),
    "a Unix address that is cut short": header(family=0x31, block=bytes(215)),
    "a TLV that is cut short": header(block=ADDRESSES + b"\x04\x00"),
    "a TLV beyond the header": header(block=ADDRESSES + b"\x04\xff\xffa") + b"a" * 70_000,
    "one octet too long": header(length=4097),
    "the longest length": header(length=65535) + bytes(65535),
}
#: Incomplete headers, which are closed at the time limit.
UNFINISHED = {
    "nothing": b"",
    "half a signature": SIGNATURE[:6],
    "no length": header()[:15],
    "no addresses": header()[:16],
    "all but the last octet": header()[:-1],
}


class BrokenHeaders:
    """Tests for both daemons; a subclass starts one and reads its counters."""

    daemon: MonitoredDaemon
    port: int

    def counted(self, reason: str) -> float:
        """How many connections were closed for a reason."""
        raise NotImplementedError

    def closed(self, data: bytes) -> None:
        """Send octets and wait for the end; nothing is answered."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            try:
                connection.sendall(data)
                answer = connection.recv(100)
            except (ConnectionResetError, BrokenPipeError):
                return
            if answer:
                raise AssertionError(f"{data[:60]!r} was answered with {answer!r}")

    def check(self) -> None:
        """Each broken header closes its connection and is counted once; none shows in the log as a fault of ours."""
        for number, data in enumerate(BROKEN.values(), 1):
            self.closed(data)
            eventually(lambda number=number: self.counted("proxy_header_invalid") == number, 60, f"{number} closed")
        for number, data in enumerate(UNFINISHED.values(), 1):
            self.closed(data)
            eventually(lambda number=number: self.counted("proxy_header_timeout") == number, 60, f"{number} late")
        assert self.counted("proxy_header_invalid") == len(BROKEN)
        assert "Traceback" not in self.daemon.log + self.daemon.errors


class ProxyTests(BrokenHeaders, SynchronousTestCase):
    """At the listener of a proxy."""

    def setUp(self) -> None:
        """Start a proxy whose application is a socket without permission to connect."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
        self.application = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.application.setblocking(False)
        listener = {"proxyProtocol": "v2", "timeouts": {"handshake": "1s"}}
        upstream = f"127.0.0.1:{self.application.getsockname()[1]}"
        self.daemon = stack.enter_context(RunningProxy(authority, upstream, listener=listener))
        self.port = self.daemon.port
        self.credentials = Credentials.fetch(authority, short_folder(stack))

    def counted(self, reason: str) -> float:
        return self.daemon.metric("svc_proxy_connections_closed_total", cause=reason)

    def test_headers(self) -> None:
        """Nothing is forwarded, and a client with a right header is served afterwards."""
        self.check()
        self.assertRaises(BlockingIOError, self.application.accept)
        request = b"GET /.well-known/svc-notary/v1/statements/current HTTP/1.1\r\nHost: a\r\n\r\n"
        for right in (header(), header(0x20, 0x00, b""), header(block=ADDRESSES + b"\x04\x00\x01a")):
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as plain:
                plain.sendall(right)
                with self.credentials.context().wrap_socket(plain) as tls:
                    tls.sendall(request)
                    self.assertIn(b" 200 OK", tls.recv(1000))


class BrokerTests(BrokenHeaders, SynchronousTestCase):
    """At the listener of a broker."""

    def setUp(self) -> None:
        """Start a broker with a certificate."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        folder = short_folder(stack)
        svid = TestAuthority("example.org", now=datetime.now(UTC)).svid("/broker")
        (folder / "c.pem").write_bytes(chain_pem(svid))
        (folder / "k.pem").write_bytes(key_pem(svid))
        (folder / "k.pem").chmod(0o600)
        listener = {
            "name": "open",
            "tls": {"certificate": str(folder / "c.pem"), "key": str(folder / "k.pem")},
            "acl": [{"who": "anonymous", "publish": ["#"], "subscribe": ["#"]}],
            "proxyProtocol": "v2",
        }
        self.daemon = stack.enter_context(RunningBroker(listener=listener, limits={"connect": "1s"}))
        self.port = self.daemon.port

    def counted(self, reason: str) -> float:
        return self.daemon.metric("svc_broker_refusals_total", reason=reason)

    def test_headers(self) -> None:
        """No broken header becomes a client."""
        self.check()
        self.assertEqual(self.daemon.metric("svc_broker_connections_total"), 0)
