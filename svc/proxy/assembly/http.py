"""From the configuration of an HTTP listener to the listener, and what all HTTP listeners share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from svc.identity import BundleSet, SpiffeID
from svc.identity.matchers import AnyOf, parse_matcher
from svc.notary.level import Level
from svc.notary.statement import StatementEvidence
from svc.notary.verification import Anchors
from svc.policy.attributes import UNKNOWN, Attributes
from svc.policy.engine import Denied
from svc.process.clock import utc_now
from svc.proxy.assembly.endpoints import upstream_host, upstream_name
from svc.proxy.assembly.shared import ContextParts, ProxyParts
from svc.proxy.config import ListenerSettings
from svc.proxy.http.client import ClientConnection
from svc.proxy.http.context import HttpContext
from svc.proxy.http.notary_endpoint import CollectedReceipts, NotaryEndpoint, ReservedPath
from svc.proxy.http.peer_verification import PeerVerifier, VerifiedEndpoint
from svc.proxy.http.upstream import UpstreamPool
from svc.proxy.listener import Listener
from svc.proxy.observers import ListenerObserver
from svc.proxy.peer_conditions import PeerConditions
from svc.wire.http1 import MessageLimits
from svc.workload.pqfile import PqBundleSource, pq_bundle_path


class HttpListeners:
    """
    Builds the HTTP listeners of one proxy.

    ``watch_roots`` is called once with post-quantum roots whose changes are to be applied.
    """

    def __init__(self, parts: ProxyParts, watch_roots: Callable[[PqBundleSource], None]) -> None:
        self._parts = parts
        self._watch_roots = watch_roots
        #: Post-quantum roots for the verification of peers, once a listener demands it.
        self.pq_roots: PqBundleSource | None = None

    def listener(self, settings: ListenerSettings, observer: ListenerObserver, shared: ContextParts) -> Listener:
        """Build a listener; nothing starts yet."""
        demanded = settings.notarization if settings.direction == "inbound" else settings.demanded_of_peer
        peers = None if settings.demanded_of_peer == "none" else self._peer_verification(settings, observer)
        context = HttpContext(
            **shared,
            notarizer=self._parts.notarizer,
            pool=self._pool(settings, observer, peers),
            peers=peers,
            notary_metrics=self._parts.metrics.notary("http"),
            demanded=Level.parse(demanded),
            maximum=Level.parse(settings.maxNotarization),
            unix_time=time.time,
            forwarded=settings.forwarded != "off",
            host=None if settings.host is None else settings.host.encode("ascii"),
            upstream_host=upstream_host(settings),
            released=self._parts.released,
        )
        evictions = context.evictions
        endpoint = self._parts.endpoints.server(
            settings, observer, (evictions.evict_unpermitted,), (evictions.evict_idle,)
        )
        notary: ReservedPath | None = self._notary_endpoint(settings) if settings.notarizes else None
        if settings.collectReceipts:
            notary = CollectedReceipts(self._parts.store, self._parts.collector, self._parts.rotation)
        return Listener(
            context, endpoint, lambda connections: ClientConnection(context, notary, os.urandom, connections)
        )

    def _peer_verification(self, settings: ListenerSettings, observer: ListenerObserver) -> PeerVerifier:
        notary, timeouts = self._parts.settings.notary, settings.timeouts
        if self._parts.verified_profile.needs_post_quantum and self.pq_roots is None:
            path = pq_bundle_path(notary.pqBundle, os.environ, self._parts.settings.spiffeSocketPath)
            self.pq_roots = PqBundleSource(path or "", reactor=self._parts.reactor)
            self._watch_roots(self.pq_roots)
        return PeerVerifier(
            upstream=upstream_name(settings),
            host=upstream_host(settings),
            level=Level.parse(settings.demanded_of_peer),
            profile=self._parts.verified_profile,
            anchors=self._anchors,
            listed=self._listed_statement,
            pq_path=None if self.pq_roots is None else self.pq_roots.path,
            clock=self._parts.reactor,
            wall=utc_now,
            statement_seconds=timeouts.connect,
            receipt_seconds=timeouts.response,
            observer=observer,
            collector=self._parts.collector if settings.collectReceipts else None,
            conditions=self._peer_conditions(settings),
        )

    def _peer_conditions(self, settings: ListenerSettings) -> PeerConditions | None:
        given = settings.peerStatement
        if given is None:
            return None

        def own() -> Attributes:
            identity = self._parts.rotation.identity
            return UNKNOWN if identity is None else self._parts.policies.current.attributes.attributes(identity)

        issuers = tuple(SpiffeID.parse(text) for text in given.issuers)
        return PeerConditions(settings.name, issuers, tuple(each.source() for each in given.conditions), own)

    def _listed_statement(self, statement: StatementEvidence) -> Denied | None:
        return self._parts.policies.current.listed_statement(statement.id, statement.subject)

    def _anchors(self) -> Anchors:
        """The roots by which peers are verified; raises where post-quantum ones are needed and none were ever read."""
        return Anchors(self._parts.rotation.bundles, BundleSet() if self.pq_roots is None else self.pq_roots.bundles)

    def _pool(self, settings: ListenerSettings, observer: ListenerObserver, peers: PeerVerifier | None) -> UpstreamPool:
        endpoint = self._parts.client_endpoint(settings, observer)
        return UpstreamPool(
            endpoint if peers is None else VerifiedEndpoint(endpoint, peers),
            upstream_name(settings),
            connect_timeout=settings.timeouts.connect,
            limits=MessageLimits(head=settings.limits.head, fields=settings.limits.fields),
            max_idle=settings.limits.idleUpstream,
            idle_timeout=settings.timeouts.idleUpstream,
            seconds=self._parts.reactor.seconds,
            wall=utc_now,
            turns=self._parts.turns,
            unreachable=observer.upstream_unreachable,
            # Where the peer has to prove more, its verification counts it.
            accepted=observer.upstream_accepted if peers is None else lambda: None,
            ended=observer.upstream_ended,
            peers=peers,
        )

    def _notary_endpoint(self, settings: ListenerSettings) -> NotaryEndpoint:
        notary = self._parts.settings.notary
        readers = AnyOf(tuple(parse_matcher(each) for each in notary.readers)) if notary.readers else None
        return NotaryEndpoint(
            self._parts.store,
            self._parts.notarizer,
            self._parts.rotation,
            profile=self._parts.profile,
            readers=readers,
            receipts=Level.parse(settings.maxNotarization) is Level.SIGN_REQUEST,
            retention=notary.retention,
            limits={"head": settings.limits.head, "fields": settings.limits.fields},
        )
