"""What all controllers under one configuration have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from svc import naming
from svc.errors import SvcError
from svc.identity import BundleSet, SpiffeID, TrustDomain, X509Svid
from svc.kube.cache import Cache
from svc.kube.client import Client
from svc.kube.kinds import NAMESPACES, Kind
from svc.manager.config import ClusterSettings, SpireSettings
from svc.manager.metrics import ManagerMetrics
from svc.spire.server import ServerContext, SpireServer, server_context
from svc.workload.source import WorkloadSource

#: What SPIRE names its servers.
_SERVER_PATH: Final = "/spire/server"


@dataclass(frozen=True)
class ClusterContext:
    """
    One cluster under one configuration, as a replica of the manager sees it.

    Args:
        client: of the API server.
        namespace: of the manager.
        settings: the configuration in force.
        now: returns the time, aware.
        failed: receives why a watch or the election failed.
    """

    client: Client = field(repr=False)
    namespace: str
    settings: ClusterSettings
    metrics: ManagerMetrics = field(repr=False)
    now: Callable[[], datetime] = field(repr=False)
    failed: Callable[[SvcError], object] = field(repr=False)

    @property
    def trust_domain(self) -> TrustDomain:
        """Of the cluster."""
        return TrustDomain.parse(self.settings.trustDomain)

    def cache(
        self, kind: Kind, changed: Callable[[], object], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Cache:
        """Make a cache, as :class:`~svc.kube.cache.Cache` describes it; it is to be run."""
        return Cache(self.client, kind, changed, self.failed, namespace=namespace, labels=labels, fields=fields)

    def named(self, kind: Kind, name: str, changed: Callable[[], object], *, namespace: str = "") -> Cache:
        """Make a cache of the one object with this name."""
        return self.cache(kind, changed, namespace=namespace, fields=f"metadata.name={name}")

    def enabled_namespaces(self, changed: Callable[[], object]) -> Cache:
        """Make a cache of the namespaces whose pods get the proxy; that of the manager is never one."""
        labels = f"{naming.LABEL_INJECTION}={naming.INJECTION_ENABLED}"
        return self.cache(NAMESPACES, changed, labels=labels, fields=f"metadata.name!={self.namespace}")


class ClusterSpire:
    """
    SPIRE as all controllers of a replica reach it, with one stream of the Workload API.

    Implements :class:`~svc.transport.creators.TlsIdentity` as the manager is known in its cluster.

    Attributes:
        settings: the configuration.
        source: of the SVIDs; run by :meth:`run`.
    """

    def __init__(
        self, settings: SpireSettings, trust_domain: TrustDomain, metrics: ManagerMetrics, reactor: Any
    ) -> None:
        self.settings = settings
        self._trust_domain = trust_domain
        self._metrics = metrics
        self._failures = 0
        self.source = WorkloadSource(
            settings.spiffeSocketPath,
            reactor=reactor,
            start_timeout=None,
            trust_domain=trust_domain,
            changed=self._changed,
        )

    @property
    def svid(self) -> X509Svid:
        """
        The SVID by which the manager is known in its cluster: the other one is shown to peers, and may be the first.

        Raises:
            CredentialsMissing: there is no SVID yet.
        """
        return next((each for each in self.source.svids if each.spiffe_id.path != naming.M2M_PATH), self.source.svid)

    @property
    def bundles(self) -> BundleSet:
        """
        The bundles of the own and of federated trust domains.

        Raises:
            CredentialsMissing: there are none yet.
        """
        return self.source.bundles

    def server(self) -> SpireServer:
        """Make a client of the SPIRE server, of which the manager is an administrator by its SVID."""
        server = self.settings.server
        return SpireServer.at_port(server.host, server.port, self._context)

    async def run(self) -> None:
        """Follow the Workload API until cancelled; it may come long after the manager, as SPIRE does."""
        self.source.startService()
        try:
            await asyncio.Event().wait()
        finally:
            await self.source.stopService().asFuture(asyncio.get_running_loop())

    def _context(self) -> ServerContext:
        """
        Make the TLS context of one connection to the server.

        Raises:
            CredentialsMissing: there is no SVID yet.
        """
        roots = self.bundles.bundle_for(self._trust_domain)
        return server_context(self.svid, roots, SpiffeID(self._trust_domain, _SERVER_PATH))

    def _changed(self) -> None:
        state = self.source.state
        failures = state.failures + state.rejected
        self._metrics.sources_failed(failures - self._failures)
        self._failures = failures
