"""
One connection of a client and its connection to the upstream, from the accept to the end of both.

A client is authorized before anything is sent to the upstream; a client that is refused, or whose upstream cannot be
reached, is dropped.
"""

from __future__ import annotations

from datetime import datetime

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from svc.policy.engine import Denied
from svc.policy.rules import RequestFacts
from svc.policyfiles.settings import Policies
from svc.proxy.errors import IdentityGone
from svc.proxy.listener import Connection
from svc.proxy.relayed import RelayedClient
from svc.proxy.relayed_context import RelayedContext
from svc.proxy.tcp.relay import RelayEnd
from svc.telemetry.labels import Cause
from svc.transport.errors import (
    ConnectFailed,
    ConnectionLimitReached,
    KeyUpdateLimitReached,
    OwnSvidRefused,
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


class TcpConnection(RelayedClient, RelayEnd):
    """A client's connection: authorized when it is accepted."""

    def __init__(self, context: RelayedContext, registry: set[Connection]) -> None:
        RelayEnd.__init__(self)
        RelayedClient.__init__(self, context, registry)
        self._upstream: UpstreamEnd | None = None
        self._ended_first = False
        #: When it is closed, since it was made under a former SVID of this proxy; None unless it is to end.
        self._drain_until: float | None = None

    @property
    def received(self) -> int:
        """See :class:`svc.proxy.relayed.RelayedClient`."""
        return self.octets

    @property
    def returned(self) -> int:
        """See :class:`svc.proxy.relayed.RelayedClient`."""
        return 0 if self._upstream is None else self._upstream.octets

    @property
    def _upstream_evidence(self) -> PeerEvidence | None:
        # One that is gone need not be verified any more.
        return None if self._upstream is None or self._upstream.gone else self._upstream.evidence

    @property
    def forwarded(self) -> int:
        """See :class:`svc.proxy.relayed.RelayedClient`."""
        return 0 if self._upstream is None else self.octets

    # -- The beginning -----------------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Authorize the client; behind TLS it is verified already."""
        context = self.context
        self._register()
        try:
            if context.policies is not None:
                self._admit(context.policies)
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

    def _admit(self, policies: Policies) -> None:
        context = self.context
        evidence = self._identify()
        self._decide(policies, evidence)
        context.metrics.auth_allowed.inc()
        # The bundles may have changed during the handshake, and no other is evicted for a client that is refused.
        if not self.reauthorize():
            self._share = context.evictions.admit(self, evidence.svid.spiffe_id)
        context.metrics.succeeded.inc()

    def _decide(self, policies: Policies, evidence: PeerEvidence) -> None:
        """Raise Denied where the policies refuse the client."""
        self._authorize(self._narrowed(policies, evidence), _NO_REQUEST)

    def _connect(self) -> None:
        self._attempt = self.context.endpoint.connect(_UpstreamFactory(self))
        self._attempt.addCallbacks(self._connected, self._not_connected)

    def _connected(self, upstream: UpstreamEnd) -> None:
        context = self.context
        self._attempt = None
        self._upstream = upstream
        if self._changes != context.reauthorization.changes:
            self._evaluate_upstream()
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

    cut = _revoke = abort

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
        self._remove(complete=self.complete and upstream is not None and upstream.complete)

    # -- Limits and changes ------------------------------------------------------------------------------------------

    def sweep(self, now: float, wall: datetime) -> None:
        """Check the time limits; called about twice a second."""
        self._notice_activity(now)
        upstream = self._upstream
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

    def _drain(self) -> None:
        """Close some time after a rotation of the own SVID: octets have no end to wait for."""
        if self._drain_until is None:
            self._drain_until = self.context.seconds() + self.context.drain_seconds()
