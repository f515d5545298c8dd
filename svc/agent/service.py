"""The agent as a daemon: the composition of its parts."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svc import __version__
from svc.agent.config import AgentSettings, CsiSettings, PqBundleSettings
from svc.agent.metrics import AgentMetrics
from svc.agent.nodefiles import NodeFiles
from svc.agent.pqbundle import NodePqBundle
from svc.csi import CsiService, LinuxMounts, NodeDriver
from svc.csi.service import CsiObserver, NodeService, RegistrationService
from svc.errors import SvcError
from svc.identity.matchers import ExactID, parse_matcher
from svc.identity.pqbundle import PqBundles
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.naming import FOREIGN_PQ_PATH, MANAGER_PATH, MAX_FOREIGN_PQ
from svc.process.clock import ClockService, utc_now
from svc.process.daemon import Daemon
from svc.process.history import Totals
from svc.process.lifecycle import stop_if_running
from svc.telemetry.events.agent import AgentEvent
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.health import Health
from svc.telemetry.logs import emit
from svc.workload.errors import CredentialsMissing
from svc.workload.interface import WORKLOAD_API, report_health
from svc.workload.managerwatch import ManagerWatch
from svc.workload.pqclient import fetch_pq_bundles
from svc.workload.source import WorkloadSource

#: The kubelet uses the CSI driver of the node.
CSI: Final = "csi"
#: The files of SVIDs are there, none has expired, and the programs that read them know.
FILES: Final = "files"
#: The post-quantum roots of the node are those of the issuer. Not required: verifiers have the last ones.
PQ_BUNDLE: Final = "pqBundle"
#: The post-quantum roots of peers are those of the manager. Not required, as the ones before.
FOREIGN_ROOTS: Final = "foreignRoots"
#: Facts of the kubelet about the pod of a volume (``podInfoOnMount``), by their names in log records.
_POD_FACTS: Final = {
    "csi.storage.k8s.io/pod.namespace": "namespace",
    "csi.storage.k8s.io/pod.name": "pod",
    "csi.storage.k8s.io/pod.uid": "pod_uid",
    "csi.storage.k8s.io/serviceAccount.name": "service_account",
}


class RestartRequired(SvcError):
    """the configuration of svc-agent is read at its start alone"""

    reason = "restart_required"
    hint = "restart it: mounted volumes stay, and pods that start meanwhile wait"


class Agent(Daemon[AgentSettings]):
    """
    The agent of one node.

    The Workload API is no condition of readiness: the agent runs before the first SPIRE agent of the node, whose pod
    needs no volume, but those of all others do.

    Args:
        settings: the configuration.
        reactor: the asyncio reactor.
        fatal: see :class:`~svc.process.daemon.Daemon`.
        load: see :class:`~svc.process.daemon.Daemon`.
    """

    log = Logger()

    def __init__(
        self,
        settings: AgentSettings,
        reactor: Any,
        fatal: Callable[[], None],
        load: Callable[[], AgentSettings],
        *,
        now: Callable[[], datetime] = utc_now,
        make_source: Callable[..., WorkloadSource] = WorkloadSource,
    ) -> None:
        pq = settings.pqBundle
        manager = None if pq is None else pq.controlPlane
        parts = {CSI: settings.csi, FILES: settings.files, PQ_BUNDLE: pq, FOREIGN_ROOTS: manager}
        conditions = [*(name for name, part in parts.items() if part), WORKLOAD_API]
        health = Health(conditions, optional=(PQ_BUNDLE, FOREIGN_ROOTS, WORKLOAD_API), now=now)
        super().__init__(settings, reactor, health, fatal, load)
        registry = CollectorRegistry()
        self._metrics = AgentMetrics(registry, now)
        self._source = make_source(
            settings.spiffeSocketPath,
            reactor=reactor,
            trust_domain=TrustDomain.parse(settings.trustDomain),
            now=now,
            changed=self._source_changed,
        )
        self._metrics.follow(self._source)
        ClockService(now, reactor, self._clock_stepped).setServiceParent(self.servers)
        self._pq_bundle = None if pq is None else self._bundle_service(pq, now)
        self._manager = None
        if self._pq_bundle is not None and manager is not None:
            self._manager = self._manager_watch(str(manager), self._pq_bundle, now)
        self._files = NodeFiles(settings, self._source, reactor, now, partial(health.report, FILES))
        self._csi = None if settings.csi is None else _csi_service(settings.csi, _Volumes(health))
        self.serve_pages("agent", Totals, self._members, metrics=registry)

    async def open(self) -> None:
        """Serve the driver at once: the pods of this node wait for it."""
        self._source.startService()
        # It may come long after the agent, with the first SPIRE agent of the node.
        self._source.when_ready().addErrback(lambda _failure: None)
        for part in (self._csi, self._pq_bundle, self._manager, self._files):
            if part is not None:
                part.startService()

    def closing(self) -> Iterable[Callable[[], object]]:
        parts = (self._csi, self._manager, self._pq_bundle, self._files)
        return (*(partial(stop_if_running, part) for part in parts), self._stop_source)

    def sweep(self) -> None:
        self._files.check()

    async def take(self, settings: AgentSettings) -> Mapping[str, str | int | bool]:
        """Accept an equal configuration only."""
        if settings != self.settings:
            raise RestartRequired
        return {}

    async def finish(self) -> None:
        """Nothing that was begun lasts."""

    def _bundle_service(self, settings: PqBundleSettings, now: Callable[[], datetime]) -> NodePqBundle:
        expected = parse_matcher(settings.issuerID)
        trust_domain = TrustDomain.parse(self.settings.trustDomain)
        node = _node_name(self.settings.csi)

        def fetch(served: PqBundles | None) -> Deferred[PqBundles]:
            own = None if served is None else served.entries.get(trust_domain)
            return fetch_pq_bundles(
                str(settings.issuer),
                self._source,
                self._reactor,
                now=now,
                expected=expected,
                node=node,
                sequence=0 if own is None else own.sequence,
            )

        return NodePqBundle(
            settings.file,
            trust_domain,
            fetch,
            settings.every,
            self._reactor,
            partial(self._health.report, PQ_BUNDLE),
            peers=settings.controlPlane is not None,
        )

    def _manager_watch(self, address: str, bundle: NodePqBundle, now: Callable[[], datetime]) -> ManagerWatch:
        async def changed(data: bytes, _version: str) -> None:
            bundle.take_foreign(PqBundles.parse(data))

        return ManagerWatch(
            address,
            FOREIGN_PQ_PATH,
            self._source,
            self._reactor,
            now=now,
            expected=ExactID(SpiffeID(TrustDomain.parse(self.settings.trustDomain), MANAGER_PATH)),
            max_answer=MAX_FOREIGN_PQ,
            ready=self._source.when_ready,
            changed=changed,
            observer=_ForeignRoots(partial(self._health.report, FOREIGN_ROOTS)),
        )

    def _stop_source(self) -> Deferred[None]:
        self._metrics.stopped()
        return self._source.stopService()

    def _source_changed(self) -> None:
        if self._source.running:
            self._metrics.changed(self._source)
            report_health(self._health, self._source.state)

    def _clock_stepped(self, seconds: float) -> None:
        emit(self.log, DaemonEvent.CLOCK_STEPPED, attributes={"seconds": round(seconds, 3)})
        self._source.clock_stepped()

    def _members(self) -> Mapping[str, Any]:
        return {}


class _ForeignRoots:
    """Sets the condition :data:`FOREIGN_ROOTS`, and logs each reason once, until an answer comes."""

    log = Logger()

    def __init__(self, state: Callable[[SvcError | None], None]) -> None:
        self._state = state
        self._said = ""

    def manager_answered(self) -> None:
        self._said = ""
        self._state(None)

    def manager_failed(self, error: SvcError) -> None:
        self._state(error)
        # Before the first SVID there is nothing to say that the Workload API does not say.
        if error.reason != self._said and not isinstance(error, CredentialsMissing):
            self._said = error.reason
            emit(self.log, AgentEvent.PQ_BUNDLE_FAILED, detail_reason=error.reason, detail=str(error))


class _Volumes(CsiObserver):
    """Logs what the driver does, and sets the condition :data:`CSI`; equal refusals of a volume are logged once."""

    log = Logger()
    #: Volumes whose last refusal is remembered.
    _REMEMBERED: Final = 256

    def __init__(self, health: Health) -> None:
        self._health = health
        self._refused: dict[str, str] = {}

    def published(self, volume: str, attributes: Mapping[str, str]) -> None:
        self._refused.pop(volume, None)
        facts = {name: attributes[key] for key, name in _POD_FACTS.items() if key in attributes}
        emit(self.log, AgentEvent.VOLUME_PUBLISHED, attributes={"volume": volume, **facts})

    def unpublished(self, volume: str) -> None:
        self._refused.pop(volume, None)
        emit(self.log, AgentEvent.VOLUME_UNPUBLISHED, attributes={"volume": volume})

    def failed(self, error: SvcError) -> None:
        volume, said = str(error.evidence.get("volume")), str(error)
        # The kubelet tries again, at last every two minutes.
        if self._refused.get(volume) == said:
            return
        if len(self._refused) >= self._REMEMBERED:
            self._refused.pop(next(iter(self._refused)))
        self._refused[volume] = said
        emit(self.log, AgentEvent.VOLUME_FAILED, detail_reason=error.reason, detail=said)

    def registered(self, error: SvcError | None) -> None:
        self._health.report(CSI, error)
        if error is None:
            emit(self.log, AgentEvent.CSI_REGISTERED)
        else:
            emit(self.log, AgentEvent.CSI_FAILED, detail_reason=error.reason, detail=str(error))


def _node_name(settings: CsiSettings | None) -> str:
    given = None if settings is None else settings.nodeName
    return given or os.environ.get("NODE_NAME") or socket.gethostname()


def _csi_service(settings: CsiSettings, observer: CsiObserver) -> CsiService:
    driver = NodeDriver(settings.folders, settings.pods, LinuxMounts())
    return CsiService(
        NodeService(settings.driver, __version__, _node_name(settings), driver, observer),
        RegistrationService(settings.driver, settings.endpoint or settings.socket, observer),
        settings.socket,
        os.path.join(settings.registration, f"{settings.driver}-reg.sock"),
        observer,
    )
