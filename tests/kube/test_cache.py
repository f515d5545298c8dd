"""Tests of :mod:`svc.kube.cache`: the cache on scripted answers, the worker, and delays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.kube.cache import FIRST_PAUSE, LAST_PAUSE, Cache, Worker, growing_pause
from svc.kube.client import Change
from svc.kube.errors import Gone, KubernetesError
from svc.kube.kinds import SECRETS


class PauseTests(SynchronousTestCase):
    """Delays between attempts."""

    def test_growing(self) -> None:
        """Doubled by each failure, spread over the upper half, and never longer than the last one."""
        for failures, longest in ((0, FIRST_PAUSE), (1, 2 * FIRST_PAUSE), (3, 8 * FIRST_PAUSE), (6, LAST_PAUSE)):
            found = [growing_pause(failures) for _ in range(200)]
            self.assertTrue(all(longest / 2 <= each <= longest for each in found), failures)
            self.assertGreater(len(set(found)), 100)
        self.assertLessEqual(growing_pause(10**9), LAST_PAUSE)


class _Scripted:
    """A client whose lists and watches are given."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.versions: list[str] = []

    async def list(self, *_given: Any, **_more: Any) -> Any:
        """The next step: objects and a version."""
        return self.steps.pop(0)

    async def watch(self, _kind: Any, _namespace: str, version: str, **_more: Any) -> AsyncIterator[Change]:
        """The next step: changes, or an error. Nothing more comes after the last one."""
        self.versions.append(version)
        for each in self.steps.pop(0):
            if isinstance(each, Exception):
                raise each
            yield Change(*each)
        if not self.steps:
            await asyncio.Event().wait()


def _object(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version, "managedFields": ["x"]}}


class CacheTests(SynchronousTestCase):
    """What a real server does rarely."""

    def follow(self, *steps: Any) -> tuple[list[str], set[str], int, list[SvcError]]:
        """Run a cache through steps; gives versions of watches, names of objects, calls for changes and failures."""
        client, changes, failures = _Scripted(*steps), [], []

        async def run() -> Cache:
            cache = Cache(
                *(client, SECRETS, lambda: changes.append(1), failures.append),  # type: ignore[arg-type]
                pause=lambda _failures: 0.0,
            )
            task = asyncio.ensure_future(cache.run())
            while client.steps:
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return cache

        cache = asyncio.run(asyncio.wait_for(run(), 60))
        return client.versions, {name for _namespace, name in cache.objects}, len(changes), failures

    def test_bookmark(self) -> None:
        """After a bookmark a watch goes on from its version; it is no change."""
        found = self.follow(([_object("a", "1")], "5"), [("BOOKMARK", _object("", "9"))], [])
        self.assertEqual((["5", "9"], {"a"}, 1, []), found)

    def test_new_list(self) -> None:
        """After an error the objects are listed again, which is a change only where they are others."""
        failure = KubernetesError(action="watch", detail="x")
        gone = Gone(action="watch", detail="x")
        first, second = [_object("a", "1")], [_object("b", "8")]
        found = self.follow((first, "5"), [failure], (first, "7"), [gone], (second, "8"), [])
        self.assertEqual((["5", "7", "8"], {"b"}, 2, [failure]), found)

    def test_deleted_twice(self) -> None:
        """The end of an object that is not known is no defect."""
        found = self.follow(([], "5"), [("DELETED", _object("a", "6"))], [])
        self.assertEqual((["5", "6"], set()), found[:2])


class WorkerTests(SynchronousTestCase):
    """Scenes of one worker, in a loop of their own."""

    def setUp(self) -> None:
        """Record what happens."""
        self.runs = 0
        self.failures: list[str] = []
        self.again: float | None = None
        self.work: Callable[[], object] = lambda: None
        self.pauses: list[int] = []

    async def reconcile(self) -> float | None:
        """What the worker calls."""
        self.runs += 1
        await asyncio.sleep(0)
        self.work()
        return self.again

    def pause(self, failures: int) -> float:
        """The delay after failures."""
        self.pauses.append(failures)
        return 0.01

    def play(self, scene: Callable[[Worker], object]) -> None:
        """Run a worker beside an asynchronous scene."""

        async def run() -> None:
            worker = Worker(self.reconcile, lambda error: self.failures.append(repr(error)), pause=self.pause)
            task = asyncio.ensure_future(worker.run())
            await scene(worker)  # type: ignore[misc]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(asyncio.wait_for(run(), 60))

    def test_changes(self) -> None:
        """It works once at the start, and once more after any number of changes."""

        async def scene(worker: Worker) -> None:
            await asyncio.sleep(0.05)
            self.assertEqual(1, self.runs)
            for _ in range(5):
                worker.changed()
            await asyncio.sleep(0.05)
            self.assertEqual(2, self.runs)

        self.play(scene)

    def test_change_during_work(self) -> None:
        """A change while it works is not lost."""

        async def scene(worker: Worker) -> None:
            self.work = lambda: worker.changed() if self.runs == 1 else None
            await asyncio.sleep(0.05)
            self.assertEqual(2, self.runs)

        self.play(scene)

    def test_again(self) -> None:
        """It works after the time that it asked for."""

        async def scene(_worker: Worker) -> None:
            self.again = 0.01
            while self.runs < 3:
                await asyncio.sleep(0.005)

        self.play(scene)
        self.assertEqual([], self.failures)

    def test_failures(self) -> None:
        """A failure is reported and tried again after a delay, whatever changes meanwhile; a success begins anew."""

        async def scene(worker: Worker) -> None:
            def fail() -> None:
                worker.changed()
                if self.runs != 3:
                    raise ValueError(self.runs)

            self.work = fail
            while self.runs < 5:
                await asyncio.sleep(0.005)

        self.play(scene)
        self.assertEqual([1, 2, 1], self.pauses[:3])
        self.assertEqual(["ValueError(1)", "ValueError(2)", "ValueError(4)"], self.failures[:3])
