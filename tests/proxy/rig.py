"""A listener in memory: real protocols, a real notary, a manual clock, and transports that tests read and write."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.envelope.profile import Profile
from svc.identity import BundleSet, SpiffeID, X509Svid, verify_svid
from svc.notary.credentials import CredentialSet
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.receipt import Redaction
from svc.notary.statement import StatementEvidence
from svc.notary.verification import Anchors
from svc.pacing.turns import Turns
from svc.policy.engine import Decision, Denied, MatchedRule
from svc.policyfiles.settings import Policies
from svc.process.reauthorization import Reauthorization, ReauthorizationSummary
from svc.proxy.connection_settings import LimitSettings, TimeoutSettings
from svc.proxy.context import AuthorizedConnection, decide_again
from svc.proxy.http.client import ClientConnection
from svc.proxy.http.context import HttpContext
from svc.proxy.http.notary_endpoint import CollectedReceipts, NotaryEndpoint, ReservedPath
from svc.proxy.http.peer_verification import PeerVerifier, VerifiedEndpoint
from svc.proxy.http.upstream import UpstreamPool
from svc.proxy.listener import Connection
from svc.proxy.observers import ListenerObserver
from svc.proxy.peer_conditions import PeerConditions
from svc.proxy.records.budget import Allowance, RecordBudget
from svc.proxy.records.notarizer import Notarizer
from svc.proxy.records.places import RecordPlaces
from svc.proxy.records.receipt_collector import ReceiptCollector
from svc.proxy.records.release_points import ReleaseObserver, unobserved
from svc.proxy.reporter import ConnectionSummary, ExchangeSummary, MessageSummary, PolicyDecision
from svc.telemetry.metrics import ProxyMetrics
from svc.testing.ca import TestAuthority
from svc.testing.store import MemoryStore
from svc.transport.evidence import PeerEvidence
from svc.wire.http1 import MessageLimits, RequestHead
from tests.proxy.policies import admit_domain

BASE = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
AUTHORITY = TestAuthority("prod.example", now=BASE)
OWN = AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=1))
CALLER = AUTHORITY.svid("/ns/web/sa/fe", ttl=timedelta(hours=2))


class Handle:
    """A double of the TLS connection object."""

    def __init__(self, evidence: PeerEvidence) -> None:
        self.peer_evidence = evidence


class Wire(StringTransport):
    """A transport that records how it was closed."""

    def __init__(self, handle: Handle | None = None) -> None:
        super().__init__()
        self._handle = handle
        self.aborted = False
        self.unsent = 0

    def getHandle(self) -> Handle | None:
        """Return the object from which :func:`peer_evidence` reads."""
        return self._handle

    def abortConnection(self) -> None:
        """Record the abort."""
        self.aborted = True

    def take(self) -> bytes:
        """Return what was written and clear it."""
        data = self.value()
        self.clear()
        return data

    @property
    def paused(self) -> bool:
        """Whether reading is paused."""
        return self.producerState == "paused"


@implementer(IStreamClientEndpoint)
class FakeEndpoint:
    """An endpoint that connects at once, when the test completes the attempt, or never."""

    def __init__(self) -> None:
        self.attempts: list[tuple[Any, Deferred[Any]]] = []
        self.connections: list[tuple[Any, Wire]] = []
        self.manual = False
        self.refuse: Exception | None = None
        #: Takes the place of the TLS connection object.
        self.handle: Handle | None = None
        self.wire = Wire

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        """Start a connection attempt."""
        if self.refuse is not None:
            failed: Deferred[Any] = Deferred()
            failed.errback(Failure(self.refuse))
            return failed
        if self.manual:
            waiting: Deferred[Any] = Deferred()
            self.attempts.append((protocolFactory, waiting))
            return waiting
        return succeed(self.make(protocolFactory))

    def make(self, factory: Any) -> Any:
        """Create one connection."""
        protocol = factory.buildProtocol(None)
        wire = self.wire(self.handle)
        self.connections.append((protocol, wire))
        protocol.makeConnection(wire)
        return protocol

    def complete(self) -> None:
        """Complete the oldest pending attempt."""
        factory, waiting = self.attempts.pop(0)
        waiting.callback(self.make(factory))


class RecordingReporter:
    """Record all reports in lists."""

    def __init__(self) -> None:
        self.denials: list[tuple[str, str]] = []
        #: For each denial: the listener, and the path of the request if a request was denied.
        self.requests: list[tuple[str, bytes | None]] = []
        self.failures: list[str] = []
        self.details: list[tuple[str, str]] = []
        self.every_exchange = self.recorded_exchanges = True
        self.messages: list[MessageSummary] = []
        self.summaries: list[ExchangeSummary] = []
        self.connections: list[ConnectionSummary] = []
        self.evictions: list[tuple[str, str]] = []
        self.decisions: list[PolicyDecision | None] = []
        #: Policy, rule and decision of requests that a dry run decides otherwise, and of those that are audited.
        self.dry_runs: list[tuple[str, str, bool]] = []
        self.audits: list[tuple[str, str, bool]] = []

    def denied(
        self,
        reason: str,
        address: str,
        peer: str,
        detail: str,
        *,
        listener: str,
        request: RequestHead | None = None,
        decision: PolicyDecision | None = None,
    ) -> None:
        """Record the denial."""
        self.denials.append((reason, peer))
        self.decisions.append(decision)
        self.requests.append((listener, None if request is None else request.path))

    def dry_run_differs(self, peer: str, decision: Decision, *, listener: str, request: RequestHead | None) -> None:
        """Record it."""
        self.dry_runs.append((decision.matched[-1].policy, decision.matched[-1].rule, decision.allowed))

    def audited(
        self, peer: str, matched: MatchedRule, *, permitted: bool, listener: str, request: RequestHead | None
    ) -> None:
        """Record it."""
        self.audits.append((matched.policy, matched.rule, permitted))

    def evicted(self, reason: str, address: str, peer: str, detail: str) -> None:
        """Record the eviction."""
        self.evictions.append((reason, peer))

    def exchange_failed(self, reason: str, peer: str, detail: str, precise: str = "") -> None:
        """Record the failure."""
        self.failures.append(reason)
        self.details.append((precise, detail))

    def connection_ended(self, summary: ConnectionSummary) -> None:
        """Record the summary."""
        self.connections.append(summary)

    def message_recorded(self, summary: MessageSummary) -> None:
        """Record one."""
        self.messages.append(summary)

    def exchange_ended(self, summary: ExchangeSummary) -> None:
        """Record the summary."""
        self.summaries.append(summary)

    @property
    def served(self) -> list[tuple[bytes, int | None]]:
        """Return method and status of every exchange that ended."""
        return [(each.method, each.status) for each in self.summaries]


class OneCredentialSet:
    """A CredentialRotation that holds one credential set."""

    def __init__(self, credentials: CredentialSet | None, svid: X509Svid) -> None:
        self.credentials = credentials
        self.svid = svid
        self.bundles = AUTHORITY.bundles()
        self.withdrawn = False

    @property
    def identity(self) -> SpiffeID | None:
        """Return the own identity; tests can remove it."""
        return None if self.withdrawn else self.svid.spiffe_id

    def of_evidence(self, evidence: PeerEvidence) -> CredentialSet | None:
        """Return the credential set."""
        return self.credentials

    def statement(self, statement_id: str) -> bytes | None:
        """Return its statement."""
        if self.credentials is not None and self.credentials.statement.id == statement_id:
            return self.credentials.statement.envelope.serialize()
        return None


def evidence_of(svid: X509Svid, own: X509Svid = OWN) -> PeerEvidence:
    """Return the evidence that a handshake with this peer would give."""
    proved = verify_svid(svid.chain, AUTHORITY.bundles(), BASE)
    return PeerEvidence(proved, "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", "1.3", True, own)


class Rig:
    """One listener with its collaborators."""

    def __init__(
        self,
        *,
        inbound: bool = True,
        demanded: Level = Level.NONE,
        maximum: Level = Level.SIGN_REQUEST,
        limits: LimitSettings | None = None,
        timeouts: TimeoutSettings | None = None,
        policies: Policies | None = None,
        rate: float = 1000.0,
        burst: float = 1000.0,
        longest: float = 0.0,
        octets: Allowance = Allowance(2**30, 2**40),  # noqa: B008 (frozen)
        redaction: Redaction | None = None,
        released: ReleaseObserver = unobserved,
        forwarded: bool = False,
        host: bytes | None = None,
        own: X509Svid = OWN,
        require: Level = Level.NONE,
        collect: bool = False,
        conditions: PeerConditions | None = None,
        profile: Profile = Profile.CLASSICAL,
        reauthorization: Reauthorization[AuthorizedConnection] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.clock = Clock()
        self.summaries: list[ReauthorizationSummary] = []
        if reauthorization is None:
            reauthorization = Reauthorization(self.clock, decide_again, self.summaries.append)
        self.reauthorization = reauthorization
        self.turns = turns or Turns(self.clock)
        self.endpoint = FakeEndpoint()
        self.store = MemoryStore()
        self.store.init()
        self.reporter = RecordingReporter()
        self.registry = CollectorRegistry()
        self.metrics = ProxyMetrics(self.registry)
        facts = WorkloadFacts.explicit(host_name="api-1", namespace="pay", service_account="api")
        self.credentials = CredentialSet.issue(own, None, facts, Profile.CLASSICAL, BASE, os.urandom)
        self.rotation = cast(Any, OneCredentialSet(self.credentials, own))
        budget = RecordBudget(Allowance(rate, burst), octets, self.clock, longest)
        self.budget = budget
        self.places = RecordPlaces(8, self.clock, longest, budget)
        self.collector = ReceiptCollector(self.store, database="notary.db", places=self.places, released=released)
        self.notarizer = Notarizer(
            self.store,
            database="notary.db",
            redaction=redaction or Redaction(),
            places=self.places,
            random=os.urandom,
            released=released,
        )
        limits = limits or LimitSettings()
        timeouts = timeouts or TimeoutSettings()
        self.anchors = Anchors(AUTHORITY.bundles(), BundleSet())
        self.listed_statements: set[str] = set()
        listener_metrics = self.metrics.listener("http", "inbound" if inbound else "outbound")
        #: Counts and reports as the observer of the listener does.
        self.observer = ListenerObserver(listener_metrics, cast(Any, self.reporter), "web")
        self.peers: PeerVerifier | None = None
        if require is not Level.NONE:
            self.peers = PeerVerifier(
                upstream="the peer",
                host=b"pay.bank:8443",
                level=require,
                profile=profile,
                anchors=lambda: self.anchors,
                pq_path="/run/pq-bundle.json",
                listed=self._listed_statement,
                clock=self.clock,
                wall=self.wall,
                statement_seconds=timeouts.connect,
                receipt_seconds=timeouts.response,
                observer=self.observer,
                collector=self.collector if collect else None,
                conditions=conditions,
            )
        self.pool = UpstreamPool(
            self.endpoint if self.peers is None else VerifiedEndpoint(self.endpoint, self.peers),
            "127.0.0.1:8080",
            connect_timeout=timeouts.connect,
            limits=MessageLimits(limits.head, limits.fields),
            max_idle=limits.idleUpstream,
            idle_timeout=timeouts.idleUpstream,
            seconds=self.clock.seconds,
            wall=self.wall,
            turns=self.turns,
            ended=self.observer.upstream_ended,
            peers=self.peers,
        )
        self.context = HttpContext(
            name="web",
            inbound=inbound,
            policies=(policies or admit_domain()) if inbound else None,
            rotation=self.rotation,
            reauthorization=self.reauthorization,
            turns=self.turns,
            notarizer=self.notarizer,
            pool=self.pool,
            metrics=listener_metrics,
            notary_metrics=self.metrics.notary("http"),
            reporter=self.reporter,
            demanded=demanded if self.peers is None else require,
            peers=self.peers,
            maximum=maximum,
            limits=limits,
            timeouts=timeouts,
            seconds=self.clock.seconds,
            wall=self.wall,
            unix_time=lambda: self.wall().timestamp(),
            forwarded=forwarded,
            host=host,
            released=released,
        )
        self.notary = NotaryEndpoint(
            self.store,
            self.notarizer,
            self.rotation,
            profile=Profile.CLASSICAL,
            readers=None,
            receipts=True,
            retention=86400.0,
            limits={"head": limits.head},
        )
        self.open: set[ClientConnection] = set()

    def _listed_statement(self, statement: StatementEvidence) -> Denied | None:
        if statement.id in self.listed_statements:
            return Denied(identity=statement.subject, policy="deny", rule=f"statement {statement.id}")
        return None

    def wall(self) -> datetime:
        """Return the wall clock time, derived from the test's clock."""
        return BASE + timedelta(seconds=self.clock.seconds())

    def build(self, connections: set[Connection]) -> ClientConnection:
        """Build the protocol of a client, as a listener does."""
        endpoint: ReservedPath | None = self.notary if self.context.inbound else None
        if self.peers is not None and self.peers.collector is not None:
            endpoint = CollectedReceipts(self.store, self.collector, self.rotation)
        return ClientConnection(self.context, endpoint, os.urandom, connections)

    def client(self, svid: X509Svid = CALLER) -> tuple[ClientConnection, Wire]:
        """Accept a client connection."""
        inbound = self.context.inbound
        wire = Wire(Handle(evidence_of(svid)) if inbound else None)
        client = self.build(cast(Any, self.open))
        client.makeConnection(wire)
        return client, wire

    def upstream(self, number: int = -1) -> tuple[Any, Wire]:
        """Return a connection to the application."""
        return self.endpoint.connections[number]

    def respond(self, data: bytes, number: int = -1) -> None:
        """Send octets from the application."""
        self.endpoint.connections[number][0].dataReceived(data)

    def lose_upstream(self, number: int = -1, *, clean: bool = True) -> None:
        """Close a connection from the application's side."""
        reason = ConnectionDone() if clean else ConnectionLost()
        self.endpoint.connections[number][0].connectionLost(Failure(reason))

    def change(self, bundles: BundleSet | None = None) -> None:
        """Put bundles into force, or announce another change, and decide on all open connections again."""
        if bundles is not None:
            self.rotation.bundles = bundles
        self.context.credentials_changed()
        self.reauthorization.begin()
        self.clock.advance(0)

    def sweep(self, seconds: float = 0.0) -> None:
        """Advance the clock and sweep, as the service does."""
        if seconds:
            self.clock.advance(seconds)
        now = self.clock.seconds()
        self.context.tick = now
        self.pool.sweep(now)
        for client in list(self.open):
            client.sweep(now, self.wall())


def lose(client: ClientConnection) -> None:
    """Disconnect the client."""
    client.connectionLost(Failure(ConnectionDone()))
