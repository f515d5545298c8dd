"""The cache on a real API server, through what happens to it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import Any

from svc.errors import SvcError
from svc.kube.cache import Cache, Worker
from svc.kube.client import Client, Object
from svc.kube.configuration import configured
from svc.kube.kinds import Kind
from tests.integration.kube_rig import (
    CONFIGMAPS,
    PROBES,
    SERVER,
    UNKNOWN,
    KubeCase,
    background,
    config_map,
    install_probes,
    until,
)
from tests.peers.apiserver import ApiServer
from tests.peers.waiting import rounds


class _Followed:
    """A cache and what it reported."""

    def __init__(self, client: Client, namespace: str, kind: Kind = CONFIGMAPS, *, pause: float = 0.05) -> None:
        self.changes = 0
        self.failures: list[SvcError] = []
        self.cache = Cache(
            *(client, kind, self._changed, self.failures.append),
            namespace=namespace,
            pause=lambda _failures: pause,
        )

    def _changed(self) -> None:
        self.changes += 1

    def data(self) -> dict[str, Object]:
        """What is in the objects, by their names."""
        return {name: each.get("data", {}) for (_namespace, name), each in self.cache.objects.items()}


class _Counting(Client):
    """A client that counts."""

    lists = watches = 0

    async def list(self, *given: Any, **more: Any) -> Any:
        self.lists += 1
        return await super().list(*given, **more)

    def watch(self, *given: Any, **more: Any) -> Any:
        self.watches += 1
        return super().watch(*given, **more)


class KubeCacheTests(KubeCase):
    """One server for all."""

    def setUp(self) -> None:
        """Take the server."""
        self.server = SERVER.get()

    def test_changes(self) -> None:
        """What is there, new, changed and gone; an empty namespace is complete as well."""

        async def changes(client: Client, namespace: str) -> None:
            async with AsyncExitStack() as stack:
                followed = _Followed(client, namespace)
                await background(stack, followed.cache.run())
                await followed.cache.synced.wait()
                self.assertEqual(({}, 1), (followed.data(), followed.changes))
                made = await client.create(CONFIGMAPS, config_map(namespace, "a", text="1"))
                await until(lambda: followed.data() == {"a": {"text": "1"}}, "the new object")
                self.assertNotIn("managedFields", followed.cache.objects[namespace, "a"]["metadata"])
                self.assertEqual("ConfigMap", followed.cache.objects[namespace, "a"]["kind"])
                await client.replace(CONFIGMAPS, {**made, "data": {"text": "2"}})
                await until(lambda: followed.data() == {"a": {"text": "2"}}, "the changed object")
                later = _Followed(client, namespace)
                await background(stack, later.cache.run())
                await later.cache.synced.wait()
                self.assertEqual(followed.cache.objects, later.cache.objects)
                self.server.kubectl("delete", "configmap", "a", "-n", namespace)
                await until(lambda: not followed.data() and not later.data(), "the end of the object")
                self.assertEqual((4, 2), (followed.changes, later.changes))
                self.assertEqual([], followed.failures)

        self.play(self.server, changes)

    def test_worker(self) -> None:
        """A worker sees the caches when all are complete, and works again after changes of any of them."""

        async def worker(client: Client, namespace: str) -> None:
            seen: list[int] = []
            await client.create(CONFIGMAPS, config_map(namespace, "a"))

            async def reconcile() -> None:
                seen.append(sum(len(cache.objects) for cache in caches))

            worker = Worker(reconcile, self.fail)
            caches = [
                Cache(client, CONFIGMAPS, worker.changed, self.fail, namespace=each)
                for each in (namespace, "kube-system")
            ]
            async with AsyncExitStack() as stack:
                await background(stack, worker.run(*caches))
                for cache in caches:
                    await background(stack, cache.run())
                await until(lambda: seen, "the first work")
                self.assertEqual(sum(len(cache.objects) for cache in caches), seen[0])
                self.assertGreater(seen[0], 0)
                await client.create(CONFIGMAPS, config_map(namespace, "b"))
                await until(lambda: seen[-1] == seen[0] + 1, "work after a change")

        self.play(self.server, worker)

    def test_ended_watch(self) -> None:
        """A watch that the server ends goes on from the last change, without a list and without a failure."""

        async def ended(_client: Client, namespace: str) -> None:
            way = await configured(str(self.server.kubeconfig))
            async with aclosing(_Counting(way, watch=2)) as client, AsyncExitStack() as stack:
                followed = _Followed(client, namespace)
                await background(stack, followed.cache.run())
                await until(lambda: client.watches == 3, "the third watch")
                await client.create(CONFIGMAPS, config_map(namespace, "a"))
                await until(followed.data, "a change")
                self.assertEqual((1, 2, []), (client.lists, followed.changes, followed.failures))

        self.play(self.server, ended)

    def test_bookmarks(self) -> None:
        """The server sends a bookmark where nothing changes, in time for a watch not to count as dead."""

        async def bookmarks(client: Client, namespace: str) -> None:
            _, version = await client.list(CONFIGMAPS, namespace)
            async with aclosing(client.watch(CONFIGMAPS, namespace, version)) as changes:
                self.assertEqual("BOOKMARK", (await anext(changes)).type)

        for _ in range(rounds(0, 1)):
            self.play(self.server, bookmarks)

    def test_unknown_kind(self) -> None:
        """A kind that the cluster does not know is reported at each attempt; the cache is never complete."""

        async def unknown(client: Client, namespace: str) -> None:
            followed = _Followed(client, namespace, UNKNOWN)
            async with AsyncExitStack() as stack:
                await background(stack, followed.cache.run())
                await until(lambda: len(followed.failures) > 2, "failures")
                self.assertEqual({"kubernetes_no_kind"}, {each.reason for each in followed.failures})
                self.assertEqual((0, False), (followed.changes, followed.cache.synced.is_set()))

        self.play(self.server, unknown)


class KubeCacheFaultTests(KubeCase):
    """Each with a server of its own."""

    def start(self, *flags: str) -> ApiServer:
        """Start a server."""
        server = ApiServer(*flags)
        self.addCleanup(server.stop)
        return server.start()

    def test_server_killed(self) -> None:
        """A killed server is unreachable, and busy until it serves custom resources; what changed meanwhile arrives."""
        server = self.start()
        install_probes(server)

        async def killed(client: Client, namespace: str) -> None:
            async with AsyncExitStack() as stack:
                followed, probes = _Followed(client, namespace), _Followed(client, namespace, PROBES)
                for each in (followed, probes):
                    await background(stack, each.cache.run())
                    await each.cache.synced.wait()
                await client.create(CONFIGMAPS, config_map(namespace, "before"))
                await client.create(PROBES, _probe(namespace))
                await until(lambda: followed.data() and probes.data(), "changes")
                server.kill()
                await until(lambda: followed.failures, "a failure")
                self.assertEqual({"before"}, set(followed.data()))
                starting = asyncio.ensure_future(asyncio.to_thread(server.start))
                fresh = _Followed(client, namespace, PROBES)
                await background(stack, fresh.cache.run())
                await starting
                await client.create(CONFIGMAPS, config_map(namespace, "after"))
                await until(lambda: set(followed.data()) == {"before", "after"}, "what changed")
                await until(lambda: fresh.data() and len(probes.data()) == 1, "custom resources")
                reasons = {each.reason for each in (*followed.failures, *probes.failures, *fresh.failures)}
                self.assertIn("kubernetes_unreachable", reasons)
                self.assertLessEqual(reasons, {"kubernetes_unreachable", "kubernetes_busy"})

        self.play(server, killed)

    def test_compaction(self) -> None:
        """Where the server has forgotten the changes since the last version, the objects are listed again."""
        # Without the cache of the server a watch is one of etcd, and after a compaction it is answered with 410.
        server = self.start("--watch-cache=false")

        async def compaction(client: Client, namespace: str) -> None:
            async with AsyncExitStack() as stack:
                made = await client.create(CONFIGMAPS, config_map(namespace, "a", text="0"))
                _, version = await client.list(CONFIGMAPS, namespace)
                for number in range(5):
                    made = await client.replace(CONFIGMAPS, {**made, "data": {"text": str(number)}})
                server.compact()
                await self.refused("kubernetes_gone", anext(client.watch(CONFIGMAPS, namespace, version)))
                followed = _Followed(client, namespace)
                followed.cache._version = version
                await background(stack, followed.cache.run())
                await until(lambda: followed.data() == {"a": {"text": "4"}}, "the list")
                await client.replace(CONFIGMAPS, {**made, "data": {"text": "5"}})
                await until(lambda: followed.data() == {"a": {"text": "5"}}, "a change after the list")
                self.assertEqual(([], 2), (followed.failures, followed.changes))

        self.play(server, compaction)

    def test_hanging_server(self) -> None:
        """
        While a server hangs, requests end after their time and watches after their silence; before, nothing is lost.
        """
        server = self.start()

        async def hanging(client: Client, namespace: str) -> None:
            async with AsyncExitStack() as stack:
                way = await configured(str(server.kubeconfig))
                short = await stack.enter_async_context(aclosing(Client(way, request=1.0, silence=1.0)))
                followed, patient = _Followed(short, namespace), _Followed(client, namespace)
                for each in (followed, patient):
                    await background(stack, each.cache.run())
                    await each.cache.synced.wait()
                server.pause()
                await self.refused("kubernetes_unreachable", short.get(CONFIGMAPS, "a", namespace))
                await until(lambda: len(followed.failures) > 1, "failures")
                server.resume()
                await client.create(CONFIGMAPS, config_map(namespace, "a"))
                for each in (followed, patient):
                    await until(each.data, "the change")
                self.assertEqual({"kubernetes_unreachable"}, {each.reason for each in followed.failures})
                self.assertEqual([], patient.failures)

        self.play(server, hanging)


def _probe(namespace: str) -> Object:
    return {
        "apiVersion": PROBES.api_version,
        "kind": PROBES.name,
        "metadata": {"name": "a", "namespace": namespace},
    }
