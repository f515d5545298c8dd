"""Listeners that open, leave, come back and end."""

from __future__ import annotations

from datetime import timedelta

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from svc.process.listening import ListenFailed
from svc.proxy.config import ProxySettings
from svc.proxy.http.client import ClientConnection
from svc.proxy.listeners import ListenerGroup, ProxyEnding
from svc.proxy.reload import plan_reload
from svc.telemetry.events import Event
from svc.testing.ca import TestAuthority
from tests.proxy.parts import LogTestCase, Made, Ports, settings_of
from tests.proxy.rig import AUTHORITY, BASE

TWO = settings_of(("web", 8443), ("pay", 8444))
GET = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"


class ListenersTestCase(LogTestCase):
    """What these tests share."""

    def setUp(self) -> None:
        """No listener yet."""
        super().setUp()
        self.ports = Ports()
        self.made = Made(self.ports)
        self.group = ListenerGroup(self.made)

    def open(self, settings: ProxySettings = TWO) -> Deferred[None]:
        """Open all of a configuration."""
        return Deferred.fromCoroutine(self.group.open(settings, settings.listeners))

    def apply(self, new: ProxySettings, old: ProxySettings = TWO) -> Deferred[None]:
        """Go from one configuration to another."""
        return Deferred.fromCoroutine(self.group.apply(plan_reload(old, new), old, new))

    def stop(self) -> Deferred[None]:
        """Stop accepting."""
        return Deferred.fromCoroutine(self.group.stop_accepting())

    def lose(self, client: ClientConnection) -> None:
        """A client disconnects."""
        client.connectionLost(Failure(ConnectionDone()))

    def close_ports(self) -> None:
        """Let all ports close, one after the other, and what waits for each go on."""
        for closed in self.ports.closing or ():
            closed.callback(None)

    @property
    def open_ports(self) -> set[str]:
        """Addresses that are open."""
        return {address for address, count in self.ports.taken.items() if count}


class OpenTests(ListenersTestCase):
    """Opening."""

    def test_in_order(self) -> None:
        """Listeners open in the order of the file, each is told with its address and can be found by name."""
        self.successResultOf(self.open())
        self.assertEqual(self.ports.journal, ["open web", "open pay"])
        self.assertEqual(
            [each.attributes for each in self.of(Event.LISTENER_OPENED)],
            [
                {"listener": "web", "address": "127.0.0.1:8443"},
                {"listener": "pay", "address": "127.0.0.1:8444"},
            ],
        )
        self.assertIs(self.group.named("web"), self.made.listeners["web"])
        self.assertEqual(self.group.named("pay").name, "pay")
        self.assertRaises(KeyError, self.group.named, "db")

    def test_taken(self) -> None:
        """A port that is taken is told with name, address and the system's words."""
        self.ports.taken["127.0.0.1:8444"] = 1
        error = self.failureResultOf(self.open(), ListenFailed).value
        self.assertEqual(str(error), "the listener pay cannot be opened at 127.0.0.1:8444: Address already in use")
        self.assertEqual(error.reason, "listen_failed")
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8443")
        self.assertRaises(KeyError, self.group.named, "pay")

    def test_unexpected(self) -> None:
        """Another error comes as it is."""
        self.ports.broken["127.0.0.1:8443"] = RuntimeError("no")
        self.failureResultOf(self.open(), RuntimeError)
        self.assertEqual(self.open_ports, set())

    def test_not_after_the_end(self) -> None:
        """After the end no listener is made or opened."""
        self.successResultOf(self.stop())
        self.failureResultOf(self.open(), ProxyEnding)
        self.assertEqual((self.ports.journal, self.made.listeners), ([], {}))

    def test_end_while_one_opens(self) -> None:
        """A port that opens after the end was asked for is closed again, and no other follows."""
        self.ports.opening = []
        opening = self.open()
        self.successResultOf(self.stop())
        self.ports.opening.pop().callback(None)
        self.failureResultOf(opening, ProxyEnding)
        self.assertEqual(self.ports.journal, ["open web", "close web"])
        self.assertEqual(self.group.open_connections, 0)


class LifeTests(ListenersTestCase):
    """While they run, and the end."""

    def test_counts_all(self) -> None:
        """Connections of listeners that accept and of those that leave are counted."""
        self.successResultOf(self.open())
        client, _wire = self.made.connect("web")
        self.made.connect("pay")
        self.assertEqual(self.group.open_connections, 2)
        self.successResultOf(self.apply(settings_of(("pay", 8444))))
        self.assertEqual(self.group.open_connections, 2)
        self.lose(client)
        self.assertEqual(self.group.open_connections, 1)

    def test_times_are_judged(self) -> None:
        """An idle connection of any listener is closed by the sweep."""
        self.successResultOf(self.open())
        wires = [self.made.connect(name)[1] for name in ("web", "pay")]
        self.group.sweep(59.0, BASE)
        self.assertEqual([wire.disconnecting for wire in wires], [False, False])
        self.group.sweep(61.0, BASE)
        self.assertEqual([wire.disconnecting for wire in wires], [True, True])

    def test_leaving_is_forgotten(self) -> None:
        """A listener that leaves is swept until its last connection is gone, then its pool is closed."""
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
        """Peers of listeners that accept and of those that drain are reauthorized."""
        self.successResultOf(self.open())
        wires = [self.made.connect(name)[1] for name in ("web", "pay")]
        self.successResultOf(self.apply(settings_of(("pay", 8444))))
        self.group.reauthorize(AUTHORITY.bundles(), BASE)
        self.assertEqual([wire.disconnecting for wire in wires], [False, False])
        self.group.reauthorize(TestAuthority("prod.example", now=BASE).bundles(), BASE + timedelta(seconds=1))
        self.assertEqual([wire.disconnecting for wire in wires], [True, True])

    def test_stop_accepting(self) -> None:
        """All ports close; open connections go on and are asked to end with their next response."""
        self.successResultOf(self.open())
        client, wire = self.made.connect("web")
        self.successResultOf(self.stop())
        self.assertEqual(self.ports.journal, ["open web", "open pay", "close web", "close pay"])
        self.assertEqual(
            [each.attributes for each in self.of(Event.LISTENER_CLOSED)], [{"listener": "web"}, {"listener": "pay"}]
        )
        self.assertFalse(wire.disconnecting)
        self.assertTrue(client.context.draining)
        self.successResultOf(self.stop())
        self.assertEqual(len(self.ports.journal), 4)

    def test_waits_for_the_port(self) -> None:
        """Stopping is over when the ports are closed."""
        self.successResultOf(self.open())
        self.ports.closing = []
        stopping = self.stop()
        self.ports.closing[0].callback(None)
        self.assertNoResult(stopping)
        self.ports.closing[1].callback(None)
        self.successResultOf(stopping)

    def test_close(self) -> None:
        """What is still open is cut: idle connections in order, exchanges by breaking off, upstreams too."""
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
    """A reload."""

    def setUp(self) -> None:
        """Two listeners run."""
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
        """A listener that changed closes its port before the new one opens it; old connections drain."""
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

    def test_names_change_places(self) -> None:
        """Two listeners that swap their ports can do so."""
        self.successResultOf(self.apply(settings_of(("pay", 8443), ("web", 8444))))
        self.assertEqual(self.group.named("pay").address_text, "127.0.0.1:8443")
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8444")

    def test_taken(self) -> None:
        """Where a port is taken everything is as it was: old listeners listen again, new ones do not."""
        self.ports.taken["127.0.0.1:9999"] = 1
        failed = self.apply(settings_of(("pay", 8444), ("db", 8445), ("bad", 9999)))
        self.failureResultOf(failed, ListenFailed)
        self.assertEqual(self.ports.journal, ["close web", "open db", "close db", "open web"])
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8443")
        self.assertIs(self.group.named("pay"), self.first["pay"])
        self.assertRaises(KeyError, self.group.named, "db")
        self.assertIs(self.made.wholes[-1], TWO)

    def test_listener_that_cannot_be_made(self) -> None:
        """An unexpected error restores what ran too."""
        self.made.broken.add("db")
        self.failureResultOf(self.apply(settings_of(("db", 8445))), RuntimeError)
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8443")
        self.assertEqual(self.group.named("pay").address_text, "127.0.0.1:8444")

    def test_old_port_was_taken_meanwhile(self) -> None:
        """An old listener that cannot come back is told; the others do, and the next reload tries again."""
        self.made.broken.add("db")
        self.ports.closing = []
        failed = self.apply(settings_of(("db", 8445)))
        self.ports.taken["127.0.0.1:8443"] = 1
        self.close_ports()
        self.failureResultOf(failed, RuntimeError)
        told = self.only(Event.LISTENER_FAILED)
        self.assertEqual(told.fields["detail_reason"], "listen_failed")
        self.assertIn("the listener web cannot be opened at 127.0.0.1:8443", told.fields["detail"])
        self.assertEqual(self.group.named("pay").address_text, "127.0.0.1:8444")
        self.assertRaises(KeyError, self.group.named, "web")
        self.ports.taken["127.0.0.1:8443"] = 0
        self.successResultOf(self.apply(TWO))
        self.assertEqual(self.group.named("web").address_text, "127.0.0.1:8443")

    def test_absent_listener_can_be_removed(self) -> None:
        """A listener that could not come back may be left out of the next configuration."""
        self.ports.broken["127.0.0.1:8443"] = RuntimeError("gone")
        self.ports.broken["127.0.0.1:9999"] = RuntimeError("gone")
        self.failureResultOf(self.apply(settings_of(("bad", 9999))), RuntimeError)
        self.assertEqual(self.only(Event.LISTENER_FAILED).attributes, {"listener": "web"})
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(self.group.named("pay").address_text, "127.0.0.1:8444")
        self.successResultOf(self.apply(settings_of(("pay", 8444))))
        self.assertEqual(self.open_ports, {"127.0.0.1:8444"})

    def test_end_meanwhile(self) -> None:
        """A reload that the end overtakes opens nothing, neither new nor old."""
        self.ports.closing = []
        reload = self.apply(settings_of(("db", 8445)))
        stopping = self.stop()
        self.close_ports()
        self.failureResultOf(reload, ProxyEnding)
        self.successResultOf(stopping)
        self.assertEqual(self.ports.journal, ["close web", "close pay"])
        self.assertEqual(self.open_ports, set())
