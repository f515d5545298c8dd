"""
One connection of a client and its connection to the upstream, from the accept to the end of both.

A client is authorized before anything is sent to the upstream; a client that is refused, or whose upstream cannot be
reached, is dropped.
"""

from __future__ import annotations

from datetime import datetime
from typing import cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IAddress, IProtocol
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.identity import SpiffeID
from svc.identity.errors import SvidInvalid
from svc.policy.engine import Denied
from svc.policy.rules import RequestFacts
from svc.policyfiles.settings import Policies
from svc.proxy.errors import FormerSvidRefused, IdentityGone, ProxyError
from svc.proxy.eviction import IdentityShare
from svc.proxy.http.reporter import ConnectionSummary, PolicyDecision
from svc.proxy.listener import Connection
from svc.proxy.tcp.context import TcpContext
from svc.proxy.tcp.relay import RelayEnd
from svc.telemetry.labels import Cause
from svc.transport.errors import (
    ConnectFailed,
    ConnectionLimitReached,
    KeyUpdateLimitReached,
    OwnIdentityWithdrawn,
    OwnSvidRefused,
    PeerCredentialsEnded,
    TransportError,
)
from svc.transport.evidence import PeerEvidence, peer_evidence

#: A connection has no request: rules with methods, paths or hosts do not match it.
_NO_REQUEST = RequestFacts()


class UpstreamEnd(RelayEnd):
    """The connection to the upstream: the application, or the peer of an outbound listener."""

    def __init__(self, client: TcpConnection) -> None:
        super().__init__()
        self._client = client
        #: What the handshake proved; None where the upstream is an application without TLS.
        self.evidence: PeerEvidence | None = None
        #: Whether the peer may still refuse the SVID of this side, after the handshake (RFC 8446, section 4.4.2.4).
        self._may_refuse = False

    def connectionMade(self) -> None:
        """Store what the handshake proved."""
        if not self._client.context.inbound:
            self.evidence = peer_evidence(self.transport)
            self._may_refuse = True
            self.dataReceived = self._first_received  # type: ignore[method-assign]

    def _first_received(self, data: bytes) -> None:
        """The first octets show that the peer has accepted the SVID of this side."""
        del self.dataReceived
        self._accepted()
        self.dataReceived(data)

    def lost(self, reason: Failure) -> None:
        """Count the peer once."""
        if self._may_refuse and not isinstance(reason.value, OwnSvidRefused):
            self._accepted()
        self._client.upstream_lost(reason)

    def _accepted(self) -> None:
        self._may_refuse = False
        self._client.context.accepted()


class _UpstreamFactory(Factory):
    noisy = False

    def __init__(self, client: TcpConnection) -> None:
        self._client = client

    def buildProtocol(self, addr: IAddress | None) -> UpstreamEnd:  # type: ignore[override]  # it needs no factory
        return UpstreamEnd(self._client)


class TcpConnection(RelayEnd):
    """A client's connection, which adds itself to the ``registry`` of open connections and removes itself."""

    #: See :class:`svc.proxy.eviction.EvictableConnection`; that no octets pass does not show that nothing is under way.
    evictable = True

    def __init__(self, context: TcpContext, registry: set[Connection]) -> None:
        super().__init__()
        self.context = context
        self._registry = registry
        self._upstream: UpstreamEnd | None = None
        self._attempt: Deferred[IProtocol] | None = None
        #: The changes when the connection to the upstream was begun.
        self._changes = context.reauthorization.changes
        self._evidence: PeerEvidence | None = None
        self._policies: Policies | None = None
        #: The last decision of the policies; None outbound, where the peer decides.
        self._decision: PolicyDecision | None = None
        #: What its identity holds of the listener, this connection included; None while it holds no slot.
        self._share: IdentityShare | None = None
        self._cause: Cause | None = None
        self._dropped = self._ended_first = False
        #: When it is closed, since it was made under a former SVID of this proxy; None unless it is to end.
        self._drain_until: float | None = None
        self._started = context.seconds()
        self._activity = context.tick
        #: Octets of both directions at the last sweep, and those counted.
        self._seen = self._counted_received = self._counted_sent = 0

    @property
    def identity(self) -> SpiffeID | None:
        """The verified identity of the client; None outbound."""
        return None if self._evidence is None else self._evidence.svid.spiffe_id

    # -- The beginning -----------------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Authorize the client; behind TLS it is verified already."""
        context = self.context
        self._registry.add(self)
        context.reauthorization.add(self)
        context.metrics.active.inc()
        try:
            if context.policies is not None:
                self._authorize(context.policies)
            elif context.rotation.identity is None:
                raise IdentityGone()
        except IdentityGone as error:
            context.metrics.failed.inc()
            self._report_failure(error)
            self.abort("identity_withdrawn")
        except Denied as denied:
            context.metrics.auth_failed.inc()
            self._report_denied(denied)
            self.abort("policy_deny")
        except ConnectionLimitReached as error:
            context.metrics.failed.inc()
            self.evict(error)
        else:
            if not self._dropped:
                self._connect()

    def _authorize(self, policies: Policies) -> None:
        context = self.context
        evidence = self._evidence = peer_evidence(self.transport)
        if evidence.own_svid.spiffe_id != context.rotation.identity:
            # The identity ended while this connection was in its handshake.
            raise IdentityGone()
        self._decide(policies, evidence)
        context.metrics.auth_allowed.inc()
        # The bundles may have changed during the handshake, and no other is evicted for a client that is refused.
        if not self.reauthorize():
            self._share = context.evictions.admit(self, evidence.svid.spiffe_id)
        context.metrics.succeeded.inc()

    def _decide(self, policies: Policies, evidence: PeerEvidence) -> None:
        """Raise Denied where the policies refuse the client."""
        context = self.context
        self._policies = policies
        listed = policies.listed(evidence.svid)
        if listed is not None:
            raise listed
        rules = context.narrowed(policies, evidence)
        if rules.observed:
            permitted = rules.decide(_NO_REQUEST).allowed
            context.observe(rules, _NO_REQUEST, self._peer, None, permitted=permitted)
        permit = rules.authorize(_NO_REQUEST)
        self._decision = PolicyDecision(permit.policy, permit.rule, "")

    def _connect(self) -> None:
        self._attempt = self.context.endpoint.connect(_UpstreamFactory(self))
        self._attempt.addCallbacks(self._connected, self._not_connected)

    def _connected(self, upstream: UpstreamEnd) -> None:
        context = self.context
        self._attempt = None
        self._upstream = upstream
        if self._changes != context.reauthorization.changes:
            self._verify_upstream()
        if self._dropped or self.gone:
            upstream.break_off()
        else:
            self.join(upstream)

    def _not_connected(self, failure: Failure) -> None:
        self._attempt = None
        if failure.check(CancelledError, ConnectingCancelledError):
            return
        if failure.check(ConnectFailed):
            self.context.unreachable()
        self._report_failure(self.context.explained(failure.value))
        self.abort("upstream")

    # -- The end -----------------------------------------------------------------------------------------------------

    def break_off(self) -> None:
        """The upstream has broken off."""
        self.abort("application")

    def abort(self, cause: Cause) -> None:
        """Drop both connections, so that each side sees that something is missing."""
        self._dropped = True
        self._free_slot()
        if self._cause is None:
            self._cause = cause
        if self._attempt is not None:
            self._attempt.cancel()
        if self._upstream is not None:
            self._upstream.break_off()
        super().break_off()

    cut = abort

    def evict(self, error: SvcError) -> None:
        """Report it, free the slot at once and drop both connections."""
        self.context.reporter.evicted(error.reason, self._address, self._peer, str(error))
        self.abort(cast(Cause, error.reason))

    def _free_slot(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            self.context.evictions.leave(self, share)

    def readConnectionLost(self) -> None:
        """The client sends no more."""
        self._ended_first = not self._write_ended
        super().readConnectionLost()

    def lost(self, reason: Failure) -> None:
        """The client's connection is closed."""
        if self._cause is None:
            if isinstance(reason.value, KeyUpdateLimitReached):
                self._cause = "key_update_limit"
            else:
                self._cause = "client" if self._ended_first or not self.complete else "application"
        if self._attempt is not None:
            self._attempt.cancel()
        self._end_when_both_gone()

    def upstream_lost(self, reason: Failure) -> None:
        """The connection to the upstream is closed."""
        if isinstance(reason.value, OwnSvidRefused):
            self._report_failure(self.context.explained(reason.value))
            if self._cause is None:
                self._cause = "upstream"
        self._end_when_both_gone()

    def _end_when_both_gone(self) -> None:
        upstream = self._upstream
        if self not in self._registry or not self.gone or (upstream is not None and not upstream.gone):
            return
        self._registry.discard(self)
        self._free_slot()
        self.context.reauthorization.discard(self)
        self._count_octets()
        context, cause = self.context, self._cause or "other"
        context.metrics.active.dec()
        context.metrics.closed(cause)
        if context.reporter.every_exchange:
            complete = self.complete and upstream is not None and upstream.complete
            context.reporter.connection_ended(
                ConnectionSummary(
                    listener=context.name,
                    direction=context.metrics.direction,
                    peer=self._other_identity,
                    address=self._address,
                    received_octets=self.octets,
                    sent_octets=0 if upstream is None else upstream.octets,
                    seconds=context.seconds() - self._started,
                    cause=cause,
                    complete=complete,
                    decision=self._decision,
                )
            )

    # -- Limits and changes ------------------------------------------------------------------------------------------

    def sweep(self, now: float, wall: datetime) -> None:
        """Check the time limits; called about twice a second."""
        self._count_octets()
        upstream = self._upstream
        seen = self.octets + (0 if upstream is None else upstream.octets)
        if seen != self._seen:
            self._seen, self._activity = seen, now
            if self._share is not None:
                self._share.used(self)
        lifetime = self.context.timeouts.lifetime
        if self._dropped or self._ended_with_credentials(wall):
            return
        if lifetime is not None and now - self._started >= lifetime:
            self.abort("lifetime")
        elif self._drain_until is not None and now >= self._drain_until:
            if upstream is not None and upstream.evidence is not None and not upstream.gone:
                self.context.metrics.upstream_closed("rotation")
            self.abort("rotation")
        elif now - self._activity >= self.context.idle:
            self.abort("idle")

    def _ended_with_credentials(self, wall: datetime) -> bool:
        """End with the credentials of either side; returns whether they have ended."""
        upstream = None if self._upstream is None else self._upstream.evidence
        evidence = self._evidence or upstream
        if evidence is None:
            return False
        try:
            evidence.verify_time(wall)
        except TransportError as error:
            if evidence is upstream:
                self.context.ended(evidence, error)
            else:
                self._report_denied(error)
            self.abort("peer_expired" if isinstance(error, PeerCredentialsEnded) else "credentials_expired")
            return True
        return False

    def reauthorize(self) -> bool:
        """See :class:`svc.proxy.context.AuthorizedConnection`."""
        if self._dropped:
            return False
        evidence, context = self._evidence, self.context
        if evidence is None:
            return self._verify_upstream()
        try:
            evidence.reauthorize(context.rotation.identity, context.rotation.bundles, context.wall())
            if context.policies is not None and context.policies is not self._policies:
                self._decide(context.policies, evidence)
            if context.apply_rotation(evidence):
                self._drain()
        except FormerSvidRefused as error:
            self._report_denied(error)
            self.abort("rotation")
        except OwnIdentityWithdrawn:
            self.abort("identity_withdrawn")
        except (Denied, SvidInvalid) as error:
            self._report_denied(error)
            self.abort("reauthorization")
        return self._dropped

    def abort_defective(self) -> None:
        """See :class:`svc.proxy.context.AuthorizedConnection`."""
        self.abort("defect")

    def _drain(self) -> None:
        """Close some time after a rotation of the own SVID: octets have no end to wait for."""
        if self._drain_until is None:
            self._drain_until = self.context.seconds() + self.context.drain_seconds()

    def _verify_upstream(self) -> bool:
        upstream = self._upstream
        if upstream is None or upstream.gone or upstream.evidence is None:
            return False
        try:
            if self.context.verify_upstream(upstream.evidence):
                self._drain()
        except FormerSvidRefused:
            self.abort("rotation")
        except OwnIdentityWithdrawn:
            self.abort("identity_withdrawn")
        except (Denied, SvidInvalid):
            self.abort("reauthorization")
        return self._dropped

    # -- Reports -----------------------------------------------------------------------------------------------------

    @property
    def _peer(self) -> str:
        """The verified identity of the client; empty outbound."""
        return "" if self._evidence is None else str(self._evidence.svid.spiffe_id)

    @property
    def _other_identity(self) -> str:
        """The verified identity of the client inbound, of the peer outbound."""
        upstream = None if self._upstream is None else self._upstream.evidence
        return self._peer if upstream is None else str(upstream.svid.spiffe_id)

    @property
    def _address(self) -> str:
        return str(getattr(self.transport.getPeer(), "host", "") or "local")

    def _report_denied(self, error: SvcError) -> None:
        context, decision = self.context, None
        if isinstance(error, Denied):
            context.metrics.denied_policy.inc()
            decision = self._decision = PolicyDecision(error.policy, error.rule, "")
        elif isinstance(error, SvidInvalid):
            context.metrics.denied_svid.inc()
        context.reporter.denied(
            error.reason, self._address, self._peer, str(error), listener=context.name, decision=decision
        )

    def _report_failure(self, error: ProxyError) -> None:
        self.context.reporter.exchange_failed(error.reason, self._peer, str(error), error.detail_reason)

    def _count_octets(self) -> None:
        """Move the octets counted here to the metrics."""
        metrics, received = self.context.metrics, self.octets
        if received != self._counted_received:
            metrics.bytes_received.inc(received - self._counted_received)
            self._counted_received = received
        if self._upstream is not None and received != self._counted_sent:
            metrics.bytes_sent.inc(received - self._counted_sent)
            self._counted_sent = received
