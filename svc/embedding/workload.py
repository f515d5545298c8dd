"""
The workload that a program is: its identity, its statement, and endpoints under both.

Assembles parts of ``workload``, ``transport`` and ``notary``, and starts and stops them together.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol, Self
from weakref import WeakSet

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from svc.client.target import Target
from svc.client.verification import Demands, Trust
from svc.embedding.agent import HttpAgent, RequestBody, RequestHeaders, ServerMatcher, parse_level
from svc.embedding.arguments import Duration, count, seconds
from svc.embedding.errors import EmbeddingError
from svc.embedding.issuing import first_statement, issue_statements
from svc.embedding.opening import open_service
from svc.embedding.pool import ConnectionPool, PoolLimits
from svc.embedding.response import BoundedBody, StreamedResponse, VerifiedResponse
from svc.envelope.profile import Profile
from svc.identity import BundleSet, Matcher, SpiffeID, SvidEvidence, TrustDomain, X509Svid, parse_matcher
from svc.naming import DEFAULT_SPIFFE_SOCKET
from svc.notary.batchcheck import VerifiedBatchCache
from svc.notary.facts import WorkloadFacts
from svc.notary.pqleaf import PqLeaf
from svc.notary.statement import StatementEvidence, verify_statement
from svc.notary.verification import Anchors
from svc.policy.engine import DEFAULT_DENY, Denied
from svc.process.clock import utc_now
from svc.proxy.credential_rotation import CredentialRotation
from svc.telemetry.connections import ConnectionLog, log_suppressed
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.log_limits import DenialLimiter
from svc.transport.addresses import Address, TcpAddress, parse_address
from svc.transport.creators import HTTP_1_1, client_creator, server_creator
from svc.transport.endpoints import MutualTlsClientEndpoint, MutualTlsServerEndpoint
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.transport.groups import GroupPolicy
from svc.workload.interface import WITHDRAWAL_GRACE_SECONDS, CredentialSource
from svc.workload.pqclient import fetch_pq_leaf
from svc.workload.pqfile import PqBundleSource, pq_bundle_path
from svc.workload.source import WorkloadSource

#: Octets of a response's body.
MAX_BODY: Final = 16 * 1024 * 1024
_log = Logger()


class PqRoots(Protocol):
    """A source of post-quantum roots, such as ``svc.workload.pqfile.PqBundleSource``."""

    @property
    def bundles(self) -> BundleSet:
        """The roots of each trust domain; raises an ``SvcError`` while there are none."""


class Workload(MultiService):
    """
    The identity of a program: its SVID, the bundles that it trusts, and its statements.

    It is a Twisted service, and an identity for ``server_creator`` and ``client_creator``. Credentials rotate while it
    runs; each new connection uses the current ones.

    Args:
        source: gives SVID and bundles.
        reactor: the reactor.
        pq_roots: the post-quantum roots that verify statements of others.
        generations: makes this workload's own statements, or None where it issues none.
        profile: the signatures that statements of others must have.
        now: the wall clock, aware UTC.
    """

    def __init__(
        self,
        source: CredentialSource,
        *,
        reactor: Any,
        pq_roots: PqRoots,
        generations: CredentialRotation | None = None,
        profile: Profile = Profile.HYBRID,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__()
        self._source = source
        self._reactor = reactor
        self._pq_roots = pq_roots
        self._generations = generations
        self._profile = profile
        self._now = now
        suppressed = partial(log_suppressed, _log, ProxyEvent.DENIALS_SUPPRESSED)
        self._connections = ConnectionLog(DenialLimiter(reactor, suppressed))
        self._pools: WeakSet[ConnectionPool] = WeakSet()
        parts: tuple[object, ...] = (source, pq_roots, generations)
        for part in parts:
            if isinstance(part, Service):
                part.setServiceParent(self)

    @classmethod
    def from_workload_api(
        cls,
        agent: str = DEFAULT_SPIFFE_SOCKET,
        *,
        reactor: Any,
        pq_issuer: str | None = None,
        pq_issuer_id: str | None = None,
        pq_bundle: str | None = None,
        profile: str = "hybrid",
        facts: WorkloadFacts | None = None,
        trust_domain: str | None = None,
        hint: str | None = None,
        start_timeout: Duration = 30.0,
        withdrawal_grace: Duration = WITHDRAWAL_GRACE_SECONDS,
    ) -> Self:
        """
        Use the identity of a SPIFFE Workload API; the workload is not started.

        Args:
            agent: its socket, ``unix:///run/svc/agent.sock``.
            reactor: the reactor.
            pq_issuer: the issuer of the post-quantum leaf for own statements, a socket or ``host:port``; None issues no
                statements, unless ``profile`` is ``classical``.
            pq_issuer_id: the identity that an issuer at ``host:port`` must have, a matcher; None accepts any of the
                trust domain.
            pq_bundle: the file of the post-quantum roots; else ``SVC_PQ_BUNDLE``, else ``pq-bundle.json`` beside the
                agent's socket.
            profile: ``hybrid``, ``pq``, ``classical`` or ``cnsa2``.
            facts: what own statements contain besides the identity; the host name by default.
            trust_domain: the trust domain that the SVID must be of; None accepts any.
            hint: selects the SVID where there are several.
            start_timeout: how long :meth:`when_ready` waits at most: seconds or ``"30s"``.
            withdrawal_grace: how long answers without an identity have to persist before it is withdrawn: seconds, or
                ``"5m"`` beside a SPIRE server that may lose its entries.

        Raises:
            SocketAddressInvalid: ``agent`` is not an address of a Unix socket.
            ArgumentInvalid: ``start_timeout`` or ``withdrawal_grace`` is no duration.
            SvcError: another argument is not acceptable.
        """
        limit = seconds("start_timeout", start_timeout)
        domain = TrustDomain.parse(trust_domain) if trust_domain is not None else None
        source = WorkloadSource(
            agent,
            reactor=reactor,
            start_timeout=limit,
            trust_domain=domain,
            hint=hint,
            withdrawal_grace=seconds("withdrawal_grace", withdrawal_grace),
        )
        roots = PqBundleSource(pq_bundle_path(pq_bundle, os.environ, agent) or "", reactor=reactor)
        chosen = Profile.parse(profile)
        generations = None
        if pq_issuer is not None or chosen is Profile.CLASSICAL:
            expected = parse_matcher(pq_issuer_id) if pq_issuer_id is not None else None

            def obtain_leaf(svid: X509Svid) -> Deferred[PqLeaf]:
                algorithm = "ML-DSA-87" if chosen is Profile.CNSA2 else "ML-DSA-65"
                return fetch_pq_leaf(
                    pq_issuer or "", svid, source, reactor, now=utc_now, expected=expected, algorithm=algorithm
                )

            generations = issue_statements(
                source,
                None if chosen is Profile.CLASSICAL else obtain_leaf,
                profile=chosen,
                facts=facts or WorkloadFacts.explicit(host_name=socket.gethostname()),
                reactor=reactor,
                now=utc_now,
            )
        return cls(source, reactor=reactor, pq_roots=roots, generations=generations, profile=chosen)

    @classmethod
    async def open(cls, agent: str = DEFAULT_SPIFFE_SOCKET, *, reactor: Any, **choices: Any) -> Self:
        """
        Start a workload that runs until the reactor shuts down, and wait until it is ready.

        Args:
            agent: the socket of the Workload API.
            reactor: the reactor.
            choices: as for :meth:`from_workload_api`.

        Raises:
            WorkloadApiUnavailable: no identity came in time.
            SvcError: an argument is not acceptable, or the issuer gave no leaf.
        """
        return await open_service(cls.from_workload_api(agent, reactor=reactor, **choices), reactor)

    async def when_ready(self) -> None:
        """
        Wait for the identity, and for the own statement where statements are issued.

        Raises:
            WorkloadApiUnavailable: no identity came in time.
            EmbeddingError: ``notary_unavailable``, no statement was made in time.
        """
        await self._source.when_ready()
        if self._generations is not None:
            await first_statement(self._generations, self._reactor)

    def stopService(self) -> Deferred[None]:
        """Stop the parts, close idle connections, and log the count of refused connections that were not logged."""
        self._connections.close()
        for pool in list(self._pools):
            pool.close()
        stopped: Deferred[None] = super().stopService()
        return stopped

    # -- Identity and statements -------------------------------------------------------------------------------------

    @property
    def svid(self) -> X509Svid:
        """
        The SVID that TLS presents; with statements, the one of the current statement.

        Raises:
            CredentialsMissing: there is none yet.
        """
        return self._source.svid if self._generations is None else self._generations.svid

    @property
    def bundles(self) -> BundleSet:
        """
        The current trust bundles.

        Raises:
            CredentialsMissing: there are none yet.
        """
        return self._source.bundles

    @property
    def spiffe_id(self) -> SpiffeID:
        """
        The SPIFFE ID.

        Raises:
            CredentialsMissing: there is no SVID yet.
        """
        return self.svid.spiffe_id

    def statement(self, transport: object) -> bytes:
        """
        Return the serialized statement for the SVID that was presented on a connection.

        Raises:
            EmbeddingError: ``statement_missing``, this workload issues none.
            PeerNotVerified: the transport is no connection of this workload's endpoints.
        """
        if self._generations is None:
            raise EmbeddingError("statement_missing")
        found = self._generations.of_evidence(peer_evidence(transport))
        if found is None:
            raise EmbeddingError("statement_missing")
        return found.statement.envelope.serialize()

    def verify_statement(
        self,
        envelope: bytes,
        peer: object,
        *,
        expected_id: str | None = None,
        issuers: Sequence[SpiffeID] = (),
    ) -> StatementEvidence:
        """
        Verify a statement of the peer of a connection.

        Args:
            envelope: the statement as received, from any source.
            peer: the transport of the connection, or its ``peer_evidence``; the statement must be bound to the key of
                the peer's SVID.
            expected_id: the identifier that the peer named, if any.
            issuers: central issuers; with them a statement that a workload issued itself is refused.

        Raises:
            NotaryError: the statement is refused; ``reason`` says why.
            PeerNotVerified: it is no connection with a verified peer.
            PqFileRefused: there are no post-quantum roots.
        """
        return verify_statement(
            envelope,
            expected_id=expected_id,
            profile=self._profile,
            anchors=self._anchors(),
            now=self._now(),
            peer=(peer if isinstance(peer, PeerEvidence) else peer_evidence(peer)).svid,
            issuers=issuers,
        )

    # -- Endpoints ---------------------------------------------------------------------------------------------------

    def server_endpoint(
        self, address: str, *, allow: str | Matcher, alpn: Sequence[bytes] = (), groups: GroupPolicy = "default"
    ) -> MutualTlsServerEndpoint:
        """
        Listen as this workload; protocols are built only for verified and allowed peers.

        Args:
            address: ``host:port``, ``[ipv6]:port`` or ``:port``.
            allow: who may connect: ``spiffe://td/path``, ``spiffe://td/path/*`` or ``spiffe://td/*``; others are
                refused in the handshake, and logged as svc-proxy logs them.
            alpn: the accepted application protocols; empty ignores ALPN.
            groups: ``require`` refuses peers without post-quantum key agreement.

        Raises:
            AddressInvalid: ``address`` is not one.
            MatcherMalformed: ``allow`` is not one.
        """
        allowed = _matcher(allow)

        def authorize(caller: SvidEvidence) -> None:
            if not allowed.matches(caller.spiffe_id):
                raise Denied(identity=caller.spiffe_id, policy=DEFAULT_DENY, rule=DEFAULT_DENY)

        log = self._connections
        creator = server_creator(self, clock=self._now, authorize=authorize, alpn=alpn, groups=groups, observer=log)
        return MutualTlsServerEndpoint(self._reactor, parse_address(address), creator, wall=self._now)

    def client_endpoint(
        self, address: str, *, expect: str | Matcher, alpn: Sequence[bytes] = (), groups: GroupPolicy = "default"
    ) -> MutualTlsClientEndpoint:
        """
        Connect as this workload; fires with a protocol whose peer is verified and expected.

        Args:
            address: ``host:port``, ``[ipv6]:port`` or ``unix:///path``.
            expect: the identity of the server: ``spiffe://td/path``, ``spiffe://td/path/*`` or ``spiffe://td/*``.
            alpn: the offered application protocols; empty offers none.
            groups: ``require`` refuses peers without post-quantum key agreement.

        Raises:
            AddressInvalid: ``address`` is not one.
            MatcherMalformed: ``expect`` is not one.
        """
        where = parse_address(address)
        name = where.server_name if isinstance(where, TcpAddress) else None
        return self._endpoint(where, _matcher(expect), name, alpn=alpn, groups=groups)

    def _endpoint(
        self,
        where: Address,
        expected: Matcher,
        server_name: str | None,
        *,
        alpn: Sequence[bytes] = HTTP_1_1,
        groups: GroupPolicy = "default",
    ) -> MutualTlsClientEndpoint:
        creator = client_creator(
            self, clock=self._now, expected=expected, server_name=server_name, alpn=alpn, groups=groups
        )
        return MutualTlsClientEndpoint(self._reactor, where, creator, wall=self._now)

    # -- Requests ----------------------------------------------------------------------------------------------------

    def http_agent(
        self,
        *,
        expect: str | Matcher | Mapping[str, str | Matcher],
        notarization: str = "workload",
        issuers: Sequence[SpiffeID] = (),
        timeout: Duration = 60.0,
        max_requests: int = 256,
        idle_per_host: int = 2,
        idle_timeout: Duration = 240.0,
    ) -> HttpAgent:
        """
        Make an ``IAgent`` for treq and Twisted: servers are verified, and responses by their statements and receipts.

        Args:
            expect: the identity of the servers: ``spiffe://td/path``, ``spiffe://td/path/*`` or ``spiffe://td/*``;
                or one for each ``host:port``.
            notarization: ``workload``, ``logRequest`` or ``signRequest``, which verifies a receipt of each exchange.
            issuers: central issuers; with them a statement that a workload issued itself is refused.
            timeout: how long neither side may send anything while a response is awaited: seconds or ``"60s"``.
            max_requests: requests at the same time; one more fails.
            idle_per_host: connections that are kept open for each host and port.
            idle_timeout: how long each is kept.

        Raises:
            ArgumentInvalid: an argument is not acceptable.
            MatcherMalformed: ``expect`` is not one.
        """
        limits = PoolLimits(
            count("max_requests", max_requests),
            count("idle_per_host", idle_per_host, 0),
            seconds("idle_timeout", idle_timeout),
        )
        pool = ConnectionPool(self._reactor, self._endpoint, self._reauthorize, limits)
        self._pools.add(pool)
        batches = VerifiedBatchCache()
        return HttpAgent(
            self._reactor,
            pool,
            expected=_server_matcher(expect),
            demands=Demands(level=parse_level(notarization), profile=self._profile, issuers=tuple(issuers)),
            trust=lambda: Trust(self._anchors(), batches=batches),
            now=self._now,
            silence=seconds("timeout", timeout),
        )

    async def request(
        self,
        method: str,
        url: str,
        *,
        expect: str | Matcher,
        headers: RequestHeaders | None = None,
        body: RequestBody | None = None,
        notarization: str = "workload",
        issuers: Sequence[SpiffeID] = (),
        max_body: int = MAX_BODY,
        timeout: Duration = 60.0,
    ) -> VerifiedResponse:
        """
        Send a request to a service behind ``svc-proxy`` or a ``NotarySite``, and verify its response.

        Args:
            method: ``GET``, ``POST`` and so on.
            url: ``https://host:port/path``.
            expect: the identity of the server: ``spiffe://td/path``, ``spiffe://td/path/*`` or ``spiffe://td/*``.
            headers: further fields: a mapping, pairs, or ``twisted.web.http_headers.Headers``.
            body: bytes; or an ``IBodyProducer`` or asynchronous iterable, which is sent as it is produced.
            notarization: ``workload``, ``logRequest`` or ``signRequest``, which verifies a receipt of the exchange.
            issuers: central issuers; with them a statement that a workload issued itself is refused.
            max_body: the most octets of the response's body.
            timeout: how long everything may take: seconds or ``"60s"``.

        Raises:
            NotaryError: there is no statement or receipt, or it is refused; ``reason`` says why.
            TransportError: no connection with the expected peer.
            ExchangeFailed: the connection ended too early, or its server does not send HTTP/1.1.
            ProxyAnswered: the proxy itself answered, with an error.
            RequestInvalid: method, URL or headers cannot be sent.
            ArgumentInvalid: another argument is not acceptable.
            EmbeddingError: ``answer_too_large``, ``answer_late`` or ``url_unsupported``.
        """
        limit = seconds("timeout", timeout)
        count("max_body", max_body, 0)
        agent = self.http_agent(
            expect=expect, notarization=notarization, issuers=issuers, timeout=limit, idle_per_host=0
        )
        whole = Deferred.fromCoroutine(_whole(agent.start(method, url, headers=headers, body=body), max_body))
        whole.addTimeout(limit, self._reactor)
        try:
            return await whole
        except DeferredTimeout as error:
            missing = "its answer was not complete"
            raise EmbeddingError("answer_late", url=url, seconds=f"{limit:g}", missing=missing) from error

    async def stream(
        self,
        method: str,
        url: str,
        *,
        expect: str | Matcher,
        headers: RequestHeaders | None = None,
        body: RequestBody | None = None,
        notarization: str = "workload",
        issuers: Sequence[SpiffeID] = (),
        timeout: Duration = 60.0,
    ) -> StreamedResponse:
        """
        Send a request as :meth:`request` does, and return when the response begins: its body is read while it arrives.

        Nothing is verified before the end of the body: the iteration raises there where anything is wrong, and then
        nothing that was read may be used. ``await response.verified()`` returns the evidence.

        Args:
            method: ``GET``, ``POST`` and so on.
            url: ``https://host:port/path``.
            expect: the identity of the server: ``spiffe://td/path``, ``spiffe://td/path/*`` or ``spiffe://td/*``.
            headers: as for :meth:`request`.
            body: as for :meth:`request`.
            notarization: as for :meth:`request`.
            issuers: as for :meth:`request`.
            timeout: how long neither side may send anything while the response is awaited: seconds or ``"60s"``.

        Raises:
            SvcError: as for :meth:`request`; what concerns the end of the response is raised by the iteration.
        """
        agent = self.http_agent(
            expect=expect, notarization=notarization, issuers=issuers, timeout=timeout, idle_per_host=0
        )
        return await agent.start(method, url, headers=headers, body=body)

    async def get(self, url: str, *, expect: str | Matcher, max_body: int = MAX_BODY) -> VerifiedResponse:
        """
        GET as :meth:`request` does, at the level ``workload``.

        Args:
            url: ``https://host:port/path``.
            expect: the identity of the server: ``spiffe://td/path``, ``spiffe://td/path/*`` or ``spiffe://td/*``.
            max_body: the most octets of the response's body.

        Raises:
            SvcError: as for :meth:`request`.
        """
        return await self.request("GET", url, expect=expect, max_body=max_body)

    def _anchors(self) -> Anchors:
        return Anchors(self.bundles, BundleSet() if self._profile is Profile.CLASSICAL else self._pq_roots.bundles)

    def _reauthorize(self, peer: PeerEvidence) -> None:
        now = self._now()
        peer.verify_time(now)
        peer.reauthorize(self.spiffe_id, self.bundles, now)


async def _whole(beginning: Deferred[StreamedResponse], max_body: int) -> VerifiedResponse:
    response = await beginning
    reader = BoundedBody(max_body, response.abort)
    response.deliverBody(reader)
    body = await reader.whole
    return VerifiedResponse(response.code, response.headers, body, await response.verified())


def _server_matcher(expect: str | Matcher | Mapping[str, str | Matcher]) -> ServerMatcher:
    if not isinstance(expect, Mapping):
        only = _matcher(expect)
        return lambda _target: only
    matchers = {str(parse_address(address)): _matcher(each) for address, each in expect.items()}

    def of_target(target: Target) -> Matcher:
        found = matchers.get(target.server)
        if found is None:
            raise EmbeddingError("server_unnamed", server=target.server)
        return found

    return of_target


def _matcher(given: str | Matcher) -> Matcher:
    return parse_matcher(given) if isinstance(given, str) else given
