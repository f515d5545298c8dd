"""
A copy of the objects of one kind that follows the API server, and the worker that is called when anything changed.

There are no changes of single objects to react to: the worker computes everything anew from the caches.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Final

from svc.errors import SvcError
from svc.kube.client import Client, Object
from svc.kube.errors import Gone, KubernetesError
from svc.kube.kinds import Kind
from svc.pacing.backoff import Backoff

#: After a watch that lasted so long, the next one begins without a delay.
STEADY_SECONDS: Final = 5.0
FIRST_PAUSE: Final = 0.5
LAST_PAUSE: Final = 30.0
_BACKOFF: Final = Backoff(FIRST_PAUSE, LAST_PAUSE)


def growing_pause(failures: int) -> float:
    """Return the seconds before the next attempt: doubled by each failure up to 30, and spread over many processes."""
    # The pause before the first attempt, too, is that of a failure.
    return _BACKOFF.pause(failures + 1, random.random())  # noqa: S311


class Cache:
    """
    Follows the objects of a kind: lists them, then watches.

    Args:
        changed: called after the first list, and whenever an object is another one, new or gone.
        failed: receives why a list or a watch ended, unless the server ended it in an orderly way.
        namespace: whose objects; of all where empty.
        labels: a selector.
        fields: a selector.
        pause: returns the seconds before the next attempt, from the number of failures in a row.

    Attributes:
        objects: by namespace (empty for those of the cluster) and name, without ``managedFields``.
        synced: set when all have been read once.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        changed: Callable[[], object],
        failed: Callable[[SvcError], object],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        pause: Callable[[int], float] = growing_pause,
    ) -> None:
        self._client = client
        self._kind = kind
        self._changed = changed
        self._failed = failed
        self._namespace = namespace
        self._selectors = {"labels": labels, "fields": fields}
        self._pause = pause
        self._version = ""
        self.objects: dict[tuple[str, str], Object] = {}
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            try:
                await self._follow()
            except KubernetesError as error:
                self._version = ""
                if not isinstance(error, Gone):
                    self._failed(error)
            failures = 0 if loop.time() - began > STEADY_SECONDS else failures + 1
            await asyncio.sleep(self._pause(failures))

    async def _follow(self) -> None:
        """Go on from the last version, or from a new list, until the server ends the watch."""
        if not self._version:
            found, version = await self._client.list(self._kind, self._namespace, **self._selectors)
            objects = {_key(each): _slim(each) for each in found}
            different = objects != self.objects or not self.synced.is_set()
            self.objects, self._version = objects, version
            self.synced.set()
            if different:
                self._changed()
        watch = self._client.watch(self._kind, self._namespace, self._version, **self._selectors)
        async with aclosing(watch) as changes:
            async for change in changes:
                self._take(change.type, change.object)

    def _take(self, event: str, found: Object) -> None:
        self._version = found["metadata"]["resourceVersion"]
        if event == "BOOKMARK":
            return
        if event == "DELETED":
            self.objects.pop(_key(found), None)
        else:
            self.objects[_key(found)] = _slim(found)
        self._changed()


async def run_all(caches: Iterable[Cache]) -> None:
    """Follow with all of these until cancelled."""
    async with asyncio.TaskGroup() as group:
        for cache in caches:
            group.create_task(cache.run())


class Worker:
    """
    Calls ``reconcile`` after a change, never twice at once.

    Args:
        reconcile: returns the seconds after which it is called without a change, None for never.
        failed: receives what it raised; it is then called again, after a growing delay.
    """

    def __init__(
        self,
        reconcile: Callable[[], Awaitable[float | None]],
        failed: Callable[[Exception], object],
        *,
        pause: Callable[[int], float] = growing_pause,
    ) -> None:
        self._reconcile = reconcile
        self._failed = failed
        self._pause = pause
        self._dirty = asyncio.Event()

    def changed(self) -> None:
        """Have it called once more."""
        self._dirty.set()

    async def run(self, *caches: Cache) -> None:
        """Work until cancelled, from when these caches are complete."""
        for cache in caches:
            await cache.synced.wait()
        failures = 0
        while True:
            self._dirty.clear()
            try:
                again = await self._reconcile()
            except Exception as error:  # noqa: BLE001 - a defect must not end the worker
                failures += 1
                self._failed(error)
                await asyncio.sleep(self._pause(failures))
                continue
            failures = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(again):
                    await self._dirty.wait()


def _key(found: Object) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _slim(found: Object) -> Object:
    metadata = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    return {**found, "metadata": metadata}
