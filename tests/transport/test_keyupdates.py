"""KeyUpdates of another TLS library: answered at once, counted and limited, on both data paths."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, ClassVar

from OpenSSL import SSL
from twisted.trial.unittest import SynchronousTestCase

from svc.testing.ca import chain_pem, key_pem
from svc.transport.certificates import CertificateCreator
from svc.transport.errors import KeyUpdateLimitReached
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, TlsProtocol
from svc.transport.keyupdates import KEY_UPDATE_SECONDS, MAX_KEY_UPDATES, KeyUpdates
from tests.mixins import TestsMixin
from tests.peers.keyupdates import key_update, renegotiate
from tests.transport.pairs import Pair, Wire, source


class Client:
    """Python's TLS in memory instead of a pair's client."""

    def __init__(self, pair: Pair, folder: Path, *, maximum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        svid = source("/client").svid
        pem = folder / "client.pem"
        pem.write_bytes(chain_pem(svid) + key_pem(svid))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, maximum
        context.load_cert_chain(pem)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out)
        self._pair = pair
        self.wire: Wire = pair.server_wire
        self.wire.protocol = pair.server
        pair.server.makeConnection(self.wire)
        for _ in range(4):
            self._handshake()
            self.send()
            self.receive()

    def _handshake(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return

    def send(self, data: bytes = b"") -> None:
        """Carry what was written so far, with data behind it, in one read of the server."""
        if data:
            self.tls.write(data)
        octets = self._out.read()
        if octets and not self.wire.lost:
            self._pair.server.dataReceived(octets)

    def receive(self) -> int:
        """Read what the server has written; returns the number of octets."""
        octets, self.wire.buffer = self.wire.buffer, b""
        self._in.write(octets)
        return len(octets)


class KeyUpdateTestsMixin(TestsMixin):
    """What holds on every data path."""

    tls: ClassVar[type[TlsProtocol]]

    def connected(self, **options: Any) -> tuple[Pair, Client]:
        pair = Pair(self.tls, **options)
        folder = Path(self.mktemp())
        folder.mkdir()
        client = Client(pair, folder)
        self.assertEqual(len(pair.server_observer.done), 1)
        return pair, client

    def ended(self, pair: Pair) -> Exception:
        """Why the server's application has lost its connection."""
        self.assertTrue(pair.server_wire.aborted)
        pair.server_wire.lose(ConnectionResetError())
        return pair.server_app.lost.value

    def test_answers_go_out_at_once(self) -> None:
        """Each KeyUpdate before data is answered without a write of the application; OpenSSL holds one at most."""
        pair, client = self.connected()
        for number in range(20):
            key_update(client.tls)
            client.send(b"x")
            # OpenSSL writes an answer when it is called next.
            self.assertEqual(client.receive() > 0, number > 0)
            self.assertFalse(pending(pair))
        self.assertEqual(pair.server_app.received, b"x" * 20)
        pair.server_app.transport.write(b"answer")
        client.receive()
        self.assertEqual(client.tls.read(), b"answer")

    def test_at_the_limit_and_beyond(self) -> None:
        """The limit of a minute is accepted; one more ends the connection with its own error and report."""
        pair, client = self.connected(key_updates=5)
        for _ in range(5):
            key_update(client.tls, answer=False)
            client.send(b"x")
        self.assertEqual(pair.server_app.received, b"x" * 5)
        self.assertFalse(pair.server_wire.aborted)
        key_update(client.tls, answer=False)
        client.send(b"y")
        error = self.ended(pair)
        self.assertIsInstance(error, KeyUpdateLimitReached)
        self.assertIn("192.0.2.2:50000 sent more than 5 KeyUpdates", str(error))
        self.assertEqual(pair.server_observer.aborted, [("key_update_limit", "192.0.2.2:50000")])
        self.assertEqual((pair.server_observer.failed, pair.clock.getDelayedCalls()), ([], []))

    def test_a_minute_later(self) -> None:
        """The count starts again after a minute."""
        pair, client = self.connected(key_updates=3)
        for _ in range(4):
            for _ in range(3):
                key_update(client.tls, answer=False)
                client.send(b"x")
            pair.clock.advance(KEY_UPDATE_SECONDS)
        self.assertEqual(pair.server_app.received, b"x" * 12)

    def test_thousands_in_one_read(self) -> None:
        """Of thousands in one read OpenSSL processes the limit and one more, and nothing after them."""
        pair, client = self.connected()
        for _ in range(3000):
            key_update(client.tls)
        seen: list[int] = []
        self.patch(KeyUpdates, "got_message", counting(seen))
        client.send(b"behind")
        self.assertLessEqual(len(seen), MAX_KEY_UPDATES + 3)
        self.assertLess(len(pair.server_wire.buffer), 50 * MAX_KEY_UPDATES)
        self.assertIsInstance(self.ended(pair), KeyUpdateLimitReached)
        self.assertEqual(pair.server_app.received, b"")

    def test_default(self) -> None:
        """A listener has the default limit: half as many KeyUpdates where each requests a reply."""
        pair, client = self.connected()
        sent = 0
        while not pair.server_wire.aborted and sent < MAX_KEY_UPDATES:
            key_update(client.tls)
            client.send(b"x")
            client.receive()
            sent += 1
        self.assertIn(sent, (MAX_KEY_UPDATES // 2, MAX_KEY_UPDATES // 2 + 1))
        self.assertIsInstance(self.ended(pair), KeyUpdateLimitReached)

    def test_renegotiation_of_tls_1_2(self) -> None:
        """Each request to renegotiate, which is answered by a warning, counts too."""
        folder = Path(self.mktemp())
        folder.mkdir()
        svid = source("/server").svid
        for name, data in (("chain.pem", chain_pem(svid)), ("key.pem", key_pem(svid))):
            (folder / name).write_bytes(data)
        creator = CertificateCreator(str(folder / "chain.pem"), str(folder / "key.pem"))
        pair = Pair(self.tls, by_certificate=creator, key_updates=0)
        client = Client(pair, folder, maximum=ssl.TLSVersion.TLSv1_2)
        self.assertEqual(client.tls.version(), "TLSv1.2")
        client.send(b"x")
        self.assertFalse(pair.server_wire.aborted)
        renegotiate(client.tls)
        client.send()
        self.assertIsInstance(self.ended(pair), KeyUpdateLimitReached)


def pending(pair: Pair) -> bool:
    """Whether OpenSSL holds octets that were not sent."""
    connection = pair.server.getHandle()
    try:
        connection.bio_read(1)
    except SSL.WantReadError:
        return False
    return True


def counting(seen: list[int]) -> Any:
    """``got_message`` that counts its calls."""
    original = KeyUpdates.got_message

    def got_message(updates: KeyUpdates) -> bool:
        seen.append(1)
        return original(updates)

    return got_message


class FastKeyUpdateTests(KeyUpdateTestsMixin, SynchronousTestCase):
    """The fast data path."""

    tls = FastTlsProtocol


class StockKeyUpdateTests(KeyUpdateTestsMixin, SynchronousTestCase):
    """Twisted's own data path."""

    tls = StockTlsProtocol
