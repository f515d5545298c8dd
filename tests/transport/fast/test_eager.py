"""Tests of ``svc.transport.fast.eager`` and ``svc.transport.tcp`` on a scripted socket."""

from __future__ import annotations

import errno
import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.protocol import ClientFactory
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.transport.fast.eager import READ_SIZE, DirectReads, EagerWrites
from svc.transport.limits import connection_limit
from svc.transport.tcp import PAUSE_SIZE, EagerClient, EagerServer, ListeningPort, StockServer, connect_tcp, listen_tcp
from tests.transport.pairs import Application, Applications, Producer


class ScriptedSocket:
    """A connected socket; ``takes`` says how much each send accepts: a number, or an errno to raise."""

    family = socket.AF_INET

    def __init__(self, takes: list[Any] | None = None) -> None:
        self.takes = takes if takes is not None else []
        self.sent = b""
        self.sends = 0
        self.options: list[tuple[int, int, Any]] = []
        self.incoming: list[Any] = []
        self.asked: list[int] = []
        self.shut: list[int] = []
        self.closed = False

    def send(self, data: bytes | memoryview) -> int:
        self.sends += 1
        accepted = self.takes.pop(0) if self.takes else len(data)
        if isinstance(accepted, OSError):
            raise accepted
        accepted = min(accepted, len(data))
        self.sent += bytes(data[:accepted])
        return accepted

    def recv(self, size: int) -> Any:
        self.asked.append(size)
        found = self.incoming.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self.options.append((level, option, value))

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def fileno(self) -> int:
        return 42

    def shutdown(self, how: int) -> None:
        self.shut.append(how)

    def close(self) -> None:
        self.closed = True


class Descriptors(Clock):
    """A reactor that records its readers and writers."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[Any] = set()
        self.writers: set[Any] = set()

    def addReader(self, reader: Any) -> None:
        self.readers.add(reader)

    def addWriter(self, writer: Any) -> None:
        self.writers.add(writer)

    def removeReader(self, reader: Any) -> None:
        self.readers.discard(reader)

    def removeWriter(self, writer: Any) -> None:
        self.writers.discard(writer)

    def run_writer(self) -> object:
        """Call the one writer once; returns what the reactor would get."""
        [writer] = self.writers
        return writer.doWrite()


EAGAIN = BlockingIOError(errno.EAGAIN, "would block")
RESET = ConnectionResetError(errno.ECONNRESET, "reset")
PIPE = BrokenPipeError(errno.EPIPE, "broken pipe")


class EagerServerTests(SynchronousTestCase):
    """Tests of ``EagerWrites`` on a server connection."""

    def connect(self, takes: list[Any] | None = None, kind: type[Any] = EagerServer) -> Any:
        self.reactor = Descriptors()
        self.socket = ScriptedSocket(takes)
        self.application = Application()
        transport = kind(self.socket, self.application, ("192.0.2.1", 1), None, 0, self.reactor)
        self.application.makeConnection(transport)
        return transport

    def test_write_is_sent_at_once(self) -> None:
        """Data that the socket takes does not wait for the reactor."""
        transport = self.connect()
        transport.write(b"hello")
        self.assertEqual((self.socket.sent, self.reactor.writers, transport.unsent), (b"hello", set(), 0))

    def test_stock_transport_waits(self) -> None:
        """Twisted's own transport sends on the next iteration of the reactor."""
        transport = self.connect(kind=StockServer)
        transport.write(b"hello")
        self.assertEqual((self.socket.sent, transport.unsent), (b"", 5))
        self.assertIsNone(self.reactor.run_writer())
        self.assertEqual(self.socket.sent, b"hello")

    def test_rest_of_a_partial_send_is_buffered(self) -> None:
        """The remainder follows on the next iteration, and later writes queue behind it."""
        transport = self.connect([3])
        transport.write(b"hello")
        transport.write(b" world")
        self.assertEqual((self.socket.sent, self.socket.sends, transport.unsent), (b"hel", 1, 8))
        self.assertIsNone(self.reactor.run_writer())
        self.assertEqual(self.socket.sent, b"hello world")
        self.assertEqual(self.reactor.writers, set())
        transport.write(b"!")
        self.assertEqual(self.socket.sent, b"hello world!")

    def test_full_socket(self) -> None:
        """EAGAIN buffers everything."""
        transport = self.connect([EAGAIN])
        transport.write(b"hello")
        self.assertEqual((self.socket.sent, transport.unsent), (b"", 5))
        self.reactor.run_writer()
        self.assertEqual(self.socket.sent, b"hello")

    def test_broken_socket_is_reported_by_the_reactor(self) -> None:
        """EPIPE and ECONNRESET do not call the protocol from inside write; the next iteration reports them."""
        for broken in (PIPE, RESET):
            with self.subTest(broken):
                transport = self.connect([broken, broken])
                transport.write(b"hello")
                self.assertIsNone(self.application.lost)
                self.assertIs(self.reactor.run_writer(), CONNECTION_LOST)

    def test_data_before_close_is_sent(self) -> None:
        """loseConnection waits for what is buffered, then closes; nothing is sent twice."""
        transport = self.connect([2])
        transport.write(b"hello")
        transport.loseConnection()
        self.assertIs(self.reactor.run_writer(), CONNECTION_DONE)
        self.assertEqual(self.socket.sent, b"hello")

    def test_nothing_is_sent_after_abort(self) -> None:
        """After abortConnection a write is dropped."""
        transport = self.connect()
        transport.abortConnection()
        transport.write(b"late")
        self.reactor.advance(0)
        self.assertEqual(self.socket.sent, b"")
        self.assertTrue(self.socket.closed)

    def test_nothing_is_sent_after_the_end(self) -> None:
        """A write after connectionLost is dropped."""
        transport = self.connect()
        transport.connectionLost(Failure(ConnectionDone()))
        transport.write(b"late")
        transport.writeSequence([b"late"])
        self.assertEqual(self.socket.sent, b"")
        self.assertEqual(transport.unsent, 0)

    def test_nothing_is_sent_after_half_close(self) -> None:
        """After loseWriteConnection has been carried out a write is dropped; what came before it was sent."""
        transport = self.connect()
        transport.write(b"before")
        transport.loseWriteConnection()
        self.reactor.run_writer()
        transport.write(b"after")
        self.assertEqual((self.socket.sent, self.socket.shut), (b"before", [1]))

    def test_streaming_producer_is_paused_when_the_rest_is_large(self) -> None:
        """A remainder beyond the limit, a part of one read, pauses the producer; the drained buffer resumes it."""
        self.assertLessEqual(PAUSE_SIZE, READ_SIZE // 2)
        transport = self.connect([10, 10])
        producer = Producer()
        transport.registerProducer(producer, True)
        transport.write(b"x" * (PAUSE_SIZE + 10))
        self.assertEqual(producer.calls, [])
        while self.reactor.writers:
            self.reactor.run_writer()
        self.socket.sent, self.socket.takes = b"", [10]
        transport.write(b"x" * (PAUSE_SIZE + 11))
        self.assertEqual(producer.calls, ["pause"])
        while self.reactor.writers:
            self.reactor.run_writer()
        self.assertEqual(producer.calls, ["pause", "resume"])
        transport.write(b"y")
        self.assertEqual(len(self.socket.sent), PAUSE_SIZE + 12)

    def test_streaming_producer_is_paused_at_its_registration(self) -> None:
        """A producer that is registered when too much data is unsent is paused at once, and resumed later."""
        transport = self.connect([10])
        transport.write(b"x" * (PAUSE_SIZE + 11))
        producer = Producer()
        transport.registerProducer(producer, True)
        self.assertEqual(producer.calls, ["pause"])
        while self.reactor.writers:
            self.reactor.run_writer()
        self.assertEqual(producer.calls, ["pause", "resume"])

    def test_pull_producer_is_driven_to_its_end(self) -> None:
        """A pull producer is resumed each time its data is sent."""
        transport = self.connect()
        pieces = [b"one", b"two", b"three"]

        class Pull:
            def resumeProducing(self) -> None:
                if pieces:
                    transport.write(pieces.pop(0))
                else:
                    transport.unregisterProducer()

            def stopProducing(self) -> None:
                pieces.clear()

        transport.registerProducer(Pull(), False)
        for _ in range(4):
            if self.reactor.writers:
                self.reactor.run_writer()
        self.assertEqual(self.socket.sent, b"onetwothree")

    def test_sequence_is_one_send(self) -> None:
        """writeSequence makes one system call of all pieces."""
        transport = self.connect()
        transport.writeSequence([b"a", b"", b"bc"])
        transport.writeSequence([])
        self.assertEqual((self.socket.sent, self.socket.sends), (b"abc", 1))

    def test_wrong_type(self) -> None:
        """Text is a TypeError, as with Twisted's own transports."""
        transport = self.connect()
        self.assertRaises(TypeError, transport.write, "text")

    def test_reads(self) -> None:
        """The size of a read is nearly 128 KiB."""
        transport = self.connect()
        self.socket.incoming = [b"data", b""]
        transport.doRead()
        self.assertIs(transport.doRead(), CONNECTION_DONE)
        self.assertEqual((self.application.received, self.socket.asked[0]), (b"data", READ_SIZE))

    def test_reads_that_fail(self) -> None:
        """A read that has nothing is no end; a broken one is."""
        transport = self.connect()
        self.socket.incoming = [EAGAIN, RESET]
        self.assertIsNone(transport.doRead())
        self.assertIs(transport.doRead(), CONNECTION_LOST)
        self.assertEqual(self.application.received, b"")

    def test_slot_is_released_once(self) -> None:
        """The end of the connection, even reported twice, releases one slot."""
        port = ListeningPort(0, Applications(), reactor=Descriptors())
        port.connection_limit = connection_limit(2)
        port.connection_limit.acquire()
        port.connection_limit.acquire()
        transport = EagerServer(ScriptedSocket(), Application(), ("192.0.2.1", 1), port, 0, Descriptors())
        transport.connectionLost(Failure(ConnectionLost()))
        transport.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(port.connection_limit.held, 1)

    def test_slot_that_was_released_early(self) -> None:
        """A connection that released its slot before its end releases no second one."""
        port = ListeningPort(0, Applications(), reactor=Descriptors())
        port.connection_limit = connection_limit(2)
        port.connection_limit.acquire()
        port.connection_limit.acquire()
        transport = EagerServer(ScriptedSocket(), Application(), ("192.0.2.1", 1), port, 0, Descriptors())
        transport.release_slot()
        self.assertEqual(port.connection_limit.held, 1)
        transport.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(port.connection_limit.held, 1)

    @given(
        st.lists(st.one_of(st.binary(max_size=20), st.just("run")), max_size=20),
        st.lists(st.one_of(st.integers(0, 8), st.just("again")), max_size=20),
    )
    def test_any_interleaving_sends_what_was_written(self, steps: list[Any], takes: list[Any]) -> None:
        """Whatever the socket takes, all octets are sent once and in order."""
        transport = self.connect([EAGAIN if take == "again" else take for take in takes])
        written = b""
        for step in steps:
            if step == "run":
                if self.reactor.writers:
                    self.assertIsNone(self.reactor.run_writer())
            else:
                transport.write(step)
                written += step
        self.assertTrue(written.startswith(self.socket.sent))
        self.assertEqual(transport.unsent, len(written) - len(self.socket.sent))
        self.socket.takes.clear()
        while self.reactor.writers:
            self.reactor.run_writer()
        self.assertEqual(self.socket.sent, written)


class OtherReactorTests(SynchronousTestCase):
    """A reactor that is not a POSIX one uses its own transports."""

    def test_listen_and_connect_are_delegated(self) -> None:
        """The reactor's own methods are called with the same arguments."""
        reactor = MemoryReactorClock()
        factory = ClientFactory()
        listen_tcp(reactor, "127.0.0.1", 80, factory, backlog=7)
        connect_tcp(reactor, "127.0.0.1", 81, factory, timeout=3)
        self.assertEqual(reactor.tcpServers, [(80, factory, 7, "127.0.0.1")])
        self.assertEqual(reactor.tcpClients, [("127.0.0.1", 81, factory, 3, None)])


class OwnMethodsTests(SynchronousTestCase):
    """Servers and clients share no code object of the methods that each read or write calls."""

    def test_copies(self) -> None:
        """Each is a copy of the one in the mixin, by the same name."""
        for name in ("write", "_send", "send_batched", "doRead"):
            mixin = DirectReads if name == "doRead" else EagerWrites
            server, client, shared = (getattr(each, name) for each in (EagerServer, EagerClient, mixin))
            self.assertEqual(3, len({id(each.__code__) for each in (server, client, shared)}), name)
            self.assertEqual((shared.__code__, shared.__doc__), (server.__code__, server.__doc__))
            self.assertEqual(shared.__qualname__, client.__qualname__)
