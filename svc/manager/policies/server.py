"""
The listener of ``controlPlaneAddr`` on every replica: workloads over mutual TLS with the manager's SVID.

The port opens when the SVID is there, which may be long after the manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.web.resource import IResource

from svc.errors import SvcError
from svc.identity import SpiffeID, SvidEvidence, TrustDomain
from svc.manager.context import ClusterContext, ClusterSpire
from svc.manager.policies.endpoint import PolicyPages, PolicyRequestRefused, Published
from svc.naming import FOREIGN_PQ_PATH, POLICY_PATH
from svc.pages.callers import Folder, TlsCaller, caller_site
from svc.pages.mutual_tls import TlsListener
from svc.pages.waiting import WaitingPages
from svc.policyfiles.published import PublishedPolicies
from svc.settings import HostPort
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.log_limits import RecordLimiter
from svc.telemetry.logs import emit
from svc.transport.addresses import TcpAddress
from svc.transport.creators import TlsIdentity
from svc.transport.errors import PeerDenied, PeerSvidInvalid, TransportError
from svc.transport.observer import NullObserver, Role
from svc.workload.errors import CredentialsMissing

#: One for each proxy of the cluster that waits for a change at this replica.
MAX_CONNECTIONS: Final = 4096
#: Seconds after which a connection ends with its next answer: the next one has the SVIDs of then.
AGE: Final = 300.0
#: Seconds between two looks at the own SVID, while there is none.
_SVID_SECONDS: Final = 1.0
#: Seconds in which changes are put together.
_TOGETHER: Final = 0.05
#: One record a second for each identity and reason.
_REFUSAL_SECONDS: Final = 1.0
_MAX_KINDS: Final = 1024
#: By which logs and metrics name it.
_KEPT: Final = "policy-endpoint"


#: Receives a refusal, and to whom.
Refused = Callable[[SvcError, SpiffeID | None], None]


class PolicyServer:
    """
    Serves policies and statements to workloads, and the roots of peers to agents.

    Args:
        address: where.
        reactor: the asyncio reactor.
        ready: see :class:`~svc.manager.policies.endpoint.PolicyPages`, as the three that follow.
        statements: makes the pages for statements from the manager's identity and what receives refusals; None where
            there are none.
    """

    log = Logger()

    def __init__(
        self,
        context: ClusterContext,
        spire: ClusterSpire,
        address: HostPort,
        reactor: Any,
        *,
        ready: Callable[[], bool],
        namespace_of: Callable[[SpiffeID], str | None],
        published: Callable[[str], PublishedPolicies | None],
        roots: Callable[[], Published | None],
        statements: Callable[[TlsIdentity, Refused], WaitingPages] | None,
    ) -> None:
        self._context = context
        self._reactor = reactor
        self._spire = spire
        self._limiter = RecordLimiter(_REFUSAL_SECONDS, _MAX_KINDS)
        self._due: IDelayedCall | None = None
        self._failed = ""
        self._pages = PolicyPages(
            ready,
            namespace_of,
            published,
            roots,
            context.metrics.policies_requested,
            partial(self._record, ManagerEvent.POLICIES_DENIED),
            clock=reactor,
            now=context.now,
        )
        root, version = Folder(), Folder()
        root.putChild(b"v1", version)
        for path in (POLICY_PATH, FOREIGN_PQ_PATH):
            version.putChild(path.rpartition("/")[2].encode("ascii"), self._pages)
        self._statements = None
        if statements is not None:
            self._statements = statements(spire, partial(self._record, ManagerEvent.STATEMENT_DENIED))
            version.putChild(b"statement", self._statements)
        self._listener = policy_listener(
            TcpAddress(address.host, address.port),
            spire,
            context.trust_domain,
            root,
            partial(self._record, ManagerEvent.POLICIES_DENIED),
            now=context.now,
            reactor=reactor,
        )

    def changed(self) -> None:
        """Look at what waits, soon."""
        if self._due is None and self._listener.running:
            self._due = self._reactor.callLater(_TOGETHER, self._look)

    async def run(self) -> None:
        """Serve until cancelled."""
        beside = None if self._statements is None else asyncio.ensure_future(self._statements.run())
        try:
            while True:
                if not self._listener.running:
                    self._open()
                await asyncio.sleep(_SVID_SECONDS)
        finally:
            if self._due is not None:
                self._due.cancel()
                self._due = None
            closed = self._listener.stopService()
            self._pages.release()
            if self._statements is not None and beside is not None:
                self._statements.release()
                beside.cancel()
                await asyncio.wait((beside,))
            if closed is not None:
                await closed.asFuture(asyncio.get_running_loop())

    def _open(self) -> None:
        try:
            self._spire.svid  # noqa: B018 - raises while there is none
            self._listener.startService()
            self._context.metrics.kept(_KEPT, success=True)
            self._failed = ""
        except CredentialsMissing:
            # SPIRE may come long after the manager.
            self._failed = ""
        except SvcError as error:
            self._context.metrics.kept(_KEPT, success=False)
            if error.reason != self._failed:
                emit(
                    self.log,
                    ManagerEvent.RECONCILE_FAILED,
                    detail_reason=error.reason,
                    detail=str(error),
                    attributes={"controller": _KEPT},
                )
            self._failed = error.reason

    def _look(self) -> None:
        self._due = None
        self._pages.changed()

    def _record(self, event: ManagerEvent, error: SvcError, spiffe_id: SpiffeID | None) -> None:
        omitted = self._limiter.admit((spiffe_id, error.reason), self._reactor.seconds())
        if omitted is not None:
            emit(
                self.log,
                event,
                peer_spiffe_id=None if spiffe_id is None else str(spiffe_id),
                detail_reason=error.reason,
                detail=str(error),
                attributes={"suppressed": omitted} if omitted else {},
            )


def policy_listener(
    address: TcpAddress,
    identity: TlsIdentity,
    trust_domain: TrustDomain,
    pages: IResource,
    refused: Refused,
    *,
    now: Callable[[], datetime],
    reactor: Any,
) -> TlsListener:
    """
    Make the listener of the pages.

    Args:
        address: where.
        identity: the manager's.
        trust_domain: those of other ones are refused in the handshake.
        pages: what is served.
        refused: receives why a connection is closed.
        now: returns the time, aware.
        reactor: the reactor.
    """

    def own_domain_only(peer: SvidEvidence) -> None:
        if peer.spiffe_id.trust_domain != trust_domain:
            raise PolicyRequestRefused("policy_caller_unknown", spiffe_id=peer.spiffe_id)

    site = caller_site(
        pages, lambda error, _caller: refused(error, None), TlsCaller, reactor, connections=MAX_CONNECTIONS, age=AGE
    )
    return TlsListener(
        address,
        identity,
        own_domain_only,
        site,
        now,
        reactor,
        _Handshakes(refused),
        what="the endpoint of workloads",
        key="controlPlaneAddr",
    )


class _Handshakes(NullObserver):
    """Reports peers whose identity is refused in the handshake."""

    def __init__(self, refused: Refused) -> None:
        self._refused = refused

    def handshake_failed(self, role: Role, error: TransportError, address: str) -> None:
        if isinstance(error, PeerDenied | PeerSvidInvalid):
            self._refused(error, None)
