"""Listeners open, are replaced by a reload, drain and close."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from svc.identity import ExactID
from svc.pages.listening import ListenFailed
from svc.policyfiles.settings import Policies
from svc.proxy.config import ProxySettings
from svc.proxy.http.client import ClientConnection
from svc.proxy.listeners import ListenerGroup, ProxyEnding
from svc.proxy.reload import plan_reload
from svc.telemetry.events.proxy import ProxyEvent
from svc.testing.ca import TestAuthority
from tests.proxy.parts import LogTestCase, Ports, RecordingListenerFactory, settings_of
from tests.proxy.rig import BASE, CALLER

TWO = settings_of(("web", 8443), ("pay", 8444))
GET = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"


class ListenersTestCase(LogTestCase):
    """Base class: two listeners on simulated ports."""

    def setUp(self) -> None:
        """Create the listener set; nothing is open yet."""
        super().setUp()
        self.ports = Ports()
        self.clock = Clock()
        self.made = RecordingListenerFactory(self.ports, self.clock)
        self.group = ListenerGroup(self.made, self.made.reauthorization)

    def open(self, settings: ProxySettings = TWO) -> Deferred[None]:
        """Open all listeners of a configuration."""
        return Deferred.fromCoroutine(self.group.open(settings, settings.listeners))

    def apply(self, new: ProxySettings, old: ProxySettings = TWO) -> Deferred[None]:
        """Reload from one configuration to another."""
        return Deferred.fromCoroutine(self.group.apply(plan_reload(old, new), old, new))

    def stop(self) -> Deferred[None]:
        """Stop accepting connections."""
        return Deferred.fromCoroutine(self.group.stop_accepting())

    def lose(self, client: ClientConnection) -> None:
        """A client disconnects."""
        client.connectionLost(Failure(ConnectionDone()))

    def close_ports(self) -> None:
        """Complete the closing of all ports, one after the other."""
        for closed in self.ports.closing or ():
            closed.callback(None)

    @property
    def open_ports(self) -> set[str]:
        """Return the addresses that are open."""
        return {address for address, count in self.ports.taken.items() if count}


class ChangeTests(ListenersTestCase):
    """Other policies and other credentials."""

    def test_policies_leave_credentials(self) -> None:
        """Other policies are decided by, and are no change of credentials; either decides on open connections again."""
        self.successResultOf(self.open())
        changed: list[str] = []
        for listener in self.made.listeners.values():
            self.patch(listener, "credentials_changed", lambda name=listener.name: changed.append(name))
        policies = Policies.admitting(ExactID(CALLER.spiffe_id))
        begun = self.made.reauthorization.changes
        self.group.take_policies(policies)
        self.assertEqual([each.context.policies for each in self.made.listeners.values()], [policies] * 2)
        self.assertEqual((changed, self.made.reauthorization.changes - begun), ([], 1))
        self.group.take_credentials()
        self.assertEqual((changed, self.made.reauthorization.changes - begun), (["web", "pay"], 2))


class OpenTests(ListenersTestCase):
    """Opening the listeners."""

    def test_in_order(self) -> None:
        """Listeners open in the order of the file; each is logged with its address and can be found by name."""
        self.successResultOf(self.open())
        self.assertEqual(self.ports.journal, ["open web", "open pay"])
        self.assertEqual(
            [each.attributes for each in self.of(ProxyEvent.LISTENER_OPENED)],
            [
                {"listener": "web", "address": "127.0.0.1:8443"},
                {"listener": "pay", "address": "127.0.0.1:8444"},
            ],
        )
        self.assertIs(self.group.named("web"), self.made.listeners["web"])
        self.assertEqual(self.group.named("pay").name, "pay")
        self.assertRaises(KeyError, self.group.named, "db")

    def test_taken(self) -> None:
        """A port that is taken is reported with listener name, address and the error text of the system."""
        self.ports.taken["127.0.0.1:8444"] = 1
        error = self.failureResultOf(self.open(), ListenFailed).value
        self.assertEqual(str(error), "the listener pay cannot be opened at 127.0.0.1:8444: Address already in use")
        self.assertEqual(error.reason, "listen_failed")
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8443")
        self.assertRaises(KeyError, self.group.named, "pay")

    def test_unexpected(self) -> None:
        """An unexpected error is passed on unchanged."""
        self.ports.broken["127.0.0.1:8443"] = RuntimeError("no")
        self.failureResultOf(self.open(), RuntimeError)
        self.assertEqual(self.open_ports, set())

    def test_not_after_the_end(self) -> None:
        """After the stop no listener is created or opened."""
        self.successResultOf(self.stop())
        self.failureResultOf(self.open(), ProxyEnding)
        self.assertEqual((self.ports.journal, self.made.listeners), ([], {}))

    def test_end_while_one_opens(self) -> None:
        """A port that opens after the stop was requested is closed again, and no further port is opened."""
        self.ports.opening = []
        opening = self.open()
        self.successResultOf(self.stop())
        self.ports.opening.pop().callback(None)
        self.failureResultOf(opening, ProxyEnding)
        self.assertEqual(self.ports.journal, ["open web", "close web"])
        self.assertEqual(self.group.open_connections, 0)


class RunningTests(ListenersTestCase):
    """Running listeners and their stop."""

    def test_counts_all(self) -> None:
        """The connection count includes listeners that accept and listeners that drain."""
        self.successResultOf(self.open())
        client, _wire = self.made.connect("web")
        self.made.connect("pay")
        self.assertEqual(self.group.open_connections, 2)
        self.successResultOf(self.apply(settings_of(("pay", 8444))))
        self.assertEqual(self.group.open_connections, 2)
        self.lose(client)
        self.assertEqual(self.group.open_connections, 1)

    def test_sweep_checks_time_limits(self) -> None:
        """The sweep closes idle connections of all listeners."""
        self.successResultOf(self.open())
        wires = [self.made.connect(name)[1] for name in ("web", "pay")]
        self.group.sweep(59.0, BASE)
        self.assertEqual([wire.disconnecting for wire in wires], [False, False])
        self.group.sweep(61.0, BASE)
        self.assertEqual([wire.disconnecting for wire in wires], [True, True])

    def test_leaving_is_forgotten(self) -> None:
        """A draining listener is swept until its last connection is gone; then its pool is closed."""
        self.successResultOf(self.open())
        client, _wire = self.made.connect("web")
        client.dataReceived(GET)
        rig = self.made.rigs["web"]
        self.successResultOf(self.apply(settings_of(("pay", 8444))))
        self.group.sweep(1.0, BASE)
        self.assertFalse(rig.upstream()[1].aborted)
        rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(rig.pool.idle_count, 1)
        self.lose(client)
        self.group.sweep(1.5, BASE)
        self.assertEqual((rig.pool.idle_count, self.group._leaving), (0, []))
        self.assertTrue(rig.upstream()[1].disconnecting)

    def test_reauthorize_all(self) -> None:
        """Peers of accepting and of draining listeners are reauthorized."""
        self.successResultOf(self.open())
        wires = [self.made.connect(name)[1] for name in ("web", "pay")]
        self.successResultOf(self.apply(settings_of(("pay", 8444))))
        self.group.reauthorize()
        self.clock.advance(0)
        self.assertEqual([wire.disconnecting for wire in wires], [False, False])
        for rig in self.made.rigs.values():
            rig.rotation.bundles = TestAuthority("prod.example", now=BASE).bundles()
        self.group.reauthorize()
        self.clock.advance(0)
        self.assertEqual([wire.disconnecting for wire in wires], [True, True])

    def test_stop_accepting(self) -> None:
        """All ports close; open connections continue and are closed after their next response."""
        self.successResultOf(self.open())
        client, wire = self.made.connect("web")
        self.successResultOf(self.stop())
        self.assertEqual(self.ports.journal, ["open web", "open pay", "close web", "close pay"])
        self.assertEqual(
            [each.attributes for each in self.of(ProxyEvent.LISTENER_CLOSED)],
            [{"listener": "web"}, {"listener": "pay"}],
        )
        self.assertFalse(wire.disconnecting)
        self.assertTrue(client.context.draining)
        self.successResultOf(self.stop())
        self.assertEqual(len(self.ports.journal), 4)

    def test_waits_for_the_port(self) -> None:
        """The Deferred of the stop fires when all ports are closed."""
        self.successResultOf(self.open())
        self.ports.closing = []
        stopping = self.stop()
        self.ports.closing[0].callback(None)
        self.assertNoResult(stopping)
        self.ports.closing[1].callback(None)
        self.successResultOf(stopping)

    def test_close(self) -> None:
        """Closing closes idle connections in order, aborts running exchanges and closes upstream connections."""
        self.successResultOf(self.open())
        _idle, idle_wire = self.made.connect("web")
        busy, busy_wire = self.made.connect("web")
        busy.dataReceived(GET)
        self.successResultOf(self.stop())
        self.group.close()
        self.assertTrue(idle_wire.disconnecting and not idle_wire.aborted)
        self.assertTrue(busy_wire.aborted)
        self.assertTrue(self.made.rigs["web"].upstream()[1].aborted)


class ApplyTests(ListenersTestCase):
    """Reloading the configuration."""

    def setUp(self) -> None:
        """Open two listeners."""
        super().setUp()
        self.successResultOf(self.open())
        self.first = dict(self.made.listeners)
        self.ports.journal.clear()
        self.logged.clear()

    def test_kept(self) -> None:
        """A listener that did not change keeps its port and its connections."""
        client, wire = self.made.connect("web")
        self.successResultOf(self.apply(settings_of(("web", 8443), ("db", 8445))))
        self.assertEqual(self.ports.journal, ["close pay", "open db"])
        self.assertIs(self.group.named("web"), self.first["web"])
        self.assertFalse(client.context.draining or wire.disconnecting)
        self.assertRaises(KeyError, self.group.named, "pay")

    def test_same_port(self) -> None:
        """A changed listener closes its port before its replacement opens it; old connections drain."""
        client, wire = self.made.connect("web")
        new = settings_of(("web", 8443), ("pay", 8444))
        changed = tuple(each.model_copy(update={"keyExchange": "require"}) for each in new.listeners)
        new = new.model_copy(update={"listeners": changed})
        self.successResultOf(self.apply(new))
        self.assertEqual(self.ports.journal, ["close web", "close pay", "open web", "open pay"])
        self.assertIsNot(self.group.named("web"), self.first["web"])
        self.assertEqual(self.made.wholes[-2:], [new, new])
        self.assertTrue(client.context.draining)
        self.assertFalse(wire.disconnecting)

    def test_listeners_swap_ports(self) -> None:
        """Two listeners can swap their ports."""
        self.successResultOf(self.apply(settings_of(("pay", 8443), ("web", 8444))))
        self.assertEqual(self.group.named("pay").address_text, "127.0.0.1:8443")
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8444")

    def test_taken(self) -> None:
        """If a port is taken, the reload is rolled back: old listeners listen again, new ones do not."""
        self.ports.taken["127.0.0.1:9999"] = 1
        failed = self.apply(settings_of(("pay", 8444), ("db", 8445), ("bad", 9999)))
        self.failureResultOf(failed, ListenFailed)
        self.assertEqual(self.ports.journal, ["close web", "open db", "close db", "open web"])
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8443")
        self.assertIs(self.group.named("pay"), self.first["pay"])
        self.assertRaises(KeyError, self.group.named, "db")
        self.assertIs(self.made.wholes[-1], TWO)

    def test_listener_that_cannot_be_made(self) -> None:
        """An unexpected error rolls back too."""
        self.made.broken.add("db")
        self.failureResultOf(self.apply(settings_of(("db", 8445))), RuntimeError)
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8443")
        self.assertEqual(self.group.named("pay").address_text, "127.0.0.1:8444")

    def test_old_port_is_taken(self) -> None:
        """An old listener that cannot reopen is logged; the others reopen, and the next reload tries it again."""
        self.made.broken.add("db")
        self.ports.closing = []
        failed = self.apply(settings_of(("db", 8445)))
        self.ports.taken["127.0.0.1:8443"] = 1
        self.close_ports()
        self.failureResultOf(failed, RuntimeError)
        record = self.only(ProxyEvent.LISTENER_FAILED)
        self.assertEqual(record.fields["detail_reason"], "listen_failed")
        self.assertIn("the listener web cannot be opened at 127.0.0.1:8443", record.fields["detail"])
        self.assertEqual(self.group.named("pay").address_text, "127.0.0.1:8444")
        self.assertRaises(KeyError, self.group.named, "web")
        self.ports.taken["127.0.0.1:8443"] = 0
        self.successResultOf(self.apply(TWO))
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8443")

    def test_absent_listener_can_be_removed(self) -> None:
        """A listener that could not reopen may be absent from the next configuration."""
        self.ports.broken["127.0.0.1:8443"] = RuntimeError("gone")
        self.ports.broken["127.0.0.1:9999"] = RuntimeError("gone")
        self.failureResultOf(self.apply(settings_of(("bad", 9999))), RuntimeError)
        self.assertEqual(self.only(ProxyEvent.LISTENER_FAILED).attributes, {"listener": "web"})
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(self.group.named("pay").address_text, "127.0.0.1:8444")
        self.successResultOf(self.apply(settings_of(("pay", 8444))))
        self.assertEqual(self.open_ports, {"127.0.0.1:8444"})

    def test_stop_during_a_reload(self) -> None:
        """A reload that is interrupted by the stop opens neither new nor old listeners."""
        self.ports.closing = []
        reload = self.apply(settings_of(("db", 8445)))
        stopping = self.stop()
        self.close_ports()
        self.failureResultOf(reload, ProxyEnding)
        self.successResultOf(stopping)
        self.assertEqual(self.ports.journal, ["close web", "close pay"])
        self.assertEqual(self.open_ports, set())
