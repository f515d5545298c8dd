"""Rules of access that change while the broker runs: what a reload may change, and what it does to who is there."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AccessRule, AllowAll, ListenerGuard, Principal, Rules
from svc.broker.broker import Broker
from svc.broker.config import BrokerSettings, changed_rules
from svc.broker.hub import BATCH
from svc.settings import parse
from svc.wire.mqtt import (
    Connack,
    Connect,
    Disconnect,
    Properties,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from tests.broker.keeping import KeptCase
from tests.broker.rig import ANYTHING, Rig
from tests.broker.test_admission import DEVICE, LASTING, OTHER, principal, rules
from tests.broker.test_connection import ConnectionCase, SlowJournal, Wire
from tests.broker.test_resuming import Changing
from tests.refusals import assert_refused

NOBODY = Rules(())
ONLY_A = Rules((AccessRule(None, ("a/#",), ("a/#",)),))
FILE = """
limits: {queued: 5}
listeners:
  - {name: local, listen: '127.0.0.1:1883'}
  - {name: other, listen: '127.0.0.1:1884', acl: [{who: anonymous, publish: [a]}]}
"""


class PlanTests(SynchronousTestCase):
    """Which changes of the file a running broker takes over."""

    def plan(self, old: str, new: str) -> tuple[str, ...]:
        """Compare the file with one in which a text is another one."""
        self.assertIn(old, FILE)
        return changed_rules(parse(FILE, BrokerSettings), parse(FILE.replace(old, new), BrokerSettings))

    def test_rules(self) -> None:
        """Rules may change, come where there were none, and go; the listeners are named."""
        self.assertEqual((), self.plan("queued: 5", "queued: 5"))
        self.assertEqual(("other",), self.plan("publish: [a]", "publish: [b]"))
        self.assertEqual(("other",), self.plan("[{who: anonymous, publish: [a]}]", "[]"))
        self.assertEqual(("local",), self.plan("'127.0.0.1:1883'}", "'127.0.0.1:1883', acl: []}"))

    def test_restart(self) -> None:
        """Any other change is refused and named by its whole key, all of them at once."""
        for old, new, keys in (
            ("queued: 5", "queued: 6", "limits.queued"),
            ("127.0.0.1:1884", "127.0.0.1:1885", "listeners[other].listen"),
            ("name: local", "name: renamed", "listeners[local], listeners[renamed]"),
            ("limits: {queued: 5}", "adminAddr: '0'", "adminAddr, limits.queued"),
            ("limits: {queued: 5}", "limits: {queued: 5}\npersistence: {path: b.db}", "persistence"),
        ):
            error = assert_refused(self, "restart_needed", self.plan, old, new)
            self.assertEqual(f"the new configuration changes what needs a restart: {keys}", str(error))

    def test_order(self) -> None:
        """The order of listeners is no change."""
        lines = FILE.splitlines()
        turned = "\n".join([*lines[:3], lines[4], lines[3]])
        self.assertEqual((), changed_rules(parse(FILE, BrokerSettings), parse(turned, BrokerSettings)))


class GuardTests(SynchronousTestCase):
    """The rules of several listeners."""

    def test_replaced(self) -> None:
        """All questions are answered by the new rules at once, for clients and for owners of sessions."""
        guard = ListenerGuard({"wide": rules(DEVICE), "narrow": NOBODY}, {"wide", "narrow"})
        owner, client = principal(DEVICE), principal(DEVICE, "wide")
        for replaced, expected in (({"wide": NOBODY, "narrow": NOBODY}, False), ({"wide": rules(DEVICE)}, True)):
            guard.replace({"narrow": NOBODY, **replaced})
            self.assertEqual(expected, guard.may_connect(client))
            self.assertEqual(expected, guard.may_publish(client, "t"))
            self.assertEqual([expected] * 2, [guard.may_subscribe(each, "t") for each in (client, owner)])
        self.assertFalse(guard.may_subscribe(principal(None), "t"))


class StoredTests(SynchronousTestCase):
    """Sessions without a connection."""

    def setUp(self) -> None:
        """All clients may do everything, at first."""
        self.guard = Changing(rules(DEVICE, OTHER, None))
        self.rig = Rig(self.guard)
        self.hub = self.rig.hub

    def away(self, name: str, who: str | None, *filters: str, **more: Any) -> None:
        """A client that subscribed and went."""
        client = self.rig.connect(name, who=who, **{**LASTING, **more})
        client.take()
        client.subscribes(*(Subscription(each, 1) for each in filters))
        client.loses()

    def change(self, new: Any) -> None:
        """Other rules are in force."""
        self.guard.rules = new
        self.hub.rules_changed()
        self.rig.take_turns()

    def test_owner_without_a_rule(self) -> None:
        """Its session ends with its will published; others stay."""
        watcher = self.rig.connect("watcher")
        watcher.subscribes("will")
        late = Properties(will_delay=100)
        self.away("gone", DEVICE, "t", will=Will("will", b"gone", properties=late))
        self.away("stays", OTHER, "t")
        self.change(rules(OTHER, None))
        self.assertEqual({"watcher", "stays"}, set(self.hub.sessions))
        self.assertEqual([b"gone"], [each.payload for each in watcher.messages])
        self.assertEqual(1, self.hub.statistics.revoked)

    def test_subscriptions(self) -> None:
        """What is not allowed any more ends, with what waits because of it; what another one wants too stays."""
        self.guard.rules = ANYTHING
        self.away("c", None, "a/1", "+/1", "b/#", "$share/g/b/#")
        for topic in ("a/1", "b/1", "b/2"):
            self.rig.connect("p").publishes(topic, topic.encode(), 1)
        self.change(ONLY_A)
        self.assertEqual(["a/1"], list(self.hub.sessions["c"].subscriptions))
        self.assertEqual(1, len(self.hub.subscriptions))
        self.assertEqual(3, self.hub.statistics.denied["subscribe"])
        self.guard.rules = ANYTHING
        self.rig.connect("p").publishes("b/3", b"b/3", 1)
        back = self.rig.connect("c", **LASTING)
        self.assertEqual([b"a/1"], [each.payload for each in back.messages])
        self.assertEqual(4, self.hub.statistics.drops["not_authorized"])

    def test_any_listener(self) -> None:
        """An identity keeps what the rules of any listener allow where it could resume its session."""
        guard = ListenerGuard({"wide": rules(DEVICE), "narrow": rules(DEVICE)}, {"wide", "narrow"})
        self.guard.rules = guard
        for name in ("wide", "narrow"):
            client = self.rig.connect(name, who=DEVICE, listener=name, **LASTING)
            client.take()
            client.subscribes(Subscription("t", 1))
            client.loses()
        guard.replace({"wide": rules(DEVICE), "narrow": NOBODY})
        self.hub.rules_changed()
        self.assertEqual(2, len(self.hub.subscriptions))
        guard.replace({"wide": NOBODY, "narrow": NOBODY})
        self.hub.rules_changed()
        self.assertEqual({}, self.hub.sessions)

    def test_in_turns(self) -> None:
        """Many sessions are reauthorized in batches, and changes between two batches do no harm."""
        count = BATCH * 2 + 1
        for number in range(count):
            self.away(str(number), DEVICE, "t")
        self.guard.rules = rules(OTHER)
        self.hub.rules_changed()
        self.assertEqual(count - BATCH, len(self.hub.sessions))
        self.hub.end_session(self.hub.sessions[str(count - 1)])
        self.rig.take_turns()
        self.assertEqual({}, self.hub.sessions)
        self.assertEqual(count - 1, self.hub.statistics.revoked)


class KeptTests(KeptCase):
    """The same over the database."""

    def test_rows_are_gone(self) -> None:
        """Ended subscriptions and dropped messages are not there at the next start."""
        client = self.persistent("c", "a/1")
        client.subscribes(Subscription("b/1", 1))
        client.loses()
        for topic in ("a/1", "b/1"):
            self.rig.connect("p").publishes(topic, b"m", 1)
        self.kept.settle()
        tables = ("session", "subscription", "delivery")
        self.assertEqual([1, 2, 2], [self.kept.rows(each) for each in tables])
        self.rig.hub.guard = ONLY_A  # type: ignore[misc]
        self.rig.hub.rules_changed()
        self.kept.settle()
        self.assertEqual([1, 1, 1], [self.kept.rows(each) for each in tables])


class ConnectedTests(ConnectionCase):
    """Clients that are connected."""

    def setUp(self) -> None:
        """A broker whose rules the test exchanges."""
        self.guard = Changing()
        super().setUp()

    def make(self, **more: Any) -> Broker:
        """Make and start a broker with these rules."""
        broker = Broker(self.clock, self.guard, wall=lambda: 1_800_000_000 + self.clock.seconds(), **more)
        broker.startService()
        return broker

    def change(self, new: Any) -> None:
        """Other rules are in force."""
        self.guard.rules = new
        self.broker.rules_changed()
        self.clock.advance(0)

    def test_not_named_by_a_rule(self) -> None:
        """A client that no rule names is closed with 0x87, an older one without a word; the session ends."""
        clients = [Wire(self.broker), Wire(self.broker, Version.V311)]
        clients[0].sends(Connect("new", **LASTING))
        clients[1].sends(Connect("old", Version.V311, clean_start=False))
        waiting = Wire(self.broker)
        self.change(NOBODY)
        self.assertEqual([[Disconnect(ReasonCode.NOT_AUTHORIZED)], []], [each.receives() for each in clients])
        self.assertEqual([True, True, False], [each.ended for each in (*clients, waiting)])
        self.assertEqual({}, self.broker.hub.sessions)
        self.assertEqual({"mqtt_no_rule": 2}, self.broker.hub.statistics.refused)
        self.assertEqual([Connack(code=ReasonCode.NOT_AUTHORIZED)], waiting.sends(Connect("late")))

    def test_subscriptions(self) -> None:
        """A client that a rule still names stays; subscriptions that are no longer allowed end."""
        client = Wire(self.broker)
        client.sends(Connect("c"), Subscribe(1, [Subscription("a/1", 0), Subscription("b/1", 0)]))
        self.change(ONLY_A)
        for topic in ("a/1", "b/1"):
            self.broker.publish(topic, b"m")
        self.assertEqual(["a/1"], [each.topic for each in client.receives() if isinstance(each, Publish)])
        self.assertFalse(client.ended)
        self.assertEqual(1, self.broker.hub.statistics.denied["subscribe"])

    def test_publishing(self) -> None:
        """What a client may publish is authorized again, although it was cached."""
        client = Wire(self.broker)
        client.sends(Connect("c"), Publish("b", b"m"))
        self.change(ONLY_A)
        client.sends(Publish("b", b"m"))
        self.assertEqual(1, self.broker.hub.statistics.denied["publish"])
        self.change(AllowAll())
        client.sends(Publish("b", b"m"))
        self.assertEqual(1, self.broker.hub.statistics.denied["publish"])

    def test_packets_before_the_walk(self) -> None:
        """A client that the walk has not reached is decided on before its next packet is processed."""
        client = Wire(self.broker)
        client.sends(Connect("c"), Publish("b", b"m"), Subscribe(1, [Subscription("b", 0)]))
        client.receives()
        self.guard.rules = ONLY_A
        self.broker.rules_changed()
        client.sends(Publish("b", b"m"))
        denied = self.broker.hub.statistics.denied
        self.assertEqual((1, 1), (denied["publish"], denied["subscribe"]))
        self.clock.advance(0)
        self.assertEqual(1, denied["subscribe"])

    def test_packets_of_a_refused_client(self) -> None:
        """The first octets of a client that no rule names any more end its connection, and nothing is published."""
        client, watcher = Wire(self.broker), Wire(self.broker)
        client.sends(Connect("c"))
        watcher.sends(Connect("w"), Subscribe(1, [Subscription("#", 0)]))
        watcher.receives()
        self.guard.rules = NOBODY
        self.broker.rules_changed()
        self.assertEqual([Disconnect(ReasonCode.NOT_AUTHORIZED)], client.sends(Publish("a/1", b"m")))
        self.assertEqual([], watcher.receives())

    def test_connection_that_is_lost_before_the_walk(self) -> None:
        """Its session is decided on as a stored one."""
        client = Wire(self.broker)
        client.sends(Connect("c", **LASTING), Subscribe(1, [Subscription("a/1", 0), Subscription("b/1", 0)]))
        self.guard.rules = ONLY_A
        self.broker.rules_changed()
        client.protocol.connectionLost()
        self.clock.advance(0)
        self.assertEqual(["a/1"], list(self.broker.hub.sessions["c"].subscriptions))

    def test_between_connect_and_connack(self) -> None:
        """A client whose CONNACK waits for the disk is authorized by the rules in force when it is sent."""
        journal = SlowJournal()
        self.broker = self.make(journal=journal)
        first = Wire(self.broker)
        first.sends(Connect("c", **LASTING))
        journal.commit()
        first.sends(Subscribe(1, [Subscription("a/1", 1), Subscription("b/1", 1)]))
        journal.commit()
        self.assertTrue(any(isinstance(each, Suback) for each in first.receives()))
        for new, kept, answer in ((ONLY_A, ["a/1"], 0), (NOBODY, [], ReasonCode.NOT_AUTHORIZED)):
            waiting = Wire(self.broker)
            waiting.sends(Connect("c", **LASTING))
            self.change(new)
            journal.commit()
            codes = [each.code for each in waiting.receives() if isinstance(each, Connack)]
            self.assertEqual([answer], codes)
            session = self.broker.hub.sessions.get("c")
            self.assertEqual(kept, [] if session is None else list(session.subscriptions))


def guard_check(guard: ListenerGuard) -> bool:
    """Let the type checker see that it is a guard."""
    return guard.may_connect(Principal(None))
