"""
The writer of bundles: what is pinned of peers, in the SPIRE server.

A trust domain is one whose bundle this manager has written as long as the manager's own entry ``/svc/m2m`` federates
with it. So the record is lost with the bundles alone, and bundles of others are never deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from svc.errors import SvcError
from svc.federation.payload import PackageContent
from svc.identity import SpiffeID, TrustDomain
from svc.manager.federation.bundle import same_bundle, spire_bundle
from svc.manager.metrics import ManagerMetrics
from svc.naming import ENTRY_OWNER, M2M_PATH
from svc.spire.entries import MAX_NAMES
from svc.spire.server import SpireServer

#: Peers whose bundles are written: an entry federates with no more.
MAX_PEERS: Final = MAX_NAMES


class PeersTooMany(SvcError):
    """the bundle of {trust_domain} was not written: SPIRE has those of {limit} peers already"""

    reason = "too_many_peers"
    hint = "delete the SvcForeignClusters of peers that are not needed any more"


class BundleWriter:
    """
    Compares bundles with those of one server and writes what differs.

    Args:
        trust_domain: the own one.
    """

    def __init__(self, server: SpireServer, trust_domain: TrustDomain, metrics: ManagerMetrics) -> None:
        self._server = server
        self._m2m_id = SpiffeID(trust_domain, M2M_PATH)
        self._metrics = metrics
        #: What this process has written, until it is deleted: the record may not have it yet.
        self._written: set[str] = set()
        self._stored: dict[str, Any] = {}
        self._failure: SvcError | None = None

    async def read(self, peers: Collection[str]) -> SvcError | None:
        """
        Read the bundles of the server, and delete those of former peers.

        Args:
            peers: the trust domains of all that there are.

        Returns:
            Why something of this failed; None where nothing did.
        """
        self._stored, self._failure = {}, None
        try:
            bundles = await self._server.federated_bundles()
            entries = await self._server.entries(self._m2m_id)
        except SvcError as error:
            self._failure = error
            return error
        self._stored = {each.trust_domain: each for each in bundles}
        own = [each for each in entries if each.id.startswith(ENTRY_OWNER)]
        self._written.update(name.removeprefix("spiffe://") for each in own for name in each.federates_with)
        self._written &= self._stored.keys()
        failure: SvcError | None = None
        for name in sorted(self._written.difference(peers)):
            try:
                await self._server.delete_federated_bundle(name)
            except SvcError as error:
                failure = error
                self._metrics.bundle_written(success=False)
            else:
                self._written.discard(name)
                del self._stored[name]
                self._metrics.bundle_written(success=True)
        return failure

    async def write(self, content: PackageContent) -> None:
        """
        Write the bundle of a pinned package, unless the server has it.

        Raises:
            PeerBundleUnusable: SPIRE cannot have it.
            PeersTooMany: there are :data:`MAX_PEERS` others.
            BundleRefused: the server does not accept it.
            SvcError: the server could not be asked.
        """
        name = content.trust_domain.name
        try:
            if self._failure is not None:
                raise self._failure
            bundle = spire_bundle(content.bundle, content.trust_domain)
            if name not in self._written and len(self._written) >= MAX_PEERS:
                raise PeersTooMany(trust_domain=content.trust_domain, limit=MAX_PEERS)
            # Before the answer: a bundle that was written without one is deleted too.
            self._written.add(name)
            stored = self._stored.get(name)
            if stored is not None and same_bundle(stored, bundle):
                return
            await self._server.set_federated_bundle(bundle)
        except SvcError:
            self._metrics.bundle_written(success=False)
            raise
        self._metrics.bundle_written(success=True)

    def close(self) -> None:
        """Close the connection: the next one has the SVID and the bundle of then."""
        self._server.close()
