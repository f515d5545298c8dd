"""What all controllers under one configuration have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from svc import naming
from svc.errors import SvcError
from svc.identity import SpiffeID, TrustDomain, X509Svid
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


def spire_server(spire: SpireSettings, source: WorkloadSource, trust_domain: TrustDomain) -> SpireServer:
    """Make the client of the SPIRE server, of which the manager is an administrator by its SVID."""
    return SpireServer.at_port(spire.server.host, spire.server.port, lambda: _spire_context(source, trust_domain))


def own_svid(source: WorkloadSource) -> X509Svid:
    """
    Return the SVID by which the manager is known in its cluster: the other one is shown to peers, and may be the first.

    Raises:
        CredentialsMissing: there is no SVID yet.
    """
    return next((each for each in source.svids if each.spiffe_id.path != naming.M2M_PATH), source.svid)


def _spire_context(source: WorkloadSource, trust_domain: TrustDomain) -> ServerContext:
    """
    Make the TLS context of one connection to the SPIRE server, with the SVID by which the manager is its administrator.

    Raises:
        CredentialsMissing: there is no SVID yet.
    """
    return server_context(
        own_svid(source), source.bundles.bundle_for(trust_domain), SpiffeID(trust_domain, _SERVER_PATH)
    )
