"""
The controller of the cluster's own side of federation: the Secret with the roots, and the status of ``SvcCluster``.

The leader writes both. Every replica follows them and serves bundle and package to peers.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from twisted.logger import Logger

from svc import naming
from svc.errors import SvcError
from svc.federation.package import VerifiedPackage, verify_package
from svc.federation.payload import M2MEndpoint
from svc.identity import SpiffeID
from svc.kube.cache import Cache, run_all
from svc.kube.client import Object
from svc.kube.kinds import CLUSTER_NAME, CLUSTERS, NODES, SECRETS, SERVICES
from svc.kube.status import apply_status
from svc.manager.config import FederationSettings
from svc.manager.context import ClusterContext, ClusterSpire
from svc.manager.federation.bundle import peer_bundle
from svc.manager.federation.endpoint import M2MPages, Published
from svc.manager.federation.package import due_package, needs_successor, own_content
from svc.manager.federation.roots import (
    FederationKeysMissing,
    OwnRoots,
    first_roots,
    read_roots,
    secret_data,
    succeeded,
)
from svc.manager.federation.status import FoundEndpoints, cluster_status, find_endpoints
from svc.pages.site import ConnectionTimes, HttpService
from svc.settings import HostPort
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.logs import emit
from svc.transport.endpoints import TransportReactor
from svc.transport.heldtls import HeldTls, HeldTlsCreator
from svc.workload.errors import CredentialsMissing, NoOwnSvid, PqFileMissing
from svc.workload.pqfile import pq_bundle_path, read_pq_bundles

#: Seconds between two looks at the SVID of peers.
_SVID_SECONDS: Final = 1.0
#: Of the endpoint: a peer fetches in one connection, within seconds.
_TIMES: Final = ConnectionTimes(idle=15.0, lifetime=60.0, age=30.0)
_NEW: Final[Object] = {
    "apiVersion": CLUSTERS.api_version,
    "kind": CLUSTERS.name,
    "metadata": {"name": CLUSTER_NAME},
}


class FederationController:
    """
    Keeps federation roots and package where this replica leads, and serves them wherever it runs.

    Args:
        address: where peers are answered; None for nowhere.
        reactor: the asyncio reactor.
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "federation"

    def __init__(
        self,
        context: ClusterContext,
        settings: FederationSettings,
        spire: ClusterSpire,
        address: HostPort | None,
        reactor: Any,
        changed: Callable[[], object],
    ) -> None:
        self._client = context.client
        self._namespace = context.namespace
        self._trust_domain = context.trust_domain
        self._settings = settings
        self._every = spire.settings.every
        self._now = context.now
        self._metrics = context.metrics
        self._secrets = context.named(SECRETS, naming.FEDERATION_SECRET, changed, namespace=context.namespace)
        self._services = context.named(SERVICES, naming.M2M_SERVICE, changed, namespace=context.namespace)
        self._clusters = context.named(CLUSTERS, CLUSTER_NAME, changed)
        self._nodes = context.cache(NODES, lambda: None)
        self._verified: tuple[str, VerifiedPackage | None] = ("", None)
        self._roots: tuple[Object | None, OwnRoots | None] = (None, None)
        self._source = spire.source
        self._pq_bundle = pq_bundle_path(settings.pqBundle, os.environ, spire.settings.spiffeSocketPath) or ""
        self._server = spire.server()
        self._m2m_id = SpiffeID(self._trust_domain, naming.M2M_PATH)
        self._tls: HeldTls | None = None
        pages = M2MPages(
            self._published, lambda found: self._metrics.bundle_served(found=found), M2MEndpoint(self._m2m_id)
        )
        self._endpoint = HttpService(
            address,
            pages,
            reactor=TransportReactor(reactor),
            key="m2mAddr",
            creator=HeldTlsCreator(self._held_tls),
            times=_TIMES,
        )

    @property
    def caches(self) -> Sequence[Cache]:
        """What it follows."""
        return self._secrets, self._services, self._clusters, self._nodes

    async def follow(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run_all(self.caches))
                group.create_task(self._serve())
        finally:
            if self._endpoint.running:
                await self._endpoint.stopService().asFuture(asyncio.get_running_loop())

    async def reconcile(self) -> float:
        """
        Bring roots, package and status forward.

        Returns:
            Seconds until the bundles are read again.

        Raises:
            SvcError: the package could not be renewed; the status says why.
        """
        now = self._now()
        found = self._clusters.objects.get(("", CLUSTER_NAME))
        if found is None:
            found = await self._client.create(CLUSTERS, _NEW)
        former = self._package(found)
        service = self._services.objects.get((self._namespace, naming.M2M_SERVICE))
        given = (found.get("spec") or {}).get("m2mEndpoint", "")
        endpoints = find_endpoints(given, service, self._nodes.objects.values())
        try:
            package: VerifiedPackage | None = await self._renewed(former, endpoints, now)
            failure: SvcError | None = None
        except SvcError as error:
            package, failure = former, error
        status = cluster_status(found, self._trust_domain, package, failure, endpoints, now)
        await apply_status(self._client, CLUSTERS, found, status, manager=naming.MANAGER)
        if failure is not None:
            raise failure
        return self._every

    async def _renewed(
        self, former: VerifiedPackage | None, endpoints: FoundEndpoints, now: datetime
    ) -> VerifiedPackage:
        secret = self._secrets.objects.get((self._namespace, naming.FEDERATION_SECRET))
        if secret is None:
            if former is not None:
                raise FederationKeysMissing(name=naming.FEDERATION_SECRET, sequence=former.content.sequence)
            roots = first_roots(self._trust_domain, now)
            await self._write(roots, None)
        else:
            roots = self._read(secret)
        bundle = peer_bundle(await self._bundle(), self._trust_domain)
        pq = read_pq_bundles(self._pq_bundle).entries.get(self._trust_domain)
        if pq is None:
            raise PqFileMissing(path=self._pq_bundle)
        content = partial(own_content, bundle=bundle, pq=pq)
        if needs_successor(roots, self._settings.rootTtl, now):
            roots = succeeded(roots, now, lambda new: content(new, now=now))
            await self._write(roots, secret)
        hint = endpoints.endpoints[0] if endpoints.endpoints else None
        return due_package(roots, lambda issued: content(roots, now=issued), former, hint, now)

    async def _bundle(self) -> Any:
        try:
            return await self._server.bundle()
        finally:
            # Each attempt has the SVID and the bundle of now.
            self._server.close()

    async def _write(self, roots: OwnRoots, former: Object | None) -> None:
        metadata = {"name": naming.FEDERATION_SECRET, "namespace": self._namespace}
        body: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        body["data"] = secret_data(roots)
        if former is None:
            await self._client.create(SECRETS, body)
        else:
            body["metadata"] = former["metadata"]
            await self._client.replace(SECRETS, body)
        before = None if roots.previous is None else roots.previous.fingerprint.grouped
        emit(
            self.log,
            ManagerEvent.FEDERATION_ROOTS,
            attributes={
                "sequence": roots.sequence,
                "fingerprint": roots.fingerprint.grouped,
                "former_fingerprint": before,
            },
        )

    def _read(self, secret: Object) -> OwnRoots:
        known, roots = self._roots
        if roots is None or known is not secret:
            roots = read_roots(secret, self._trust_domain)
            self._roots = secret, roots
        return roots

    def _package(self, found: Object) -> VerifiedPackage | None:
        """The package in the status; None where there is none of this trust domain."""
        data = ((found.get("status") or {}).get("bootstrapPackage") or {}).get("data", "")
        if data != self._verified[0]:
            try:
                package: VerifiedPackage | None = verify_package(base64.b64decode(data))
            except (SvcError, ValueError):
                package = None
            self._verified = data, package
        package = self._verified[1]
        return package if package is not None and package.content.trust_domain == self._trust_domain else None

    def _published(self) -> Published | None:
        """What peers get: what the leader has written, if it is of the roots in the Secret."""
        found = self._clusters.objects.get(("", CLUSTER_NAME))
        secret = self._secrets.objects.get((self._namespace, naming.FEDERATION_SECRET))
        package = None if found is None else self._package(found)
        if package is None or secret is None:
            return None
        try:
            return Published(package, self._read(secret).links)
        except SvcError:
            return Published(package, {})

    def _held_tls(self) -> HeldTls:
        if self._tls is None:
            raise NoOwnSvid(defect=f"there is no {self._m2m_id}")
        return self._tls

    async def _serve(self) -> None:
        """Take each new SVID of peers; the port opens with the first one."""
        failed = ""
        while True:
            try:
                self._present()
                failed = ""
            except CredentialsMissing:
                # SPIRE may come long after the manager; who leads says so.
                failed = ""
            except SvcError as error:
                if error.reason != failed:
                    emit(
                        self.log,
                        ManagerEvent.RECONCILE_FAILED,
                        detail_reason=error.reason,
                        detail=str(error),
                        attributes={"controller": self.name},
                    )
                failed = error.reason
            await asyncio.sleep(_SVID_SECONDS)

    def _present(self) -> None:
        svid = next((each for each in self._source.svids if each.spiffe_id == self._m2m_id), None)
        if svid is None:
            return
        if self._tls is None or self._tls.chain != tuple(svid.chain):
            self._tls = HeldTls(tuple(svid.chain), svid.private_key)
        if not self._endpoint.running:
            self._endpoint.startService()
