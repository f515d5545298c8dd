"""Connections to the application: acquiring, reusing and closing them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost
from twisted.internet.error import ConnectionRefusedError as TwistedRefused
from twisted.internet.error import TimeoutError as TwistedTimeout
from twisted.internet.interfaces import IPushProducer, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.identity.errors import SvidExpired, SvidNotYetValid, TrustDomainUnknown
from svc.pacing.turns import Turns
from svc.policy import Permit
from svc.proxy.errors import (
    ProxyError,
    UpstreamConnectTimeout,
    UpstreamIdentityRefused,
    UpstreamSvidInvalid,
    UpstreamSvidNotCurrent,
    UpstreamUnreachable,
)
from svc.proxy.http.answers import problem_body
from svc.proxy.http.upstream import UpstreamConnection, UpstreamPool
from svc.strictjson import loads_object
from svc.transport.errors import (
    ConnectFailed,
    HandshakeTimeout,
    OwnSvidExpired,
    OwnSvidRefused,
    PeerCredentialsEnded,
    PeerIdentityUnexpected,
    PeerSvidInvalid,
)
from svc.transport.errors import ConnectTimeout as TransportTimeout
from svc.wire.http1 import End, Event, Excess, MessageLimits, MessageRefused, ResponseHead
from tests.proxy.rig import BASE, CALLER, Handle, Wire, evidence_of

PERMIT = Permit(CALLER.spiffe_id, ())
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SWITCH = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"


class User:
    """An exchange that records the calls of its upstream connection."""

    def __init__(self) -> None:
        self.connection: UpstreamConnection | None = None
        self.error: ProxyError | None = None
        self.events: list[Event] = []
        self.lost: list[list[Event]] = []

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """Record the connection and begin."""
        self.connection = connection
        connection.begin(self, b"GET", upgrade=True)

    def upstream_failed(self, error: ProxyError) -> None:
        """Record the error."""
        self.error = error

    def upstream_events(self, events: list[Event]) -> None:
        """Record the events."""
        self.events += events

    def upstream_lost(self, events: list[Event]) -> None:
        """Record the events."""
        self.lost.append(events)


class RecordingTunnel:
    """The other end of a tunnel."""

    def __init__(self) -> None:
        self.data = b""
        self.gone: list[bool] = []

    def from_upstream(self, data: bytes) -> None:
        """Record the octets."""
        self.data += data

    def upstream_gone(self, *, complete: bool) -> None:
        """Record the call."""
        self.gone.append(complete)


@implementer(IStreamClientEndpoint)
class Endpoint:
    """An endpoint that connects when the test says so and records cancelled attempts."""

    def __init__(self) -> None:
        self.attempts: list[tuple[Any, Deferred[Any]]] = []
        self.cancelled: list[Deferred[Any]] = []
        self.connections: list[tuple[UpstreamConnection, Wire]] = []

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        """Start an attempt."""
        attempt: Deferred[Any] = Deferred(self.cancelled.append)
        self.attempts.append((protocolFactory, attempt))
        return attempt

    def complete(self, handle: Handle | None = None) -> Wire:
        """Complete the oldest attempt."""
        factory, attempt = self.attempts.pop(0)
        protocol, wire = factory.buildProtocol(None), Wire(handle)
        self.connections.append((protocol, wire))
        protocol.makeConnection(wire)
        attempt.callback(protocol)
        return wire

    def fail(self, error: Exception) -> None:
        """Fail the oldest attempt."""
        self.attempts.pop(0)[1].errback(error)


class UpstreamTestCase(SynchronousTestCase):
    """Base class: a pool with a manual endpoint and clock."""

    def setUp(self) -> None:
        """Create a pool without connections."""
        self.clock = Clock()
        self.endpoint = Endpoint()
        self.unreachable: list[bool] = []
        self.ended: list[type[Exception]] = []
        self.accepted: list[bool] = []
        self.pool = self.make()

    def make(self, max_idle: int = 2) -> UpstreamPool:
        """Create a pool."""
        return UpstreamPool(
            self.endpoint,
            "127.0.0.1:8080",
            connect_timeout=5.0,
            limits=MessageLimits(),
            max_idle=max_idle,
            idle_timeout=30.0,
            seconds=self.clock.seconds,
            wall=lambda: BASE + timedelta(seconds=self.clock.seconds()),
            turns=Turns(self.clock),
            ended=lambda evidence, error: self.ended.append(type(error)),
            unreachable=lambda: self.unreachable.append(True),
            accepted=lambda: self.accepted.append(True),
        )

    def sweep(self, seconds: float) -> None:
        """Advance the clock and sweep."""
        self.clock.advance(seconds)
        self.pool.sweep(self.clock.seconds())

    def connected(self, handle: Handle | None = None) -> tuple[User, UpstreamConnection, Wire]:
        """Return an exchange with a new connection."""
        user = User()
        self.pool.acquire(PERMIT, user, fresh=True)
        wire = self.endpoint.complete(handle)
        connection = user.connection
        assert connection is not None
        return user, connection, wire

    def answered(self) -> tuple[UpstreamConnection, Wire]:
        """Return a connection whose exchange is over and that is back in the pool."""
        _user, connection, wire = self.connected()
        connection.dataReceived(OK)
        connection.release(reusable=True)
        return connection, wire

    def lose(self, connection: UpstreamConnection, *, clean: bool = True) -> None:
        """Close the connection."""
        connection.connectionLost(Failure(ConnectionDone() if clean else ConnectionLost()))


class AcquireTests(UpstreamTestCase):
    """Acquiring a connection."""

    def test_needs_a_permit(self) -> None:
        """Without a permit no connection is given."""
        for permit in (None, True, PERMIT.identity):
            self.assertRaises(TypeError, self.pool.acquire, permit, User())
        self.assertEqual(self.endpoint.attempts, [])

    def test_new(self) -> None:
        """Without an idle connection a new one is made."""
        user = User()
        attempt = self.pool.acquire(PERMIT, user)
        self.assertIsNotNone(attempt)
        self.assertIsNone(user.connection)
        wire = self.endpoint.complete()
        assert user.connection is not None
        self.assertFalse(user.connection.reused)
        self.assertEqual((self.pool.open_count, self.pool.idle_count), (1, 0))
        user.connection.write(b"GET")
        self.assertEqual(wire.take(), b"GET")

    def test_no_delay(self) -> None:
        """New connections disable Nagle's algorithm."""
        calls: list[bool] = []
        wire = Wire()
        wire.setTcpNoDelay = calls.append  # type: ignore[attr-defined]
        connection = UpstreamConnection(self.pool, MessageLimits())
        connection.makeConnection(wire)
        self.assertEqual(calls, [True])

    def test_idle_one(self) -> None:
        """The most recently returned idle connection is used at once and is marked as reused."""
        first, _wire = self.answered()
        second, _wire = self.answered()
        for expected in (second, first):
            user = User()
            self.assertIsNone(self.pool.acquire(PERMIT, user))
            self.assertIs(user.connection, expected)
            self.assertTrue(expected.reused)
        self.assertEqual((self.pool.idle_count, self.endpoint.attempts), (0, []))

    def test_fresh(self) -> None:
        """A caller that requires a new connection gets no idle one."""
        self.answered()
        self.pool.acquire(PERMIT, User(), fresh=True)
        self.assertEqual((len(self.endpoint.attempts), self.pool.idle_count), (1, 1))

    def test_failure_messages(self) -> None:
        """Each failure has its own error, which names the upstream."""
        for error, kind, text in (
            (TwistedTimeout(), UpstreamConnectTimeout, "did not accept a connection within 5.0 s"),
            (TransportTimeout(address="a", detail="5 s"), UpstreamConnectTimeout, "within 5.0 s"),
            (HandshakeTimeout(seconds=5), UpstreamConnectTimeout, "within 5.0 s"),
            (TwistedRefused(), UpstreamUnreachable, "Connection was refused"),
            (ConnectError(osError=111, string="refused by test"), UpstreamUnreachable, "111"),
            (ConnectFailed(address="a", detail="no route"), UpstreamUnreachable, "no route"),
        ):
            user = User()
            self.pool.acquire(PERMIT, user)
            self.endpoint.fail(error)
            self.assertIsInstance(user.error, kind)
            self.assertIn("127.0.0.1:8080", str(user.error))
            self.assertIn(text, str(user.error))
        self.assertEqual(self.pool.open_count, 0)

    def test_refused_identities(self) -> None:
        """Each refusal of a peer's identity has a precise reason; refusals that time may resolve can be retried."""
        name, ended = "spiffe://a/b", "2031-05-04T13:00:00+00:00"
        expired = SvidExpired(subject="", spiffe_id=name, not_after=ended, now="later")
        early = SvidNotYetValid(subject="", spiffe_id=name, not_before=ended, now="now")
        foreign = TrustDomainUnknown(trust_domain="a")
        common = {"address": "a", "alert": ""}
        for error, kind, reason, retryable, text in (
            (
                PeerSvidInvalid(detail="expired", cause=expired, **common),
                UpstreamSvidNotCurrent,
                "expired",
                True,
                ended,
            ),
            (expired, UpstreamSvidNotCurrent, "expired", True, ended),
            (PeerCredentialsEnded(spiffe_id=name, ended=ended), UpstreamSvidNotCurrent, "expired", True, ended),
            (
                PeerSvidInvalid(detail="not_yet_valid", cause=early, **common),
                UpstreamSvidNotCurrent,
                "not_yet_valid",
                True,
                ended,
            ),
            (
                PeerSvidInvalid(detail="trust_domain_unknown", cause=foreign, **common),
                UpstreamSvidInvalid,
                "trust_domain_unknown",
                False,
                "no trust bundle",
            ),
            (foreign, UpstreamSvidInvalid, "trust_domain_unknown", False, "no trust bundle"),
            (
                PeerIdentityUnexpected(spiffe_id=name, expected="spiffe://a/c", **common),
                UpstreamIdentityRefused,
                "identity_unexpected",
                False,
                "127.0.0.1:8080 is not who it must be: it is spiffe://a/b; expected spiffe://a/c",
            ),
        ):
            found = self.pool.explained(error)
            self.assertIs(kind, type(found), error)
            self.assertEqual(("upstream_identity_refused", reason), (found.reason, found.detail_reason))
            document = loads_object(problem_body(found))
            self.assertEqual((reason, retryable), (document["detail_reason"], document["retryable"]))
            self.assertIn(text, cast(str, document["detail"]))

    def test_own_svid_refused(self) -> None:
        """A peer that refuses our SVID is reported as such, and as our fault (503) if the SVID has expired."""
        common = {"address": "a", "alert": "x", "detail": "", "spiffe_id": "spiffe://a/b", "ends": "noon"}
        for error, status, code in (
            (OwnSvidExpired(**common), 503, "credentials_expired"),
            (OwnSvidRefused(**common), 502, "own_svid_refused"),
        ):
            _user, connection, _wire = self.connected()
            connection.connectionLost(Failure(error))
            loss = connection.loss
            assert loss is not None
            self.assertEqual((status, code), (loss.http_status, loss.reason))
            self.assertIn("refused our SVID (spiffe://a/b)", str(loss))
            self.assertIn("noon", str(loss))

    def test_accepted(self) -> None:
        """A verified peer that responds, or closes other than by refusing our SVID, is reported as accepting once."""
        handle = Handle(evidence_of(CALLER))
        _user, answered, _wire = self.connected(handle)
        self.assertEqual([], self.accepted)
        answered.dataReceived(OK[:5])
        answered.dataReceived(OK[5:])
        self.lose(answered)
        self.assertEqual([True], self.accepted)
        _user, silent, _wire = self.connected(handle)
        self.lose(silent)
        self.assertEqual([True] * 2, self.accepted)
        _user, refused, _wire = self.connected(handle)
        refused.connectionLost(Failure(OwnSvidRefused(address="a", alert="x", detail="", spiffe_id="", ends="")))
        _user, application, _wire = self.connected()
        application.dataReceived(OK)
        self.lose(application)
        self.assertEqual([True] * 2, self.accepted)

    def test_unreachable(self) -> None:
        """A failed TCP connection is reported once as unreachable; TLS failures and cancelled attempts are not."""
        for error, reported in (
            (ConnectFailed(address="a", detail="connection refused"), True),
            (TransportTimeout(address="a", detail="5 s"), True),
            (HandshakeTimeout(seconds=5), False),
            (PeerSvidInvalid(cause="expired"), False),
            (CancelledError(), False),
        ):
            self.unreachable.clear()
            self.pool.acquire(PERMIT, User())
            self.endpoint.fail(error)
            self.assertEqual(self.unreachable, [True] * reported, error)

    def test_give_up(self) -> None:
        """A cancelled attempt is not reported; cancelling a finished one has no effect."""
        user = User()
        attempt = self.pool.acquire(PERMIT, user)
        assert attempt is not None
        self.pool.give_up(attempt)
        self.assertEqual(len(self.endpoint.cancelled), 1)
        self.assertEqual((user.connection, user.error), (None, None))
        other = User()
        attempt = self.pool.acquire(PERMIT, other)
        assert attempt is not None
        self.endpoint.attempts.pop(0)
        self.endpoint.complete()
        self.pool.give_up(attempt)
        self.assertEqual(len(self.endpoint.cancelled), 1)
        self.assertIsNotNone(other.connection)


class ReuseTests(UpstreamTestCase):
    """When a connection is pooled, and for how long."""

    def test_put_back(self) -> None:
        """A reusable connection is kept in the pool."""
        connection, wire = self.answered()
        self.assertEqual((self.pool.idle_count, self.pool.open_count), (1, 1))
        self.assertFalse(wire.disconnecting or wire.aborted)
        self.assertFalse(connection.dead)

    def test_not_reusable(self) -> None:
        """A connection that is not reusable is dropped."""
        _user, connection, wire = self.connected()
        connection.release(reusable=False)
        self.assertTrue(wire.aborted)
        self.lose(connection)
        self.assertEqual((self.pool.idle_count, self.pool.open_count), (0, 0))

    def test_dead(self) -> None:
        """A connection that ended with its exchange is not kept."""
        user, connection, _wire = self.connected()
        self.lose(connection)
        connection.release(reusable=True)
        self.assertEqual((self.pool.idle_count, self.pool.open_count, len(user.lost)), (0, 0, 1))

    def test_limit(self) -> None:
        """At the limit the connection is closed, below it it is kept."""
        connections = [self.connected()[1:] for _ in range(3)]
        for connection, _wire in connections:
            connection.dataReceived(OK)
            connection.release(reusable=True)
        self.assertEqual(self.pool.idle_count, 2)
        self.assertEqual([wire.disconnecting for _connection, wire in connections], [False, False, True])

    def test_none_kept(self) -> None:
        """With a limit of zero each exchange has its own connection."""
        self.pool = self.make(max_idle=0)
        _connection, wire = self.answered()
        self.assertTrue(wire.disconnecting)

    def test_sweep(self) -> None:
        """Connections that were idle for the whole time are closed, others are kept."""
        old, old_wire = self.answered()
        self.sweep(29.5)
        _new, new_wire = self.answered()
        self.assertFalse(old_wire.disconnecting)
        self.sweep(0.5)
        self.assertTrue(old_wire.disconnecting)
        self.assertEqual(self.pool.idle_count, 1)
        self.sweep(29.0)
        self.assertFalse(new_wire.disconnecting)
        self.sweep(0.5)
        self.assertTrue(new_wire.disconnecting)
        self.lose(old)
        self.assertEqual(self.pool.open_count, 1)

    def test_lost_while_idle(self) -> None:
        """An idle connection that the application closes is removed."""
        connection, _wire = self.answered()
        self.lose(connection)
        self.assertEqual((self.pool.idle_count, self.pool.open_count), (0, 0))
        self.sweep(100)

    def test_octets_while_idle(self) -> None:
        """An idle connection that receives octets is dropped."""
        connection, wire = self.answered()
        connection.dataReceived(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        self.assertTrue(wire.aborted)
        self.lose(connection)
        self.assertEqual(self.pool.idle_count, 0)

    def test_flush(self) -> None:
        """After a flush no older connection is used again: idle, in use, or being established."""
        _idle, idle_wire = self.answered()
        _user, used, used_wire = self.connected()
        waiting = User()
        self.pool.acquire(PERMIT, waiting, fresh=True)
        self.pool.flush()
        self.assertTrue(idle_wire.disconnecting)
        self.assertFalse(used_wire.disconnecting or used_wire.aborted)
        used.dataReceived(OK)
        used.release(reusable=True)
        self.assertTrue(used_wire.disconnecting)
        late_wire = self.endpoint.complete()
        assert waiting.connection is not None
        waiting.connection.dataReceived(OK)
        waiting.connection.release(reusable=True)
        self.assertTrue(late_wire.disconnecting)
        self.assertEqual(self.pool.idle_count, 0)
        _connection, wire = self.answered()
        self.assertEqual((self.pool.idle_count, wire.disconnecting), (1, False))

    def test_close_that_takes_long(self) -> None:
        """A connection that cannot send its remaining data is aborted some seconds after the close."""
        self.sweep(5)
        connection, wire = self.answered()
        self.pool.flush()
        self.sweep(9.5)
        self.assertFalse(wire.aborted)
        self.sweep(0.5)
        self.assertTrue(wire.aborted)
        self.lose(connection)
        other, other_wire = self.answered()
        self.pool.flush()
        self.lose(other)
        self.sweep(20)
        self.assertFalse(other_wire.aborted)


class CloseTests(UpstreamTestCase):
    """Closing the pool."""

    def test_everything(self) -> None:
        """Idle connections, those in use and attempts all end."""
        _idle, idle_wire = self.answered()
        user, used, used_wire = self.connected()
        waiting = User()
        self.pool.acquire(PERMIT, waiting, fresh=True)
        self.pool.close()
        self.lose(used)
        self.assertEqual(user.lost, [])
        self.assertTrue(idle_wire.disconnecting)
        self.assertTrue(used_wire.aborted)
        self.assertEqual((len(self.endpoint.cancelled), waiting.connection, waiting.error), (1, None, None))

    def test_put_back_after_the_end(self) -> None:
        """A connection that is returned later is closed."""
        _user, connection, wire = self.connected()
        self.pool.close()
        connection.dead = False
        self.pool.put_back(connection)
        self.assertEqual(self.pool.idle_count, 0)
        self.assertTrue(wire.disconnecting)

    def test_acquire_after_the_end(self) -> None:
        """No connection is given any more, and requests fail."""
        self.pool.close()
        user = User()
        self.assertIsNone(self.pool.acquire(PERMIT, user))
        self.assertIsInstance(user.error, UpstreamUnreachable)
        self.assertEqual(self.endpoint.attempts, [])

    def test_twice(self) -> None:
        """A second close has no effect."""
        connection, _wire = self.answered()
        self.pool.close()
        self.lose(connection)
        self.pool.close()
        self.assertEqual(self.pool.open_count, 0)


class ConnectionTests(UpstreamTestCase):
    """One connection and its exchange."""

    def test_events(self) -> None:
        """The exchange gets the events of the response; the connection records whether any octet has arrived."""
        user, connection, _wire = self.connected()
        self.assertFalse(connection.answer_begun)
        connection.dataReceived(OK[:3])
        self.assertTrue(connection.answer_begun)
        connection.dataReceived(OK[3:] + b"x")
        self.assertEqual([type(event) for event in user.events], [ResponseHead, bytes, End, Excess])

    def test_second_exchange(self) -> None:
        """On a reused connection the response has not begun."""
        _connection, _wire = self.answered()
        user = User()
        self.pool.acquire(PERMIT, user)
        assert user.connection is not None
        self.assertFalse(user.connection.answer_begun)
        user.connection.dataReceived(OK)
        self.assertEqual([type(event) for event in user.events], [ResponseHead, bytes, End])

    def test_end_of_the_connection_ends_the_body(self) -> None:
        """An orderly close ends a body without a length; another close does not."""
        for clean, kind in ((True, End), (False, MessageRefused)):
            user, connection, _wire = self.connected()
            connection.dataReceived(b"HTTP/1.1 200 OK\r\n\r\nhalf")
            self.lose(connection, clean=clean)
            [events] = user.lost
            self.assertEqual([type(event) for event in events], [kind])

    def test_lost_after_release(self) -> None:
        """An exchange that released the connection is not notified of its loss."""
        user, connection, _wire = self.connected()
        connection.dataReceived(OK)
        connection.release(reusable=True)
        self.lose(connection)
        self.assertEqual(user.lost, [])

    def test_nothing_after_the_end(self) -> None:
        """A closed connection is neither counted twice nor paused."""
        _user, connection, wire = self.connected()
        self.lose(connection)
        connection.abort()
        connection.close()
        connection.pauseProducing()
        connection.resumeProducing()
        self.assertEqual((wire.aborted, wire.disconnecting, wire.producerState), (False, False, "producing"))

    def test_fed(self) -> None:
        """The client connection is registered and unregistered as producer once, even if requested repeatedly."""
        _user, connection, wire = self.connected()
        client = object()
        for _ in range(2):
            connection.feed_from(client)
        self.assertIs(wire.producer, client)
        for _ in range(2):
            connection.stop_feeding()
        self.assertIsNone(wire.producer)

    def test_lost_while_fed(self) -> None:
        """A closed transport has no producer any more, so none is unregistered."""
        _user, connection, wire = self.connected()
        connection.feed_from(object())
        wire.unregisterProducer()
        self.lose(connection)
        connection.stop_feeding()
        self.assertFalse(connection.fed)

    def test_producer(self) -> None:
        """The connection is the producer of the client's transport: pausing stops reading, stopping does nothing."""
        _user, connection, wire = self.connected()
        verifyObject(IPushProducer, connection)
        connection.pauseProducing()
        self.assertTrue(wire.paused)
        connection.resumeProducing()
        self.assertFalse(wire.paused)
        connection.stopProducing()
        self.assertFalse(wire.aborted or wire.disconnecting)

    def test_tunnel(self) -> None:
        """After an upgrade octets go to the tunnel, beginning with those that followed the response."""
        user, connection, _wire = self.connected()
        connection.dataReceived(SWITCH + b"one")
        end = RecordingTunnel()
        self.assertEqual(connection.tunnel(end), b"one")
        connection.dataReceived(b"two")
        self.assertEqual(end.data, b"two")
        self.lose(connection)
        self.assertEqual((end.gone, user.lost), ([True], []))

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["acquire", "connect", "answer", "drop", "lose", "sweep", "flush"]), st.integers(0, 5)
            ),
            max_size=50,
        )
    )
    def test_any_order(self, steps: list[tuple[str, int]]) -> None:
        """In any order of operations no connection has two exchanges, limits hold, and closing leaves nothing."""
        self.setUp()
        users: list[User] = []
        for step, number in steps:
            busy = [user for user in users if user.connection is not None and not user.connection.dead]
            living = [connection for connection, _wire in self.endpoint.connections if not connection.dead]
            if step == "acquire":
                users.append(User())
                self.pool.acquire(PERMIT, users[-1], fresh=number == 0)
            elif step == "connect" and self.endpoint.attempts:
                self.endpoint.complete()
            elif step == "answer" and busy:
                user = busy[number % len(busy)]
                users.remove(user)
                assert user.connection is not None
                user.connection.dataReceived(OK)
                user.connection.release(reusable=True)
            elif step == "drop" and busy:
                user = busy[number % len(busy)]
                users.remove(user)
                assert user.connection is not None
                user.connection.release(reusable=False)
            elif step == "lose" and living:
                self.lose(living[number % len(living)])
            elif step == "sweep":
                self.sweep(number * 4.0)
            elif step == "flush":
                self.pool.flush()
            held = [user.connection for user in users if user.connection is not None]
            self.assertEqual(len(held), len(set(map(id, held))))
            self.assertLessEqual(self.pool.idle_count, 2)
            self.assertEqual(self.pool.open_count, sum(not each.dead for each, _wire in self.endpoint.connections))
        self.pool.close()
        for connection, wire in self.endpoint.connections:
            if not connection.dead:
                self.assertTrue(wire.aborted or wire.disconnecting)
                self.lose(connection)
        self.assertEqual((self.pool.open_count, self.pool.idle_count), (0, 0))
