"""The life cycle of the proxy: start, drain, reload and stop."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

from prometheus_client import CollectorRegistry
from twisted.application.service import Service
from twisted.internet.defer import Deferred, execute, fail, succeed
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import X509Svid
from svc.notary.exchange import ExchangeOutcome
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.pqleaf import PqLeaf
from svc.notary.receipt import Redaction
from svc.pages.listening import ListenFailed
from svc.policyfiles.settings import load_policies
from svc.policyfiles.watch import PolicyWatch
from svc.proxy.config import ProxySettings
from svc.proxy.credential_rotation import CredentialRotation
from svc.proxy.http.client import ClientConnection
from svc.proxy.listeners import ListenerGroup
from svc.proxy.observers import CredentialReports, NotaryStoreReports, Reports
from svc.proxy.policy_reports import PolicyReports
from svc.proxy.records.notarizer import Notarizer
from svc.proxy.records.places import RecordPlaces
from svc.proxy.records.receipt_collector import ReceiptCollector
from svc.proxy.service import ProxyService
from svc.settings import ConfigInvalid, ConfigProblem, parse
from svc.store.errors import StoreStuck, StoreUnavailable
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import PROXY_CONDITIONS, PROXY_OPTIONAL, Health
from svc.telemetry.metrics import ProxyMetrics
from svc.testing.ca import TestAuthority
from svc.testing.store import MemoryStore
from svc.testing.workload import MemorySource
from svc.workload.errors import PqIssuerError, WorkloadApiLost
from svc.workload.source import WorkloadSource
from tests.proxy.parts import LogTestCase, Ports, RecordingListenerFactory, settings_of
from tests.proxy.records.test_notarizer import GENERATION
from tests.proxy.rig import AUTHORITY, BASE, OWN, Wire
from tests.proxy.test_credential_rotation import PQ

ONE = settings_of(("web", 8443))
TWO = settings_of(("web", 8443), ("pay", 8444))
OUTBOUND = parse(
    "{trustDomain: prod.example, listeners: [{name: out, protocol: http, direction: outbound,"
    ' listen: "127.0.0.1:9443", upstream: "pay.bank:8443", peer: "spiffe://bank.example/pay"}]}',
    ProxySettings,
)
COLLECTING = OUTBOUND.model_copy(
    update={"listeners": (OUTBOUND.listeners[0].model_copy(update={"collectReceipts": True}),)}
)
GET = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"
NEXT = AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=2))


class SourceService(MemorySource):
    """A source that records its start and stop."""

    running = False

    def __init__(self, journal: list[str]) -> None:
        super().__init__()
        self._journal = journal

    def startService(self) -> None:
        """Record the start."""
        self.running = True
        self._journal.append("source starts")

    def stopService(self) -> Deferred[None]:
        """Record the stop."""
        self.running = False
        self._journal.append("source stops")
        return succeed(None)


class Part(Service):
    """A part that records its start and stop, and can fail to stop."""

    def __init__(self, name: str, journal: list[str]) -> None:
        self.setName(name)
        self._journal = journal
        self.start_error: Exception | None = None
        self.stop_error: Exception | None = None
        self.stopping: Deferred[None] | None = None

    def startService(self) -> None:
        """Record the start."""
        if self.start_error is not None:
            raise self.start_error
        super().startService()
        self._journal.append(f"{self.name} starts")

    def stopService(self) -> Any:
        """Record the stop."""
        super().stopService()
        self._journal.append(f"{self.name} stops")
        if self.stop_error is not None:
            return fail(self.stop_error)
        return self.stopping


class Store(MemoryStore):
    """A store that records its open and close."""

    def __init__(self, journal: list[str]) -> None:
        super().__init__()
        self._journal = journal
        self.init_error: SvcError | None = None
        self.close_error: SvcError | None = None

    def init(self) -> None:
        """Record it."""
        if self.init_error is not None:
            raise self.init_error
        self._journal.append("store opens")
        super().init()

    def close(self) -> Deferred[None]:
        """Record it."""
        self._journal.append("store closes")
        return super().close() if self.close_error is None else fail(self.close_error)


class RecordingStoreReports:
    """Records the reports on the end of the store."""

    def __init__(self, journal: list[str]) -> None:
        self._journal = journal

    def closing(self) -> None:
        """Record it."""
        self._journal.append("store is about to close")

    def closed(self) -> None:
        """Record it."""
        self._journal.append("store is closed")


def at_once(work: Callable[[], Any]) -> Deferred[Any]:
    """Run work here."""
    return execute(work)


class ServiceTestCase(LogTestCase):
    """Base class: a proxy of recording parts with a manual clock."""

    def setUp(self) -> None:
        """Create a proxy that is not started."""
        super().setUp()
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        self.addCleanup(gc.unfreeze)
        self.clock = Clock()
        self.ports = Ports()
        self.journal = self.ports.journal
        self.made = RecordingListenerFactory(self.ports, self.clock)
        self.source = SourceService(self.journal)
        self.store = Store(self.journal)
        self.pages = Part("pages", self.journal)
        self.retention = Part("retention", self.journal)
        self.issuer: Callable[[X509Svid], Deferred[PqLeaf]] = self.issue
        self.fatal = 0
        self.announced: list[ProxySettings] = []
        self.next: ProxySettings | Exception = ONE
        self.health = Health(PROXY_CONDITIONS, optional=PROXY_OPTIONAL, now=self.wall)
        self.proxy = self.make(ONE)

    def make(self, settings: ProxySettings) -> ProxyService:
        """Create the proxy under test."""
        places = RecordPlaces(8, self.clock, 0.0)
        self.collector = ReceiptCollector(self.store, database="notary.db", places=places)
        self.notarizer = Notarizer(
            self.store,
            database="notary.db",
            redaction=Redaction(),
            places=places,
            random=os.urandom,
        )
        self.rotation = CredentialRotation(
            self.source,
            profile=Profile.HYBRID,
            facts=lambda: WorkloadFacts.explicit(host_name="api-1"),
            obtain_leaf=lambda svid: self.issuer(svid),
            store=self.store,
            observer=CredentialReports(self.health),
            clock=self.clock,
            wall=self.wall,
            random=os.urandom,
        )
        policies = PolicyWatch(
            settings,
            read=lambda given, _former: load_policies(given.policy, given.trustDomain),
            apply=lambda given: self.proxy.apply_policies(given),
            observer=PolicyReports(ProxyMetrics(CollectorRegistry())),
            clock=self.clock,
            in_thread=at_once,
        )
        proxy = ProxyService(
            reactor=self.clock,
            source=cast(WorkloadSource, self.source),
            store=self.store,
            retention=self.retention,
            rotation=self.rotation,
            notarizer=self.notarizer,
            collector=self.collector,
            stored=None,
            listeners=ListenerGroup(self.made, self.made.reauthorization),
            settings=settings,
            load=self.load,
            policies=policies,
            configure_reports=self.announced.append,
            health=self.health,
            reports=Reports(ProxyMetrics(CollectorRegistry()), self.clock),
            wall=self.wall,
            fatal=self.has_failed,
            store_reports=cast(NotaryStoreReports, RecordingStoreReports(self.journal)),
        )
        self.pages.setServiceParent(proxy.servers)
        return proxy

    def wall(self) -> datetime:
        """Return the wall clock time, derived from the test's clock."""
        return BASE + timedelta(seconds=self.clock.seconds())

    def issue(self, svid: X509Svid) -> Deferred[PqLeaf]:
        """Issue a post-quantum leaf at once."""
        return succeed(PqLeaf.accept(*PQ.pq_leaf(svid), svid))  # type: ignore[arg-type]

    def load(self) -> ProxySettings:
        """Return the configuration in the file, or raise its error."""
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    def has_failed(self) -> None:
        """Count fatal errors."""
        self.fatal += 1

    def start(self) -> None:
        """Start and wait until it is ready."""
        self.proxy.startService()
        self.source.rotate(OWN, AUTHORITY.bundles())

    def stop(self) -> Deferred[None]:
        """Stop, and run one turn of the reactor."""
        stopping = self.proxy.stopService()
        self.clock.advance(0)
        return stopping

    def stopped(self) -> None:
        """Stop, and assert that nothing is left."""
        self.successResultOf(self.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual([address for address, count in self.ports.taken.items() if count], [])

    def failed_start(self, reason: str | None) -> str:
        """Assert that the start failed for this reason; return the logged message."""
        record = self.only(DaemonEvent.PROCESS_START_FAILED)
        self.assertEqual((self.fatal, record.fields.get("detail_reason")), (1, reason))
        self.assertFalse(self.health.ready)
        message: str = record.fields["message"]
        return message

    def reload(self, settings: ProxySettings | Exception) -> bool:
        """Reload and wait for its result."""
        self.next = settings
        return self.successResultOf(self.proxy.reload())


class StartTests(ServiceTestCase):
    """From the first part to readiness."""

    def test_order(self) -> None:
        """Pages start first, since they show the start; listeners last, when everything they need is running."""
        self.proxy.startService()
        self.assertEqual(self.journal, ["pages starts", "store opens", "retention starts", "source starts"])
        self.assertEqual(self.announced, [ONE])
        self.clock.advance(30)
        self.assertFalse(self.health.ready)
        self.source.rotate(OWN, AUTHORITY.bundles())
        self.assertEqual(self.journal[4:], ["open web"])
        self.assertTrue(self.health.ready)
        self.assertEqual(self.only(DaemonEvent.PROCESS_STARTED).attributes, {"pid": os.getpid()})
        self.assertEqual(self.fatal, 0)
        self.stopped()

    def test_outbound_only(self) -> None:
        """Without an inbound listener no database is opened and nothing signs; adding one needs a restart."""
        self.proxy = self.make(OUTBOUND)
        self.start()
        self.assertEqual(self.journal, ["pages starts", "source starts", "open out"])
        self.assertFalse(self.store.writable)
        self.assertFalse(self.reload(ONE))
        record = self.only(DaemonEvent.CONFIG_REJECTED)
        self.assertEqual(record.fields["detail_reason"], "restart_needed")
        self.assertIn("the first inbound one", record.fields["detail"])
        self.successResultOf(self.stop())

    def test_collecting_only(self) -> None:
        """Where receipts of peers are collected the database is opened, and nothing signs."""
        self.proxy = self.make(COLLECTING)
        self.start()
        self.assertTrue(self.store.writable)
        self.assertNotIn("signing starts", self.journal)
        self.assertIn("retention starts", self.journal)
        self.successResultOf(self.stop())

    def test_collecting_later(self) -> None:
        """The first listener that collects needs a restart where there is no database yet."""
        self.proxy = self.make(OUTBOUND)
        self.start()
        self.assertFalse(self.reload(COLLECTING))
        self.assertIn("the first one with collectReceipts", self.only(DaemonEvent.CONFIG_REJECTED).fields["detail"])
        self.successResultOf(self.stop())

    def test_no_listener_without_a_statement(self) -> None:
        """Until the issuer responds no listener opens; then the proxy becomes ready."""
        answer: Deferred[PqLeaf] = Deferred()
        self.issuer = lambda svid: answer
        self.start()
        self.assertNotIn("open web", self.journal)
        self.assertFalse(self.health.ready)
        self.issue(OWN).chainDeferred(answer)
        self.assertIn("open web", self.journal)
        self.assertTrue(self.health.ready)
        self.stopped()

    def test_source_that_is_never_ready(self) -> None:
        """If the source never becomes ready, its own reason is logged with its hint."""
        self.proxy.startService()
        self.source.fail()
        message = self.failed_start("workload_api_unavailable")
        self.assertIn("could not start: no SVID from the Workload API at memory", message)
        self.assertIn("svc-authority", self.only(DaemonEvent.PROCESS_START_FAILED).fields["detail"])
        self.stopped()

    def test_issuer_that_is_never_ready(self) -> None:
        """After the start timeout the error names the last failure and both ways to fix it; the retries end."""
        self.issuer = lambda svid: fail(
            PqIssuerError("pq_issuer_unavailable", address="unix:///pq.sock", what="connection refused")
        )
        self.start()
        self.clock.pump([1.0] * 59)
        self.assertEqual(self.fatal, 0)
        self.clock.advance(1)
        self.assertEqual(
            self.failed_start("notary_unavailable"),
            "could not start: no credentials for the notary within 60.0 s:"
            " the PQ issuer at unix:///pq.sock cannot be reached: connection refused",
        )
        record = self.only(DaemonEvent.PROCESS_START_FAILED)
        self.assertIn("notary.profile: classical", record.fields["detail"])
        self.assertFalse(record.failed)
        self.stopped()

    def test_issuer_that_never_responds(self) -> None:
        """An issuer that never responds fails the start."""
        self.issuer = lambda svid: Deferred()
        self.start()
        self.clock.advance(60)
        self.assertTrue(self.failed_start("notary_unavailable").endswith("within 60.0 s: no answer"))
        self.stopped()

    def test_without_a_limit(self) -> None:
        """With ``startTimeout: never`` it goes on waiting, alive and not ready, and opens when the issuer answers."""
        answer: Deferred[PqLeaf] = Deferred()
        self.issuer = lambda svid: answer
        self.proxy = self.make(settings_of(("web", 8443), startTimeout="never"))
        self.start()
        self.clock.pump([60.0] * 40)
        self.assertEqual((self.fatal, self.health.ready), (0, False))
        self.issue(OWN).chainDeferred(answer)
        self.assertIn("open web", self.journal)
        self.assertTrue(self.health.ready)
        self.stopped()

    def test_database_that_cannot_be_opened(self) -> None:
        """If the database cannot be opened, nothing after it starts."""
        self.store.init_error = StoreUnavailable(path="/x/notary.db", detail="permission denied")
        self.proxy.startService()
        self.assertIn("/x/notary.db", self.failed_start("notary_unavailable"))
        self.assertEqual(self.journal, ["pages starts"])
        self.stopped()

    def test_database_that_takes_no_records(self) -> None:
        """A read-only database lets the proxy start; it is ready if no listener needs records."""
        init = self.store.init

        def read_only() -> None:
            init()
            self.store.writable = False

        self.store.init = read_only
        self.start()
        self.assertIn("open web", self.journal)
        # The reason is reported by the observer of a real store.
        self.assertFalse(self.health.condition("store").holds)
        self.assertTrue(self.health.ready)
        self.health.require("store", True)
        self.assertFalse(self.health.ready)
        self.stopped()

    def test_port_that_is_taken(self) -> None:
        """A taken port fails the start with listener and address; listeners that were open are closed."""
        self.proxy = self.make(TWO)
        self.ports.taken["127.0.0.1:8444"] = 1
        self.start()
        self.assertIn("pay cannot be opened at 127.0.0.1:8444", self.failed_start("listen_failed"))
        self.ports.taken["127.0.0.1:8444"] = 0
        self.stopped()
        self.assertIn("close web", self.journal)

    def test_pages_that_cannot_be_opened(self) -> None:
        """A taken port for metrics or admin pages is reported as such, with the keys to change."""
        self.pages.start_error = ListenFailed(
            what="adminAddr", address="127.0.0.1:9902", why="Address already in use", key="adminAddr"
        )
        self.proxy.startService()
        self.assertEqual(
            self.failed_start("listen_failed"),
            "could not start: adminAddr cannot be opened at 127.0.0.1:9902: Address already in use",
        )
        self.assertIn("adminAddr", self.only(DaemonEvent.PROCESS_START_FAILED).fields["detail"])
        self.assertEqual(self.journal, [])

    def test_unexpected(self) -> None:
        """An unexpected exception is logged with its traceback."""
        self.ports.broken["127.0.0.1:8443"] = RuntimeError("no")
        self.start()
        self.assertIn("could not start: no", self.failed_start(None))
        self.assertTrue(self.only(DaemonEvent.PROCESS_START_FAILED).failed)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.stopped()


class StopDuringStartTests(ServiceTestCase):
    """A stop during the start."""

    def test_while_the_source_is_awaited(self) -> None:
        """A stop while the source is awaited opens nothing later and is not a failure."""
        self.proxy.startService()
        self.stopped()
        self.source.rotate(OWN, AUTHORITY.bundles())
        self.clock.pump([1.0] * 61)
        self.assertNotIn("open web", self.journal)
        self.assertEqual((self.fatal, self.of(DaemonEvent.PROCESS_START_FAILED)), (0, []))
        self.assertEqual(self.journal[-3:], ["store closes", "store is closed", "pages stops"])

    def test_while_the_issuer_is_awaited(self) -> None:
        """A stop cancels the request to the issuer; nothing is opened later."""
        cancelled: list[object] = []
        self.issuer = lambda svid: Deferred(cancelled.append)
        self.start()
        self.stopped()
        self.assertEqual(len(cancelled), 1)
        self.assertNotIn("open web", self.journal)
        self.assertEqual(self.fatal, 0)

    def test_while_a_port_opens(self) -> None:
        """A port that is being opened does not stay open."""
        self.ports.opening = []
        self.start()
        stopping = self.stop()
        self.successResultOf(stopping)
        self.ports.opening[0].callback(None)
        self.assertEqual([address for address, count in self.ports.taken.items() if count], [])
        self.assertEqual(self.fatal, 0)

    def test_after_a_failed_start(self) -> None:
        """After a failed start, parts that were started are stopped; others are not touched."""
        self.proxy.startService()
        self.source.fail()
        self.stopped()
        self.assertEqual(
            self.journal[4:],
            [
                "source stops",
                "retention stops",
                "store is about to close",
                "store closes",
                "store is closed",
                "pages stops",
            ],
        )


class StopTests(ServiceTestCase):
    """The stop."""

    def test_order(self) -> None:
        """Listeners, credentials, retention, database, pages: each stops when nothing needs it any more."""
        self.start()
        self.journal.clear()
        self.stopped()
        self.assertEqual(
            self.journal,
            [
                "close web",
                "source stops",
                "retention stops",
                "store is about to close",
                "store closes",
                "store is closed",
                "pages stops",
            ],
        )
        self.only(DaemonEvent.PROCESS_STOPPED)
        self.assertFalse(self.rotation.running)

    def test_twice(self) -> None:
        """A second call waits for the same stop."""
        self.start()
        first = self.proxy.stopService()
        second = self.proxy.stopService()
        self.successResultOf(first)
        self.successResultOf(second)
        self.successResultOf(self.proxy.stopService())
        self.assertEqual(self.journal.count("store closes"), 1)
        self.only(DaemonEvent.PROCESS_STOPPED)

    def test_waits_for_each_part(self) -> None:
        """A part that stops slowly is awaited."""
        self.start()
        self.retention.stopping = Deferred()
        stopping = self.stop()
        self.assertEqual(self.journal[-1], "retention stops")
        self.retention.stopping.callback(None)
        self.clock.advance(0)
        self.successResultOf(stopping)

    def test_part_that_cannot_end(self) -> None:
        """A part that fails to stop is logged, and the database is still closed."""
        self.start()
        self.retention.stop_error = RuntimeError("no")
        self.stopped()
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(self.journal[-3:], ["store closes", "store is closed", "pages stops"])

    def test_database_that_does_not_close(self) -> None:
        """If the database does not close, all other parts still stop in order, and the process exits with a failure."""
        self.start()
        self.store.close_error = StoreStuck(seconds=10.0)
        self.stopped()
        self.assertEqual(self.journal[-2:], ["store closes", "pages stops"])
        self.assertEqual(self.fatal, 1)
        self.only(DaemonEvent.PROCESS_STOPPED)

    def test_port_that_cannot_close(self) -> None:
        """A port that fails to close is logged too."""
        self.start()
        self.ports.closing = []
        stopping = self.stop()
        self.ports.closing[0].errback(RuntimeError("no"))
        self.clock.advance(0)
        self.successResultOf(stopping)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertIn("store closes", self.journal)

    def test_without_start(self) -> None:
        """A service that was never started can be stopped."""
        self.stopped()
        self.assertEqual(self.journal, ["store is about to close", "store closes", "store is closed"])


class DrainTests(ServiceTestCase):
    """The drain lets running exchanges end."""

    def setUp(self) -> None:
        """Start a proxy and open a connection."""
        super().setUp()
        self.start()
        self.client, self.wire = self.made.connect("web")

    def lose(self, client: ClientConnection) -> None:
        """A client disconnects."""
        client.connectionLost(Failure(ConnectionDone()))

    def test_idle_connections_close(self) -> None:
        """The port and idle connections are closed; the drain is over when the connection is gone."""
        draining = self.proxy.drain()
        self.assertEqual(self.journal[-1], "close web")
        self.assertFalse(self.health.ready)
        self.assertEqual(self.only(ProxyEvent.DRAIN_STARTED).attributes, {"connections": 1})
        self.assertNoResult(draining)
        self.clock.advance(0.05)
        self.assertTrue(self.wire.disconnecting)
        self.assertFalse(self.wire.aborted)
        self.lose(self.client)
        self.clock.advance(0.05)
        self.successResultOf(draining)
        record = self.only(ProxyEvent.DRAIN_FINISHED)
        self.assertEqual(record.attributes, {"connections_cut": 0, "records_lost": 0})
        self.assertNotIn("outcome", {key for key, value in record.fields.items() if value == "failure"})

    def test_exchange_may_end(self) -> None:
        """A running request is answered; then its connection is closed."""
        self.client.dataReceived(GET)
        draining = self.proxy.drain()
        self.clock.pump([0.05] * 20)
        self.assertNoResult(draining)
        self.made.rigs["web"].respond(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        self.assertTrue(self.wire.take().endswith(b"Connection: close\r\n\r\nok"))
        self.assertTrue(self.wire.disconnecting)
        self.lose(self.client)
        self.clock.advance(0.05)
        self.successResultOf(draining)

    def answer(self, client: ClientConnection, wire: Wire) -> bytes:
        """Send a request and have the application answer it."""
        client.dataReceived(GET)
        self.made.rigs["web"].respond(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        return wire.take()

    def test_with_a_delay(self) -> None:
        """For so long clients are accepted, and every response asks them to connect elsewhere; then the port closes."""
        self.assertNotIn(b"Connection: close", self.answer(self.client, self.wire))
        draining = self.proxy.drain(2.0)
        self.assertFalse(self.health.ready)
        self.assertEqual(self.only(ProxyEvent.DRAIN_STARTED).attributes, {"connections": 1, "delay": 2.0})
        # At once, not with the next sweep; and on each connection with its own next response.
        self.assertIn(b"Connection: close", self.answer(self.client, self.wire))
        self.assertTrue(self.wire.disconnecting)
        late, wire = self.made.connect("web")
        idle, idle_wire = self.made.connect("web")
        self.clock.pump([0.5] * 3)
        self.assertIn(b"Connection: close", self.answer(late, wire))
        self.assertFalse(idle_wire.disconnecting)
        self.clock.advance(0.499)
        self.assertNotIn("close web", self.journal)
        self.clock.advance(0.001)
        self.assertEqual(self.journal[-1], "close web")
        for client in (self.client, late):
            self.lose(client)
        # For a second its first request may be on the way.
        self.clock.advance(0.999)
        self.assertFalse(idle_wire.disconnecting)
        self.clock.advance(0.001)
        self.clock.advance(0.05)
        self.assertTrue(idle_wire.disconnecting)
        self.lose(idle)
        self.clock.advance(0.05)
        self.successResultOf(draining)
        self.assertEqual(self.only(ProxyEvent.DRAIN_FINISHED).attributes["connections_cut"], 0)

    def test_own_answers_with_a_delay(self) -> None:
        """Answers of the proxy itself ask for the same."""
        self.proxy.drain(2.0)
        self.client.dataReceived(b"GET /.well-known/svc-notary/v1/absent HTTP/1.1\r\nHost: api\r\n\r\n")
        self.assertIn(b"Connection: close", self.wire.take())

    def test_cut_after_the_time(self) -> None:
        """What is not over within the drain timeout is cut and logged."""
        self.client.dataReceived(GET)
        draining = self.proxy.drain()
        self.clock.pump([0.05] * 598)
        self.assertFalse(self.wire.aborted)
        self.clock.pump([0.05] * 4)
        self.assertTrue(self.wire.aborted)
        self.successResultOf(draining)
        record = self.only(ProxyEvent.DRAIN_FINISHED)
        self.assertEqual((record.attributes["connections_cut"], record.fields["outcome"]), (1, "failure"))

    def test_records_are_awaited(self) -> None:
        """The drain waits some seconds for records that are not durable yet, and counts those that are lost."""
        self.successResultOf(self.notarizer.admit(Level.LOG_REQUEST, "a", None, GENERATION, 1000))
        self.lose(self.client)
        draining = self.proxy.drain()
        self.clock.pump([0.5] * 69)
        self.assertNoResult(draining)
        self.clock.pump([0.5] * 3)
        self.successResultOf(draining)
        record = self.only(ProxyEvent.DRAIN_FINISHED)
        self.assertEqual((record.attributes["records_lost"], record.fields["outcome"]), (1, "failure"))

    def test_record_that_is_written_in_time(self) -> None:
        """The drain is over as soon as the last record is durable."""
        reservation = self.successResultOf(self.notarizer.admit(Level.LOG_REQUEST, "a", None, GENERATION, 1000))
        self.lose(self.client)
        draining = self.proxy.drain()
        self.clock.advance(1)
        self.assertNoResult(draining)
        self.notarizer.abandon(reservation)
        self.clock.advance(0.05)
        self.successResultOf(draining)
        self.assertEqual(self.only(ProxyEvent.DRAIN_FINISHED).attributes["records_lost"], 0)

    def test_collected_receipts_are_awaited(self) -> None:
        """So are promised receipts of peers."""
        place = self.successResultOf(self.collector.admit("spiffe://prod.example/a", "AAECAwQFBgcICQoLDA0ODw"))
        self.lose(self.client)
        draining = self.proxy.drain()
        self.clock.advance(1)
        self.assertNoResult(draining)
        self.collector.abandon(place)
        self.clock.advance(0.05)
        self.successResultOf(draining)

    def test_twice(self) -> None:
        """A second drain is the same one; a drain after the stop is over at once."""
        first, second = self.proxy.drain(), self.proxy.drain()
        self.lose(self.client)
        self.clock.advance(0.05)
        self.successResultOf(first)
        self.successResultOf(second)
        self.successResultOf(self.proxy.drain())
        self.only(ProxyEvent.DRAIN_STARTED)

    def test_stop_during_drain(self) -> None:
        """A stop waits for the running drain."""
        self.client.dataReceived(GET)
        draining = self.proxy.drain()
        stopping = self.stop()
        self.assertNotIn("store closes", self.journal)
        self.lose(self.client)
        self.clock.advance(0.05)
        self.successResultOf(draining)
        self.clock.advance(0)
        self.successResultOf(stopping)
        self.only(ProxyEvent.DRAIN_STARTED)

    def test_stop_after_drain(self) -> None:
        """After a drain the stop does not wait."""
        self.lose(self.client)
        self.successResultOf(self.proxy.drain())
        self.stopped()

    def test_during_the_start(self) -> None:
        """A drain during the start keeps every listener closed; the process waits for its end."""
        self.setUp_unstarted()
        self.proxy.startService()
        self.successResultOf(self.proxy.drain())
        self.source.rotate(OWN, AUTHORITY.bundles())
        self.assertNotIn("open web", self.journal)
        self.assertEqual((self.fatal, self.health.ready), (0, False))
        self.stopped()

    def setUp_unstarted(self) -> None:
        """Create another proxy that is not started."""
        ServiceTestCase.setUp(self)


class SweepTests(ServiceTestCase):
    """The checks that run twice a second."""

    def test_times(self) -> None:
        """Idle connections are closed by the service's own clock."""
        self.start()
        _client, wire = self.made.connect("web")
        self.clock.pump([0.5] * 119)
        self.assertFalse(wire.disconnecting)
        self.clock.pump([0.5] * 3)
        self.assertTrue(wire.disconnecting)

    def test_sweep_continues_after_an_exception(self) -> None:
        """A connection whose check raises is logged; all others are still checked."""
        self.start()
        client, _wire = self.made.connect("web")
        client.sweep = lambda now, wall: 1 / 0  # type: ignore[assignment]
        self.clock.advance(0.5)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        client.connectionLost(Failure(ConnectionDone()))
        _client, wire = self.made.connect("web")
        self.clock.pump([0.5] * 125)
        self.assertTrue(wire.disconnecting)

    def test_new_bundle(self) -> None:
        """Open connections are reauthorized as soon as a new bundle arrives."""
        self.start()
        _client, wire = self.made.connect("web")
        self.source.rotate(None, AUTHORITY.bundles())
        self.clock.advance(0)
        self.assertFalse(wire.disconnecting)
        bundles = self.made.rigs["web"].rotation.bundles = TestAuthority("prod.example", now=BASE).bundles()
        self.source.rotate(None, bundles)
        self.clock.advance(0)
        self.assertTrue(wire.disconnecting)

    def test_credentials_that_ran_out(self) -> None:
        """Readiness ends when connections are cut by expired credentials, and returns with new ones."""
        self.start()
        self.clock.pump([60.0] * 58 + [59.5])
        self.assertTrue(self.health.ready)
        self.clock.advance(0.5)
        self.assertFalse(self.health.ready)
        found = self.health.condition("credentials")
        self.assertEqual(found.reason, "expired")
        self.assertIn("no newer ones came: the Workload API answers and has no newer SVID", found.message)
        lost = WorkloadApiLost(socket="unix:///run/agent.sock", since="2026-11-21T12:00:00+00:00", what="no such file")
        self.source.fail(lost)
        self.clock.advance(0.5)
        self.assertIn(f"no newer ones came: {lost}", self.health.condition("credentials").message)
        self.source.rotate(NEXT)
        self.clock.advance(0.5)
        self.assertTrue(self.health.ready)

    def test_issuer_unreachable(self) -> None:
        """While the old credentials are valid, an unreachable issuer is shown and does not change readiness."""
        self.start()
        self.issuer = lambda svid: fail(
            PqIssuerError("pq_issuer_unavailable", address="unix:///pq.sock", what="connection refused")
        )
        self.source.rotate(NEXT)
        self.clock.advance(0.5)
        self.assertTrue(self.health.ready)
        issuer, credentials = self.health.condition("pqIssuer"), self.health.condition("credentials")
        self.assertEqual((issuer.holds, issuer.reason), (False, "pq_issuer_unavailable"))
        self.assertEqual((credentials.holds, credentials.message), (True, f"not renewed: {issuer.message}"))
        self.issuer = self.issue
        self.clock.pump([0.5] * 4)
        self.assertTrue(self.health.condition("pqIssuer").holds)
        self.assertEqual(self.health.condition("credentials").message, "")
        self.stopped()

    def test_missing_part_is_shown(self) -> None:
        """Before the first credentials the page shows which part is missing."""
        asked: list[Deferred[PqLeaf]] = []
        self.issuer = lambda svid: asked.append(Deferred()) or asked[-1]
        self.proxy.startService()
        self.assertEqual(self.health.condition("credentials").message, "no SVID has arrived yet")
        self.source.rotate(OWN, AUTHORITY.bundles())
        self.assertEqual(self.health.condition("credentials").message, "there is no workload statement yet")
        asked[0].errback(PqIssuerError("pq_issuer_unavailable", address="unix:///pq.sock", what="no such file"))
        self.assertEqual(self.health.condition("credentials").reason, "pq_issuer_unavailable")
        self.stopped()


class ReloadTests(ServiceTestCase):
    """Reloading the configuration."""

    def test_applied(self) -> None:
        """The new listener opens, the new configuration is in force, and the changes are logged."""
        self.start()
        self.assertIs(True, self.reload(TWO))
        self.assertIs(self.proxy.settings, TWO)
        self.assertEqual(self.journal[-1], "open pay")
        self.assertEqual(self.announced, [ONE, TWO])
        attributes = {"changed": "listeners", "kept": 1, "closed": 0, "opened": 1}
        for event in (DaemonEvent.CONFIG_LOADED, DaemonEvent.CONFIG_RELOADED):
            self.assertEqual(self.only(event).attributes, attributes)
        self.assertEqual(self.only(DaemonEvent.CONFIG_RELOADED).fields["outcome"], "success")

    def test_other_policy(self) -> None:
        """A new policy leaves the ports open, and closes exactly the connections whose client it refuses."""
        self.start()
        context = self.made.listeners["web"].context
        before = context.policies
        (_client, idle), (busy, wire) = self.made.connect("web"), self.made.connect("web")
        busy.dataReceived(GET)
        wider = settings_of(("web", 8443), policy='{default: allow, allow: ["spiffe://bank.example/*"]}')
        self.assertIs(True, self.reload(wider))
        self.clock.advance(0)
        self.assertIsNot(context.policies, before)
        self.assertFalse(idle.disconnecting or wire.aborted)
        self.assertIs(True, self.reload(settings_of(("web", 8443), policy='{allow: ["spiffe://bank.example/*"]}')))
        self.clock.advance(0)
        self.assertTrue(idle.disconnecting and wire.aborted)
        self.assertEqual([each for each in self.journal if "web" in each], ["open web"])
        denials = self.made.rigs["web"].reporter.denials
        self.assertEqual([reason for reason, _peer in denials], ["policy_deny", "policy_deny"])

    def rejected(self, reason: str | None) -> str:
        """Assert that the reload was refused; return the logged detail."""
        record, operational = self.only(DaemonEvent.CONFIG_REJECTED), self.only(DaemonEvent.CONFIG_RELOADED)
        self.assertEqual(record.fields.get("detail_reason"), reason)
        self.assertEqual(operational.fields.get("detail"), record.fields.get("detail"))
        self.assertEqual(operational.fields["outcome"], "failure")
        self.assertIs(self.proxy.settings, ONE)
        self.assertEqual(self.announced, [ONE])
        return str(record.fields.get("detail"))

    def test_invalid(self) -> None:
        """Every problem of an invalid file is logged, and the configuration in force stays."""
        self.start()
        problems = (ConfigProblem("a", "1", "b"), ConfigProblem("c", None, "d"))
        self.assertIs(False, self.reload(ConfigInvalid("proxy.yaml", problems)))
        self.assertEqual(self.rejected("config_invalid"), "a: 1: expected b; c: missing: expected d")

    def test_needs_a_restart(self) -> None:
        """A changed key that needs a restart refuses the whole file."""
        self.start()
        self.assertIs(False, self.reload(settings_of(("db", 1), spiffeSocketPath="unix:///other.sock")))
        self.assertIn("spiffeSocketPath", self.rejected("restart_needed"))
        self.assertNotIn("open db", self.journal)

    def test_port_that_is_taken(self) -> None:
        """If a listener cannot open, the old one is reopened."""
        self.start()
        self.ports.taken["127.0.0.1:8444"] = 1
        self.assertIs(False, self.reload(settings_of(("pay", 8444))))
        self.assertIn("pay", self.rejected("listen_failed"))
        self.assertEqual(self.journal[-2:], ["close web", "open web"])

    def test_unexpected(self) -> None:
        """An unexpected exception is logged with its traceback, and the configuration in force stays."""
        self.start()
        self.assertIs(False, self.reload(RuntimeError("no")))
        self.rejected(None)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertIs(True, self.reload(TWO))

    def test_port_that_is_lost(self) -> None:
        """A listener that cannot reopen is named on the readiness page until a reload opens it."""
        self.start()
        self.ports.taken["127.0.0.1:8444"] = 1
        self.ports.broken["127.0.0.1:8443"] = CannotListenError(
            "127.0.0.1", 8443, OSError(98, "Address already in use")
        )
        self.assertIs(False, self.reload(settings_of(("pay", 8444))))
        found = self.health.condition("listeners")
        self.assertEqual((found.holds, found.reason, found.message), (False, "listen_failed", "not open: web"))
        self.assertFalse(self.health.ready)
        self.ports.broken.clear()
        self.assertIs(True, self.reload(ONE))
        self.assertTrue(self.health.ready)

    def test_drained(self) -> None:
        """A drain closes the listeners, and the page shows it."""
        self.start()
        self.successResultOf(self.proxy.drain())
        self.assertEqual(self.health.condition("listeners").reason, "draining")

    def test_waits_for_the_start(self) -> None:
        """A reload during the start waits for its end, and then reads the file."""
        self.proxy.startService()
        self.next = TWO
        reload = self.proxy.reload()
        self.assertNoResult(reload)
        self.source.rotate(OWN, AUTHORITY.bundles())
        self.assertTrue(self.successResultOf(reload))
        self.assertEqual(self.journal[-2:], ["open web", "open pay"])

    def test_one_after_the_other(self) -> None:
        """Two reloads in a row end with the last file."""
        self.start()
        self.ports.opening = []
        self.next = TWO
        first = self.proxy.reload()
        self.next = settings_of(("db", 8445))
        second = self.proxy.reload()
        self.assertNoResult(first)
        for opening in self.ports.opening:
            opening.callback(None)
        self.assertTrue(self.successResultOf(first) and self.successResultOf(second))
        self.assertEqual({address for address, count in self.ports.taken.items() if count}, {"127.0.0.1:8445"})

    def test_during_drain(self) -> None:
        """During a drain nothing is opened any more."""
        self.start()
        self.proxy.drain()
        self.assertIs(False, self.reload(TWO))
        self.assertEqual(self.rejected("draining"), "the proxy is ending and opens no listener")
        self.assertEqual(self.journal[-1], "close web")

    def test_drain_during_a_reload(self) -> None:
        """A drain during a reload leaves nothing open."""
        self.start()
        self.ports.opening = []
        self.next = TWO
        reload = self.proxy.reload()
        self.successResultOf(self.proxy.drain())
        self.ports.opening[0].callback(None)
        self.assertFalse(self.successResultOf(reload))
        self.rejected("draining")
        self.assertEqual([address for address, count in self.ports.taken.items() if count], [])

    def test_stop_during_a_reload(self) -> None:
        """A stop during a reload leaves nothing open; a reload that waited is refused."""
        self.start()
        self.ports.opening = []
        self.next = TWO
        reload, waiting = self.proxy.reload(), self.proxy.reload()
        self.stop()
        self.ports.opening[0].callback(None)
        self.assertFalse(self.successResultOf(reload) or self.successResultOf(waiting))
        self.assertEqual([address for address, count in self.ports.taken.items() if count], [])
        self.stopped()

    def test_after_a_failed_start(self) -> None:
        """A proxy that failed to start opens nothing."""
        self.proxy.startService()
        self.next = TWO
        reload = self.proxy.reload()
        self.source.fail()
        self.assertFalse(self.successResultOf(reload))
        self.assertNotIn("open pay", self.journal)

    def test_before_the_start(self) -> None:
        """A proxy that was not started opens nothing either."""
        self.assertIs(False, self.reload(TWO))
        self.assertEqual(self.journal, [])


class CutExchangeTests(ServiceTestCase):
    """Records of exchanges that a drain cuts."""

    def test_cut_exchange_is_recorded(self) -> None:
        """An exchange that the drain cuts has a record with that outcome."""
        self.start()
        client, _wire = self.made.connect("web")
        client.dataReceived(b"GET / HTTP/1.1\r\nHost: api\r\nSvc-Notarization-Level: logRequest\r\n\r\n")
        rig = self.made.rigs["web"]
        self.proxy.drain()
        self.clock.pump([0.5] * 62)
        [record] = rig.store._receipts.values()
        self.assertEqual(record.outcome, ExchangeOutcome.SERVER_ABORTED.value)
