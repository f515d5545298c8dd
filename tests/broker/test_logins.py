"""Logins with passwords: what is answered, how many are verified and wait, what is cached; and connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.broker import logins as logins_module
from svc.broker.access import AccessRule, ClientName, NamePattern, Principal, Rules
from svc.broker.broker import Broker, anonymous
from svc.broker.connection import BrokerConnection
from svc.broker.errors import BrokerError, LoginLimitReached
from svc.broker.evidence import EvidenceCheck
from svc.broker.hub import HubLimits
from svc.broker.logins import CACHE_SECONDS, THREADS, PasswordLogins, UserEvidence
from svc.broker.passwordfile import PasswordHash, ScryptCost
from svc.errors import SvcError
from svc.wire.mqtt import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    ReasonCode,
    ReturnCode,
    Suback,
    Subscribe,
    Subscription,
    Version,
    encode,
)
from tests.broker.test_connection import Refusals, Wire
from tests.broker.test_limits import SharedWire

CHEAP = ScryptCost(4, 1, 1)
ALICE, BOB = PasswordHash.of(b"a", CHEAP), PasswordHash.of(b"b", CHEAP)
USERS = {"alice": ALICE, "bob": BOB}
LASTING = Properties(session_expiry=3600)


class Threads:
    """Runs work when the test says."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], Any], Deferred[Any]]] = []
        self.begun = 0

    def __call__(self, work: Callable[[], Any]) -> Deferred[Any]:
        """Keep it."""
        self.begun += 1
        done: Deferred[Any] = Deferred()
        self.work.append((work, done))
        return done

    def run(self, count: int = 1) -> None:
        """Finish the oldest ones."""
        for _ in range(count):
            work, done = self.work.pop(0)
            done.callback(work())


class LoginsCase(SynchronousTestCase):
    """Logins with a clock and threads of the test."""

    waiting = 3

    def setUp(self) -> None:
        """Make them."""
        self.clock, self.threads = Clock(), Threads()
        self.logins = PasswordLogins(USERS, seconds=self.clock.seconds, in_thread=self.threads, waiting=self.waiting)

    def login(
        self, name: str | None = "alice", password: bytes | None = b"a", source: str = "s"
    ) -> Deferred[UserEvidence]:
        """Log in."""
        return self.logins.login(name, password, source)

    def refused(self, login: Deferred[UserEvidence]) -> str:
        """Why a login was refused."""
        return str(self.failureResultOf(login, BrokerError).value.reason)


class VerifyingTests(LoginsCase):
    """What is answered."""

    def test_right(self) -> None:
        """The result is the user's name and the hash that verified it, after the thread."""
        login = self.login()
        self.assertNoResult(login)
        self.threads.run()
        self.assertEqual(self.successResultOf(login), (ClientName("user", "alice"), ALICE))

    def test_wrong(self) -> None:
        """A wrong password, that of another user and an unknown user are refused alike, after the same work."""
        for name, password in (("alice", b"A"), ("alice", b"b"), ("bob", b"a"), ("carol", b"a"), ("Alice", b"a")):
            login = self.login(name, password)
            self.assertNoResult(login)
            ((work, _done),) = self.threads.work
            self.assertEqual(work.func.__self__.cost, CHEAP)  # type: ignore[attr-defined]
            self.threads.run()
            self.assertEqual(self.refused(login), "mqtt_login_refused")
        self.assertEqual(self.threads.begun, 5)

    def test_missing(self) -> None:
        """Without a name or a password nothing is computed."""
        for name, password in ((None, None), ("alice", None), ("alice", b""), (None, b"a"), ("", b"a")):
            self.assertEqual(self.refused(self.login(name, password)), "mqtt_login_refused")
        self.assertEqual(self.threads.begun, 0)

    def test_failure(self) -> None:
        """What cannot be verified is refused, logged, and does not stop what follows."""
        first, second = self.login(), self.login("bob", b"b")
        _work, done = self.threads.work.pop(0)
        done.errback(Failure(MemoryError()))
        self.assertEqual(self.refused(first), "mqtt_login_refused")
        self.assertEqual(len(self.flushLoggedErrors(MemoryError)), 1)
        self.threads.run()
        self.assertEqual(self.successResultOf(second).name.name, "bob")

    def test_reload_meanwhile(self) -> None:
        """A password is verified by the users that are in force at the end."""
        gone, changed, same = self.login(), self.login("bob", b"b"), self.login("bob", b"b")
        self.logins.replace({"bob": PasswordHash.of(b"b", CHEAP)})
        self.threads.run(2)
        self.assertEqual([self.refused(each) for each in (gone, changed)], ["mqtt_login_refused"] * 2)
        self.threads.run()
        self.assertEqual(self.successResultOf(same).name.name, "bob")

    def test_check(self) -> None:
        """A user is accepted while there with the same hash; the owner of a session has none."""
        self.logins.check("alice", ALICE)
        self.logins.check("alice", None)
        for name, password in (("alice", BOB), ("carol", None), ("carol", ALICE)):
            error = self.assertRaises(BrokerError, self.logins.check, name, password)
            self.assertEqual(error.reason, "mqtt_user_withdrawn")


class QueueTests(LoginsCase):
    """How many are verified at once, and how many wait."""

    def test_limit(self) -> None:
        """As many threads as are allowed, then as many that wait, then one is refused at once."""
        admitted = [self.login("alice", b"%d" % number) for number in range(THREADS + self.waiting)]
        self.assertEqual(self.threads.begun, THREADS)
        error = self.failureResultOf(self.login("alice", b"a"), LoginLimitReached).value
        self.assertEqual((error.mqtt_reason, error.return_code), (0x97, 3))
        for each in admitted:
            self.assertNoResult(each)
        for count in range(len(admitted)):
            self.assertLessEqual(len(self.threads.work), THREADS)
            self.threads.run()
            self.assertEqual(self.refused(admitted[count]), "mqtt_login_refused")
        last = self.login()
        self.threads.run()
        self.assertEqual(self.successResultOf(last).name.name, "alice")

    def test_in_order(self) -> None:
        """They are verified in the order in which they came."""
        ended: list[int] = []
        for number in range(THREADS + self.waiting):
            self.login("alice", b"%d" % number).addErrback(lambda _failure, number=number: ended.append(number))  # type: ignore[call-overload]
        self.threads.run(THREADS + self.waiting)
        self.assertEqual(ended, list(range(THREADS + self.waiting)))

    def test_sources(self) -> None:
        """At the limit a source that holds more loses its oldest one; among equals the new one is refused."""
        greedy = [self.login("alice", b"%d" % number, "greedy") for number in range(THREADS + self.waiting)]
        other = self.login("bob", b"b", "other")
        self.assertEqual(self.refused(greedy[THREADS]), "mqtt_login_limit")
        self.assertEqual(self.refused(self.login("bob", b"c", "other")), "mqtt_login_limit")
        for each in (other, *greedy[THREADS + 1 :]):
            self.assertNoResult(each)
        self.threads.run(THREADS + self.waiting)
        self.assertEqual(self.successResultOf(other).name.name, "bob")
        for each in (*greedy[:THREADS], *greedy[THREADS + 1 :]):
            self.refused(each)

    def test_withdrawn(self) -> None:
        """A connection that ends frees its place, and one whose password is being verified its thread."""
        admitted = [self.login("alice", b"%d" % number) for number in range(THREADS + self.waiting)]
        for each in (admitted[0], admitted[-1]):
            each.addErrback(lambda _failure: None)
            each.cancel()
        instead = self.login()
        self.assertNoResult(instead)
        self.threads.run(THREADS + self.waiting)
        self.assertEqual(self.successResultOf(instead).name.name, "alice")
        self.assertEqual(self.threads.begun, THREADS + self.waiting)
        for each in admitted[1:-1]:
            self.refused(each)


class CacheTests(LoginsCase):
    """Credentials that were verified."""

    def verified(self, name: str = "alice", password: bytes = b"a") -> bool:
        """Log in; whether a thread had to verify it."""
        begun = self.threads.begun
        login = self.login(name, password)
        self.threads.run(len(self.threads.work))
        self.assertEqual(self.successResultOf(login), (ClientName("user", name), USERS[name]))
        return self.threads.begun > begun

    def test_for_an_hour(self) -> None:
        """The same credentials are recognized until the time is over, and no others are."""
        self.assertTrue(self.verified())
        self.assertFalse(self.verified())
        self.clock.advance(CACHE_SECONDS - 1)
        self.assertFalse(self.verified())
        self.clock.advance(1)
        self.assertTrue(self.verified())
        for name, password in (("alice", b"ab"), ("alicea", b"a"), ("alic", b"ea"), ("bob", b"a")):
            login = self.login(name, password)
            self.assertNoResult(login)
            self.threads.run()
            self.refused(login)

    def test_wrong_ones_are_not(self) -> None:
        """Each wrong password is computed."""
        for _ in range(2):
            login = self.login("alice", b"x")
            self.threads.run()
            self.refused(login)
        self.assertEqual(self.threads.begun, 2)

    def test_reload(self) -> None:
        """A reload empties it, so that a removed user is refused."""
        self.verified()
        self.logins.replace({"bob": BOB})
        login = self.login()
        self.threads.run()
        self.assertEqual(self.refused(login), "mqtt_login_refused")

    def test_bound(self) -> None:
        """At the limit the oldest is forgotten."""
        with patch.object(logins_module, "CACHED", 1):
            self.assertTrue(self.verified())
            self.assertFalse(self.verified())
            self.assertTrue(self.verified("bob", b"b"))
            self.assertFalse(self.verified("bob", b"b"))
            self.assertTrue(self.verified())

    def test_while_waiting(self) -> None:
        """Many logins with the same credentials at once are computed as often as there are threads, not more."""
        same = [self.login() for _ in range(THREADS + self.waiting)]
        self.threads.run(THREADS)
        for each in same:
            self.assertEqual(self.successResultOf(each).name.name, "alice")
        self.assertEqual((self.threads.begun, self.threads.work), (THREADS, []))


RULES = Rules(
    (
        AccessRule(NamePattern("user", "*"), ("d/%u/#",), ("d/%u/#", "c/%c")),
        AccessRule(NamePattern("user", "bob"), ("#",), ("#",)),
    )
)


class UserWire(Wire):
    """A client of a listener with passwords."""

    def __init__(self, broker: Broker, logins: PasswordLogins, version: Version = Version.V5) -> None:
        self._logins = logins
        super().__init__(broker, version)

    def protocol_of(self, broker: Broker) -> BrokerConnection:
        """Make the broker's end."""
        protocol = broker.factory(anonymous("users"), self._logins).buildProtocol(None)
        assert isinstance(protocol, BrokerConnection)
        return protocol


class ConnectionTests(LoginsCase):
    """Connections that log in."""

    def setUp(self) -> None:
        """Start a broker."""
        super().setUp()
        self.errors: list[SvcError] = []
        self.broker = self.make()

    def make(self, **more: Any) -> Broker:
        """Start a broker."""
        broker = Broker(
            self.clock, RULES, reporter=Refusals(self.errors), check=EvidenceCheck(logins=self.logins), **more
        )
        broker.startService()
        return broker

    def connect(
        self, name: str = "alice", password: bytes = b"a", version: Version = Version.V5, client_id: str = "c"
    ) -> UserWire:
        """Send CONNECT; nothing is answered before the password was verified."""
        wire = UserWire(self.broker, self.logins, version)
        properties = LASTING if version is Version.V5 else Properties()
        packet = Connect(client_id, version, False, username=name, password=password, properties=properties)
        verified = self.threads.begun
        wire.protocol.dataReceived(encode(packet, version, "client"))
        if self.threads.begun > verified:
            self.assertEqual(wire.transport.value(), b"")
        return wire

    def admitted(self, name: str = "alice", password: bytes = b"a", client_id: str = "c") -> UserWire:
        """Connect a client."""
        wire = self.connect(name, password, client_id=client_id)
        self.threads.run(len(self.threads.work))
        (connack,) = wire.receives()
        assert isinstance(connack, Connack)
        self.assertEqual(connack.code, 0)
        return wire

    def test_right_and_wrong(self) -> None:
        """CONNACK 0, or the code for bad user name or password of the version, and then the end."""
        for version, code in ((Version.V5, ReasonCode.BAD_USER_NAME_OR_PASSWORD), (Version.V311, 4)):
            wire = self.connect(version=version)
            self.threads.run(len(self.threads.work))
            (connack,) = wire.receives()
            self.assertEqual((connack.code, wire.ended), (0, False))
            wire = self.connect(password=b"x", version=version, client_id="d")
            self.threads.run()
            self.assertEqual((wire.receives(), wire.ended), ([Connack(code=code)], True))
        self.assertEqual([each.reason for each in self.errors], ["mqtt_login_refused"] * 2)
        self.assertEqual(self.broker.hub.statistics.refused, {"mqtt_login_refused": 2})
        self.assertNotIn("alice", str(self.errors[0]))

    def test_limit(self) -> None:
        """Beyond the limit of waiting logins the code is that of an unavailable server."""
        for number in range(THREADS + self.waiting):
            self.connect(password=b"%d" % number, client_id=str(number))
        for version, code in ((Version.V5, ReasonCode.QUOTA_EXCEEDED), (Version.V311, ReturnCode.SERVER_UNAVAILABLE)):
            wire = UserWire(self.broker, self.logins, version)
            found = wire.sends(Connect("late", version, username="alice", password=b"a"))
            self.assertEqual((found, wire.ended), ([Connack(code=code)], True))
        self.threads.run(THREADS + self.waiting)

    def test_packets_behind(self) -> None:
        """What a client sends along with CONNECT waits for CONNACK, and is processed in order."""
        wire = UserWire(self.broker, self.logins)
        packets = (Connect("c", username="alice", password=b"a"), Subscribe(1, [Subscription("d/alice/x")]), Pingreq())
        self.assertEqual(wire.sends(*packets), [])
        self.assertEqual(self.broker.hub.sessions, {})
        self.threads.run()
        connack, suback, pong = wire.receives()
        self.assertIsInstance(connack, Connack)
        self.assertEqual([suback, pong], [Suback(1, [0]), Pingresp()])

    def test_lost(self) -> None:
        """A client that goes while its password is verified gets no session, and those that wait are withdrawn."""
        wires = [self.connect(client_id=str(number)) for number in range(THREADS + 1)]
        for wire in wires:
            wire.protocol.connectionLost()
        self.threads.run(THREADS)
        self.assertEqual((self.broker.hub.sessions, self.threads.begun), ({}, THREADS))
        self.assertEqual(self.broker.open_connections, 0)

    def test_names(self) -> None:
        """The name is that of rules: %u is the user, %c the identifier, also one that the broker gave."""
        wire = self.admitted(client_id="own")
        codes = wire.sends(Subscribe(1, [Subscription(each) for each in ("d/alice/#", "d/bob/#", "c/own", "c/x", "#")]))
        self.assertEqual(codes, [Suback(1, [0, 0x87, 0, 0x87, 0x87])])
        (session,) = self.broker.hub.sessions.values()
        self.assertEqual(session.owner, "user alice")
        unnamed = self.admitted(client_id="")
        (name,) = set(self.broker.hub.sessions) - {"own"}
        self.assertEqual(unnamed.sends(Subscribe(1, [Subscription(f"c/{name}")])), [Suback(1, [0])])

    def test_names_of_stored_sessions(self) -> None:
        """Filters with the identifier and the name hold for sessions without a connection, and when resumed."""
        wire = self.admitted(client_id="own")
        wire.sends(Subscribe(1, [Subscription(each) for each in ("d/alice/#", "c/own")]))
        wire.protocol.connectionLost()
        self.broker.rules_changed()
        self.clock.pump([0] * 3)
        (session,) = self.broker.hub.sessions.values()
        self.assertEqual(list(session.subscriptions), ["d/alice/#", "c/own"])
        again = self.connect(client_id="own")
        self.threads.run(len(self.threads.work))
        (connack,) = again.receives()
        self.assertTrue(connack.session_present)

    def test_sessions_of_others(self) -> None:
        """A user neither resumes nor takes over the session of another user, or of a client without a name."""
        mine = self.admitted()
        other = self.connect("bob", b"b")
        self.threads.run()
        self.assertEqual(other.receives(), [Connack(code=ReasonCode.NOT_AUTHORIZED)])
        self.assertEqual([each.reason for each in self.errors], ["mqtt_session_owned"])
        self.assertEqual(mine.sends(Pingreq()), [Pingresp()])

    def test_limit_of_sessions(self) -> None:
        """Sessions of a user are limited as those of a SPIFFE ID."""
        self.broker = self.make(limits=HubLimits(sessions_of_identity=1))
        self.admitted()
        wire = self.connect(client_id="d")
        self.threads.run(len(self.threads.work))
        wire.receives()
        self.assertEqual([each.reason for each in self.errors], ["mqtt_identity_session_limit"])

    def test_shared_connections(self) -> None:
        """A user counts from its login on: one that has most connections gets no more, another one does."""
        factory = self.broker.factory(anonymous("users"), self.logins, 20)
        codes = list[int]()
        for number, name in enumerate(("alice",) * 20 + ("bob",)):
            wire = SharedWire(self.broker, factory)
            # A login that was verified before is answered at once.
            found = wire.sends(Connect(f"c{number}", username=name, password=name[:1].encode()))
            self.threads.run(len(self.threads.work))
            (connack,) = [*found, *wire.receives()]
            assert isinstance(connack, Connack)
            codes.append(connack.code)
        self.assertEqual(codes, [0] * 19 + [ReasonCode.QUOTA_EXCEEDED, 0])
        self.assertEqual([each.reason for each in self.errors], ["mqtt_connection_share"])

    def test_withdrawn_users(self) -> None:
        """Removed users and those with another password are disconnected; sessions of removed ones end."""
        alice, bob = self.admitted(), self.admitted("bob", b"b", "d")
        changed = {"bob": PasswordHash.of(b"new", CHEAP)}
        self.logins.replace(changed)
        self.broker.rules_changed()
        self.clock.pump([0] * 3)
        for wire in (alice, bob):
            self.assertEqual(wire.receives(), [Disconnect(ReasonCode.NOT_AUTHORIZED)])
            wire.protocol.connectionLost()
        self.assertEqual(self.broker.hub.statistics.refused, {"mqtt_user_withdrawn": 2})
        self.assertEqual(list(self.broker.hub.sessions), ["d"])
        again = self.connect("bob", b"new", client_id="d")
        self.threads.run()
        (connack,) = again.receives()
        self.assertTrue(connack.session_present)

    def test_reload_while_verified(self) -> None:
        """A login is decided on by what is in force at its end: rules that change meanwhile do not end it before."""
        wire = self.connect()
        self.broker.rules_changed()
        self.clock.pump([0] * 3)
        self.assertFalse(wire.ended)
        self.threads.run()
        self.assertIsInstance(wire.receives()[0], Connack)

    def test_stop(self) -> None:
        """A broker that stops closes connections whose password is verified, and admits none of them."""
        wire = self.connect()
        stopped = self.broker.stopService()
        self.assertTrue(wire.ended)
        wire.protocol.connectionLost()
        self.threads.run()
        self.clock.pump([0.1] * 2)
        self.successResultOf(stopped)
        self.assertEqual(self.broker.hub.sessions, {})

    def test_shown(self) -> None:
        """The principal has the name, and its text shows no hash."""
        self.admitted()
        (principal,) = self.broker.principals()
        self.assertEqual(principal.name, ClientName("user", "alice"))
        self.assertNotIn("PasswordHash", repr(principal))


class EvidenceTests(LoginsCase):
    """Whether clients are still accepted."""

    def test_kinds(self) -> None:
        """Users need the password file; others are not its business."""
        alice = Principal(None, name=ClientName("user", "alice"))
        for check in (EvidenceCheck(logins=self.logins), EvidenceCheck()):
            for other in (Principal(None), Principal(None, name=ClientName("certificate", "carol"), listener="l")):
                check(other)
        EvidenceCheck(logins=self.logins)(alice)
        self.assertRaises(BrokerError, EvidenceCheck(), alice)
