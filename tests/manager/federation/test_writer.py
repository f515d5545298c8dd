"""The writer of bundles, at a simulated server."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID
from svc.manager.federation.writer import MAX_PEERS, BundleWriter, PeersTooMany
from svc.manager.metrics import ManagerMetrics
from svc.naming import ENTRY_OWNER
from svc.spire.errors import BundleRefused
from svc.spire.messages import BundleMessage, EntryMessage
from svc.spire.server import SpireServer
from tests.federation.material import PARTNER, PROD, content


class Server:
    """Has bundles and the entry of the manager; ``kept`` is the one that it does not delete."""

    def __init__(self, names: list[str], kept: str = "") -> None:
        self.bundles = {name: BundleMessage(trust_domain=name) for name in names}
        self.entry = EntryMessage(id=f"{ENTRY_OWNER}1", federates_with=names)
        self._kept = kept

    async def federated_bundles(self) -> list[Any]:
        """All of them."""
        return list(self.bundles.values())

    async def entries(self, _spiffe_id: SpiffeID) -> list[Any]:
        """The manager's own."""
        return [self.entry]

    async def set_federated_bundle(self, bundle: Any) -> None:
        """Replace one."""
        self.bundles[bundle.trust_domain] = bundle

    async def delete_federated_bundle(self, name: str) -> None:
        """Delete one, if it is not kept."""
        if name == self._kept:
            raise BundleRefused(action="delete", trust_domain=name, detail="no")
        del self.bundles[name]


class Metrics:
    """What was counted."""

    def __init__(self) -> None:
        self.counted: list[bool] = []

    def bundle_written(self, *, success: bool) -> None:
        """Count one."""
        self.counted.append(success)


class BundleWriterTests(SynchronousTestCase):
    """What is deleted and written."""

    def writer(self, server: Server) -> BundleWriter:
        """Make one for a server."""
        self.metrics = Metrics()
        return BundleWriter(cast(SpireServer, server), PROD, cast(ManagerMetrics, self.metrics))

    def test_refused_deletion(self) -> None:
        """A deletion that is refused is returned and counted alone, and the others are made."""
        server = Server(["a.example", "b.example"], kept="a.example")
        error = asyncio.run(self.writer(server).read(()))
        self.assertIsInstance(error, BundleRefused)
        self.assertEqual(({"a.example"}, [False, True]), (set(server.bundles), self.metrics.counted))

    def test_limit(self) -> None:
        """One peer more than an entry can federate with is refused until another one is gone."""
        names = [f"p{number}.example" for number in range(MAX_PEERS)]
        server = Server(names)
        writer = self.writer(server)
        peer = content(trust_domain=PARTNER)

        async def written(peers: list[str]) -> None:
            await writer.read([*peers, PARTNER.name])
            await writer.write(peer)

        with self.assertRaises(PeersTooMany):
            asyncio.run(written(names))
        asyncio.run(written(names[1:]))
        self.assertEqual({*names[1:], PARTNER.name}, set(server.bundles))
        self.assertEqual([False, True, True], self.metrics.counted)
