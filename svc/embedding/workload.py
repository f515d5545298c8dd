"""
The workload that a program is: its identity, its statement, and endpoints under both.

Owns the choice of parts and their start and end together. What they are is in ``workload``, ``transport`` and
``notary``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, Self

from twisted.application.service import MultiService, Service

from svc.embedding.client import MAX_BODY, VerifiedAnswer, fetch
from svc.embedding.issuing import LeafIssuer, first_generation, own_generations
from svc.embedding.opening import opened
from svc.errors import SvcError
from svc.identity import BundleSet, Matcher, SpiffeID, SvidEvidence, TrustDomain, X509Svid, parse_matcher
from svc.naming import DEFAULT_SPIFFE_SOCKET
from svc.notary.facts import WorkloadFacts
from svc.notary.profile import Profile
from svc.notary.statement import StatementEvidence, verify_statement
from svc.notary.verification import Anchors
from svc.policy import AccessRequest, AllowListed, DenyAll
from svc.proxy.generations import Generations
from svc.transport.addresses import TcpAddress, parse_address
from svc.transport.creators import client_creator, server_creator
from svc.transport.endpoints import MutualTlsClientEndpoint, MutualTlsServerEndpoint
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.transport.groups import GroupPolicy
from svc.workload.interface import CredentialSource
from svc.workload.pqfile import PqBundleSource, pq_bundle_path
from svc.workload.source import WorkloadSource, utc_now


class StatementNotIssued(SvcError):
    """this workload issues no statements: it was opened without pq_issuer"""

    reason = "statement_missing"
    hint = "give pq_issuer, the socket of the post-quantum issuer, or profile='classical'"


class PqRoots(Protocol):
    """Whatever has post-quantum roots, such as ``svc.workload.pqfile.PqBundleSource``."""

    @property
    def bundles(self) -> BundleSet:
        """The roots of each trust domain; raises an ``SvcError`` while there are none."""


class Workload(MultiService):
    """
    One workload: what it presents, whom it believes, what it says of itself.

    It is a Twisted service, and an identity for ``server_creator`` and ``client_creator``. Everything rotates while it
    runs; each new connection uses what is in force then.

    Args:
        source: gives SVID and bundles.
        reactor: the reactor.
        pq_roots: the post-quantum roots for judging statements of others.
        generations: issues this workload's own statements, or None where it issues none.
        profile: the signatures that statements of others must have.
        now: the wall clock, aware UTC.
    """

    def __init__(
        self,
        source: CredentialSource,
        *,
        reactor: Any,
        pq_roots: PqRoots,
        generations: Generations | None = None,
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
        start_timeout: float = 30.0,
    ) -> Self:
        """
        Take the identity from a SPIFFE Workload API.

        Args:
            agent: its socket, ``unix:///run/svc/agent.sock``.
            reactor: the reactor.
            pq_issuer: who issues the post-quantum leaf for own statements, a socket or ``host:port``; None issues no
                statements, unless ``profile`` is ``classical``.
            pq_issuer_id: who an issuer at ``host:port`` must be.
            pq_bundle: the file of the post-quantum roots; else ``SVC_PQ_BUNDLE``, else ``pq-bundle.json`` beside the
                agent's socket.
            profile: ``hybrid``, ``pq``, ``classical`` or ``cnsa2``.
            facts: what own statements say besides the identity; the host name by default.
            trust_domain: the trust domain that the SVID must be of; None takes any.
            hint: the SVID to take where there are several.
            start_timeout: seconds that :meth:`when_ready` waits at most.

        Returns:
            The workload, not started.

        Raises:
            SocketAddressInvalid: ``agent`` is no address of a Unix socket.
            SvcError: another argument is not acceptable.
        """
        domain = TrustDomain.parse(trust_domain) if trust_domain is not None else None
        source = WorkloadSource(agent, reactor=reactor, start_timeout=start_timeout, trust_domain=domain, hint=hint)
        roots = PqBundleSource(pq_bundle_path(pq_bundle, os.environ, agent) or "", reactor=reactor)
        chosen = Profile.parse(profile)
        generations = None
        if pq_issuer is not None or chosen is Profile.CLASSICAL:
            told = facts or WorkloadFacts.explicit(host_name=socket.gethostname())
            issuer = None if chosen is Profile.CLASSICAL else LeafIssuer(pq_issuer or "", pq_issuer_id)
            generations = own_generations(source, issuer, profile=chosen, facts=told, reactor=reactor, now=utc_now)
        return cls(source, reactor=reactor, pq_roots=roots, generations=generations, profile=chosen)

    @classmethod
    async def open(cls, agent: str = DEFAULT_SPIFFE_SOCKET, *, reactor: Any, **choices: Any) -> Self:
        """
        Start a workload for the life of this program, and wait until it has its identity.

        Args:
            agent: the socket of the Workload API.
            reactor: the reactor; its shutdown ends the workload.
            choices: as for :meth:`from_workload_api`.

        Returns:
            The workload, ready.

        Raises:
            WorkloadApiUnavailable: no identity came in time.
            SvcError: an argument is not acceptable, or the issuer gave nothing.
        """
        return await opened(cls.from_workload_api(agent, reactor=reactor, **choices), reactor)

    async def when_ready(self) -> None:
        """
        Wait for the identity, and for the own statement where there is to be one.

        Raises:
            WorkloadApiUnavailable: no identity came in time.
            StatementLate: no statement could be made in time; says why.
        """
        await self._source.when_ready()
        if self._generations is not None:
            await first_generation(self._generations, self._reactor)

    # -- What this workload is ---------------------------------------------------------------------------------------

    @property
    def svid(self) -> X509Svid:
        """
        What TLS presents, fit for the current statement.

        Raises:
            CredentialsMissing: nothing has come yet.
        """
        return self._source.svid if self._generations is None else self._generations.svid

    @property
    def bundles(self) -> BundleSet:
        """
        The trust bundles in force.

        Raises:
            CredentialsMissing: none have come yet.
        """
        return self._source.bundles

    @property
    def spiffe_id(self) -> SpiffeID:
        """
        The identity.

        Raises:
            CredentialsMissing: it has not come yet.
        """
        return self.svid.spiffe_id

    def statement(self, transport: object) -> bytes:
        """
        Give the own statement to whoever is at the other end of a connection.

        Args:
            transport: the connection; the statement belongs to the SVID that was presented on it.

        Returns:
            The serialized envelope.

        Raises:
            StatementNotIssued: this workload issues none.
            PeerNotVerified: the transport is no connection of this workload's endpoints.
        """
        if self._generations is None:
            raise StatementNotIssued
        found = self._generations.of_evidence(peer_evidence(transport))
        if found is None:
            raise StatementNotIssued
        return found.statement.envelope.serialize()

    # -- Whom it believes --------------------------------------------------------------------------------------------

    def verify_statement(
        self,
        envelope: bytes,
        peer: object,
        *,
        expected_id: str | None = None,
        issuers: Sequence[SpiffeID] = (),
    ) -> StatementEvidence:
        """
        Judge the statement of whoever is at the other end of a connection.

        Args:
            envelope: what was received, from wherever.
            peer: the transport of the connection, or what ``peer_evidence`` told of it; the statement must be bound to
                the key of the peer's SVID.
            expected_id: the identifier that the peer named, where it did.
            issuers: central issuers; with them a statement that a workload issued itself is refused.

        Returns:
            What is proved.

        Raises:
            NotaryError: the statement is refused; ``reason`` says why.
            PeerNotVerified: it is no connection with a verified peer.
            PqFileRefused: there are no post-quantum roots.
        """
        pq = BundleSet() if self._profile is Profile.CLASSICAL else self._pq_roots.bundles
        return verify_statement(
            envelope,
            expected_id=expected_id,
            profile=self._profile,
            anchors=Anchors(spiffe=self.bundles, pq=pq),
            now=self._now(),
            peer=(peer if isinstance(peer, PeerEvidence) else peer_evidence(peer)).svid,
            issuers=issuers,
        )

    # -- Endpoints ---------------------------------------------------------------------------------------------------

    def server_endpoint(
        self, address: str, *, allow: str | Matcher, alpn: Sequence[bytes] = (), groups: GroupPolicy = "default"
    ) -> MutualTlsServerEndpoint:
        """
        Listen as this workload.

        Args:
            address: ``host:port``, ``[ipv6]:port`` or ``:port``.
            allow: who may connect: ``spiffe://td/path``, ``spiffe://td/path/*`` or ``spiffe://td/*``; everybody else is
                refused in the handshake.
            alpn: the application protocols spoken; empty ignores ALPN.
            groups: ``require`` refuses peers without post-quantum key agreement.

        Returns:
            An ``IStreamServerEndpoint``; protocols are built for verified and allowed peers only.

        Raises:
            AddressInvalid: ``address`` is none.
            MatcherMalformed: ``allow`` is none.
        """
        admit = _Admission(_matcher(allow))
        creator = server_creator(self, clock=self._now, authorize=admit, alpn=alpn, groups=groups)
        return MutualTlsServerEndpoint(self._reactor, parse_address(address), creator)

    def client_endpoint(
        self, address: str, *, expect: str | Matcher, alpn: Sequence[bytes] = (), groups: GroupPolicy = "default"
    ) -> MutualTlsClientEndpoint:
        """
        Connect as this workload.

        Args:
            address: ``host:port``, ``[ipv6]:port`` or ``unix:///path``.
            expect: who must answer, written as ``allow`` above.
            alpn: the application protocols offered; empty offers none.
            groups: ``require`` refuses peers without post-quantum key agreement.

        Returns:
            An ``IStreamClientEndpoint``; it fires with a protocol whose peer is verified and expected.

        Raises:
            AddressInvalid: ``address`` is none.
            MatcherMalformed: ``expect`` is none.
        """
        where = parse_address(address)
        name = where.server_name if isinstance(where, TcpAddress) else None
        creator = client_creator(
            self, clock=self._now, expected=_matcher(expect), server_name=name, alpn=alpn, groups=groups
        )
        return MutualTlsClientEndpoint(self._reactor, where, creator)

    async def get(self, url: str, *, expect: str | Matcher, max_body: int = MAX_BODY) -> VerifiedAnswer:
        """
        Ask a service behind ``svc-proxy`` or a :class:`~svc.embedding.site.NotarySite`, and believe nothing unverified.

        Args:
            url: ``https://host:port/path``.
            expect: who must answer, written as ``allow`` above.
            max_body: the most octets of the answer's body.

        Returns:
            The answer with the verified statement of the workload that gave it.

        Raises:
            NotaryError: there is no statement, or it is refused.
            TransportError: no connection with the expected peer.
            AnswerTooLarge: the body is larger than ``max_body``.
        """
        return await fetch(self, self._reactor, url, expect=_matcher(expect), max_body=max_body)


class _Admission:
    """Decides in the handshake."""

    def __init__(self, allowed: Matcher) -> None:
        self._policy = AllowListed([allowed], DenyAll())

    def __call__(self, caller: SvidEvidence) -> None:
        self._policy.authorize(AccessRequest(caller.spiffe_id))


def _matcher(given: str | Matcher) -> Matcher:
    return parse_matcher(given) if isinstance(given, str) else given
