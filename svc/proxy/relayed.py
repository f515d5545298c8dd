"""
A client's connection that has one connection to the upstream of its own: what TCP and MQTT share.

Owns when it is decided on again, its slot of the listener, its octets, and its reports.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol

from svc.errors import SvcError
from svc.identity import SpiffeID
from svc.policy.engine import ConnectionPolicy, Permit
from svc.policy.rules import RequestFacts
from svc.policyfiles.settings import Policies
from svc.proxy.errors import IdentityGone, ProxyError
from svc.proxy.evaluation import Evaluation, Kept, Refused
from svc.proxy.eviction import IdentityShare
from svc.proxy.listener import Connection
from svc.proxy.relayed_context import RelayedContext
from svc.proxy.reporter import ConnectionSummary, PolicyDecision
from svc.telemetry.labels import Cause
from svc.transport.errors import PeerCredentialsEnded, TransportError
from svc.transport.evidence import PeerEvidence, peer_evidence


class RelayedClient:
    """
    A client's connection, which adds itself to the ``registry`` of open connections and removes itself.

    Subclasses say what it is to decide on a client, and how a connection ends.
    """

    #: See :class:`svc.proxy.eviction.EvictableConnection`; that no octets pass does not show that nothing is under way.
    evictable = True
    transport: Any

    def __init__(self, context: RelayedContext, registry: set[Connection]) -> None:
        self.context = context
        self._registry = registry
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
        self._dropped = False
        self._started = context.seconds()
        self._activity = context.tick
        #: Octets of both directions at the last sweep, and those counted.
        self._seen = self._counted_received = self._counted_sent = 0

    # What subclasses have.

    @property
    def received(self) -> int:
        """Octets of the client."""
        raise NotImplementedError

    @property
    def returned(self) -> int:
        """Octets of the upstream."""
        raise NotImplementedError

    @property
    def _upstream_evidence(self) -> PeerEvidence | None:
        """The verified peer of an outbound listener, once it is connected to."""
        raise NotImplementedError

    @property
    def forwarded(self) -> int:
        """Octets that were handed to the connection to the upstream."""
        raise NotImplementedError

    def abort(self, cause: Cause) -> None:
        """See :class:`svc.proxy.listener.Connection`."""
        raise NotImplementedError

    def _revoke(self, cause: Cause) -> None:
        """End, since what permitted the connection is no longer in force."""
        raise NotImplementedError

    def _decide(self, policies: Policies, evidence: PeerEvidence) -> None:
        """Raise Denied where the policies refuse the client."""
        raise NotImplementedError

    def _drain(self) -> None:
        """End in order, since this side has another SVID."""
        raise NotImplementedError

    # -- The client --------------------------------------------------------------------------------------------------

    @property
    def evidence(self) -> PeerEvidence | None:
        """What the handshake with the client proved; None outbound."""
        return self._evidence

    @property
    def identity(self) -> SpiffeID | None:
        """The verified identity of the client; None outbound."""
        return None if self._evidence is None else self._evidence.svid.spiffe_id

    def _register(self) -> None:
        context = self.context
        self._registry.add(cast(Connection, self))
        context.reauthorization.add(self)
        context.metrics.active.inc()

    def _identify(self) -> PeerEvidence:
        """Take the evidence of the handshake; raises IdentityGone where this side's identity ended meanwhile."""
        evidence = self._evidence = peer_evidence(self.transport)
        if evidence.own_svid.spiffe_id != self.context.rotation.identity:
            raise IdentityGone()
        return evidence

    def _narrowed(self, policies: Policies, evidence: PeerEvidence) -> ConnectionPolicy:
        """The policies for this client; raises Denied where it is on a deny list."""
        self._policies = policies
        listed = policies.listed(evidence.svid)
        if listed is not None:
            raise listed
        return self.context.narrowed(policies, evidence)

    def _authorize(self, rules: ConnectionPolicy, facts: RequestFacts) -> Permit:
        """Decide, with what policies in dry run and Audit policies say; raises Denied."""
        if rules.observed:
            permitted = rules.decide(facts).allowed
            self.context.observe(rules, facts, self._peer, None, permitted=permitted)
        permit = rules.authorize(facts)
        self._decision = PolicyDecision(permit.policy, permit.rule, "")
        return permit

    # -- The end -----------------------------------------------------------------------------------------------------

    def evict(self, error: SvcError) -> None:
        """Report it, free the slot at once and drop both connections."""
        self.context.reporter.evicted(error.reason, self._address, self._peer, str(error))
        self.abort(cast(Cause, error.reason))

    def _free_slot(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            self.context.evictions.leave(self, share)

    def _remove(self, *, complete: bool) -> None:
        """Both connections are closed: count and report."""
        self._registry.discard(cast(Connection, self))
        self._free_slot()
        self.context.reauthorization.discard(self)
        self._count_octets()
        context, cause = self.context, self._cause or "other"
        context.metrics.active.dec()
        context.metrics.closed(cause)
        if context.reporter.every_exchange:
            context.reporter.connection_ended(
                ConnectionSummary(
                    listener=context.name,
                    direction=context.metrics.direction,
                    peer=self._other_identity,
                    address=self._address,
                    received_octets=self.received,
                    sent_octets=self.returned,
                    seconds=context.seconds() - self._started,
                    cause=cause,
                    complete=complete,
                    decision=self._decision,
                )
            )

    # -- Limits and changes ------------------------------------------------------------------------------------------

    def _notice_activity(self, now: float) -> None:
        """Count octets, and remember when the last ones passed."""
        self._count_octets()
        seen = self.received + self.returned
        if seen != self._seen:
            self._seen, self._activity = seen, now
            if self._share is not None:
                self._share.used(self)

    def _ended_with_credentials(self, wall: datetime) -> bool:
        """End with the credentials of either side; returns whether they have ended."""
        upstream = self._upstream_evidence
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
            self._revoke("peer_expired" if isinstance(error, PeerCredentialsEnded) else "credentials_expired")
            return True
        return False

    def reauthorize(self) -> bool:
        """See :class:`svc.proxy.context.AuthorizedConnection`."""
        if self._dropped:
            return False
        evidence, context = self._evidence, self.context
        if evidence is None:
            return self._evaluate_upstream()

        def authorize() -> None:
            if context.policies is not None and context.policies is not self._policies:
                self._decide(context.policies, evidence)

        evaluation = context.evaluate(evidence, authorize)
        if isinstance(evaluation, Refused):
            self._report_denied(evaluation.error)
        return self._act_on(evaluation)

    def abort_defective(self) -> None:
        """See :class:`svc.proxy.context.AuthorizedConnection`."""
        self.abort("defect")

    def _evaluate_upstream(self) -> bool:
        evidence = self._upstream_evidence
        return evidence is not None and self._act_on(self.context.evaluate_upstream(evidence))

    def _act_on(self, evaluation: Evaluation) -> bool:
        if isinstance(evaluation, Refused):
            self._revoke(evaluation.cause)
        elif evaluation is Kept.DRAIN:
            self._drain()
        return self._dropped

    # -- Reports -----------------------------------------------------------------------------------------------------

    @property
    def _peer(self) -> str:
        """The verified identity of the client; empty outbound."""
        return "" if self._evidence is None else str(self._evidence.svid.spiffe_id)

    @property
    def _other_identity(self) -> str:
        """The verified identity of the client inbound, of the peer outbound."""
        upstream = self._upstream_evidence
        return self._peer if upstream is None else str(upstream.svid.spiffe_id)

    @property
    def _address(self) -> str:
        return str(getattr(self.transport.getPeer(), "host", "") or "local")

    def _report_denied(self, error: SvcError) -> None:
        decision = self.context.report_refused(error, self._address, self._peer)
        if decision is not None:
            self._decision = decision

    def _report_failure(self, error: ProxyError) -> None:
        self.context.reporter.exchange_failed(error.reason, self._peer, str(error), error.detail_reason)

    def _count_octets(self) -> None:
        """Move the octets counted here to the metrics."""
        metrics, received, forwarded = self.context.metrics, self.received, self.forwarded
        if received != self._counted_received:
            metrics.bytes_received.inc(received - self._counted_received)
            self._counted_received = received
        if forwarded != self._counted_sent:
            metrics.bytes_sent.inc(forwarded - self._counted_sent)
            self._counted_sent = forwarded
