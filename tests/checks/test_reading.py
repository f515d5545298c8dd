"""What is read of a cluster, with a client in memory."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from svc.checks.facts import ClusterFacts, ServerFacts
from svc.checks.model import read
from svc.checks.preflight import needed_rights
from svc.checks.reading import read_cluster, read_preflight
from svc.errors import SvcError
from svc.kube.client import Client
from svc.kube.errors import KubernetesError, NotFound
from svc.kube.kinds import FOREIGN_CLUSTERS, NAMESPACES, NODES, PODS, Kind
from tests.checks.test_preflight import NOW, named

FORBIDDEN = KubernetesError("kubernetes_forbidden", action="list", detail="no")


class MemoryClient:
    """
    A client whose server has one enabled namespace.

    Args:
        date: the time of the server.
        failures: the error of lists, by kind.
        secret: the data of the webhook's Secret; None where there is none.
    """

    def __init__(
        self,
        date: datetime | None = NOW,
        failures: dict[Kind, SvcError] | None = None,
        secret: dict[str, str] | SvcError | None = None,
    ) -> None:
        self.date = date
        self.failures = failures or {}
        self.secret = secret
        self.asked: list[tuple[Kind, str]] = []
        self.unreachable: SvcError | None = None

    async def version(self) -> tuple[dict[str, Any], datetime | None]:
        """Answer, or fail."""
        if self.unreachable is not None:
            raise self.unreachable
        return {"gitVersion": "v1.36.3"}, self.date

    async def list(self, kind: Kind, namespace: str = "") -> tuple[list[dict[str, Any]], str]:
        """Answer with the namespaces, and with nothing else."""
        self.asked.append((kind, namespace))
        if error := self.failures.get(kind):
            raise error
        labels = {"svc.internal/injection": "enabled"}
        return ([named("shop", metadata={"labels": labels}), named("other")] if kind is NAMESPACES else []), "1"

    async def get(self, _kind: Kind, _name: str, _namespace: str) -> dict[str, Any]:
        """Answer with the Secret."""
        if isinstance(self.secret, SvcError):
            raise self.secret
        if self.secret is None:
            raise NotFound(action="read", detail="no")
        return {"data": {name: base64.b64encode(text.encode()).decode() for name, text in self.secret.items()}}

    async def create(self, _kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        """Allow everything but to create."""
        return {"status": {"allowed": body["spec"]["resourceAttributes"]["verb"] != "create"}}


class ReadingTests(SynchronousTestCase):
    """The facts."""

    def read(self, client: MemoryClient, now: Iterator[datetime] | None = None) -> ClusterFacts:
        """Read the facts of a cluster."""
        times = now or iter(lambda: NOW, None)
        return asyncio.run(read_cluster(cast(Client, client), lambda: next(times)))

    def test_keys(self) -> None:
        """Of the webhook's Secret certificates are kept, the one that signs first, and no keys."""
        secret = {"previous.crt": "p", "current.crt": "c", "current.key": "KEY", "next.crt": "n", "next.key": "KEY"}
        facts = self.read(MemoryClient(secret=secret))
        self.assertEqual(["c", "n", "p"], facts.authorities)
        self.assertNotIn("KEY", repr(facts))
        self.assertEqual((), self.read(MemoryClient()).authorities)
        self.assertIs(FORBIDDEN, self.read(MemoryClient(secret=FORBIDDEN)).authorities)

    def test_pods(self) -> None:
        """Pods are listed in enabled namespaces alone, and not known where these are not."""
        client = MemoryClient()
        self.read(client)
        self.assertEqual([(PODS, "shop")], [each for each in client.asked if each[0] is PODS])
        client = MemoryClient(failures={NAMESPACES: FORBIDDEN})
        self.assertIs(FORBIDDEN, self.read(client).objects[PODS])
        self.assertIs(FORBIDDEN, self.read(MemoryClient(failures={PODS: FORBIDDEN})).objects[PODS])

    def test_missing_kind(self) -> None:
        """A custom resource that is not there has no objects; another error is kept, and the others are read."""
        missing = KubernetesError("kubernetes_no_kind", action="list", kind="svcforeignclusters")
        facts = self.read(MemoryClient(failures={FOREIGN_CLUSTERS: missing, NODES: FORBIDDEN}))
        self.assertEqual(((), FORBIDDEN), (facts.objects[FOREIGN_CLUSTERS], facts.objects[NODES]))
        self.assertEqual(2, len(facts.of(NAMESPACES)))

    def test_clock(self) -> None:
        """The time of the server is compared with the middle of the request."""
        times = iter([NOW, NOW + timedelta(seconds=4), NOW])
        server = cast(ServerFacts, self.read(MemoryClient(date=NOW - timedelta(seconds=1)), times).server)
        self.assertEqual(timedelta(seconds=3), server.ahead)
        self.assertIsNone(cast(ServerFacts, self.read(MemoryClient(date=None)).server).ahead)

    def test_unreachable(self) -> None:
        """A server that does not answer is asked once."""
        client = MemoryClient()
        client.unreachable = KubernetesError("kubernetes_unreachable", server="https://a", detail="late")
        self.assertIs(client.unreachable, self.read(client).server)
        self.assertEqual([], client.asked)

    def test_rights(self) -> None:
        """Rights that are not granted are named."""
        facts = asyncio.run(read_preflight(cast(Client, MemoryClient()), lambda: datetime.now(UTC)))
        expected = [each for each in needed_rights() if each.verb == "create"]
        self.assertEqual(expected, read(facts.missing_rights))
