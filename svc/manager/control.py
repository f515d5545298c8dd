"""What runs while one configuration is in force: caches, the election, and on the leader the controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.kube.cache import LAST_PAUSE, Cache, Worker, growing_pause
from svc.kube.election import Elector, LeaseLost
from svc.kube.errors import Conflict
from svc.kube.events import EventRecorder
from svc.license.vendors import pinned_keys
from svc.manager.context import ClusterContext
from svc.manager.federation.exchange import BundleExchangeController
from svc.manager.instances.controller import InstanceController
from svc.manager.licenses.controller import LicenseController
from svc.manager.metrics import ManagerMetrics
from svc.manager.policies.controller import PolicyController
from svc.naming import DOMAIN, MANAGER
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.log_limits import FailureStreak
from svc.telemetry.logs import emit

#: Seconds until the next attempt after somebody else changed an object: the watch brings what it is now.
_AFTER_CONFLICT: Final = 0.2
#: After so many seconds without all that it follows, a controller counts as one that fails.
_UNREAD_SECONDS: Final = 10.0
#: Those that the metrics of reconciles name.
CONTROLLERS: Final = (
    BundleExchangeController.name,
    InstanceController.name,
    LicenseController.name,
    PolicyController.name,
)


class Controller(Protocol):
    """
    Keeps one thing of the cluster as it should be.

    Attributes:
        name: for metrics and logs.
    """

    @property
    def name(self) -> str: ...

    @property
    def caches(self) -> Sequence[Cache]:
        """What it follows; :meth:`reconcile` is called when all was read once."""

    async def follow(self) -> None:
        """Run the caches, and what else runs on every replica, until cancelled."""

    async def reconcile(self) -> float | None:
        """
        Compare and write.

        Returns:
            The seconds after which it is called without a change, None for never.

        Raises:
            Conflict: somebody else was faster; it is called again.
            SvcError: it is called again after a growing pause.
        """


ControllerT = TypeVar("ControllerT", bound=Controller, covariant=True)


class Supervised(Generic[ControllerT]):
    """
    A controller with its worker.

    Args:
        make: makes the controller, which calls what it is given when :meth:`Controller.reconcile` has something to do.
        longest_pause: seconds between two attempts that fail, at most.
    """

    log = Logger()

    def __init__(
        self,
        make: Callable[[Callable[[], object]], ControllerT],
        metrics: ManagerMetrics,
        *,
        longest_pause: float = LAST_PAUSE,
    ) -> None:
        self.controller = make(lambda: self._worker.changed())
        self._streak = FailureStreak()
        self._metrics = metrics
        self._worker = Worker(
            metrics.measured(self.controller.name, self._reconciled),
            self._failed,
            pause=lambda failures: min(growing_pause(failures), longest_pause),
        )

    async def run(self) -> None:
        """Work until cancelled, once its caches are complete."""
        for cache in self.controller.caches:
            while not cache.synced.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_UNREAD_SECONDS):
                        await cache.synced.wait()
                    continue
                # The log says why; without this nothing would count, since nothing is attempted.
                self._metrics.failed(self.controller.name)
        await self._worker.run()

    async def _reconciled(self) -> float | None:
        try:
            again = await self.controller.reconcile()
        except Conflict:
            again = _AFTER_CONFLICT
        self._streak.succeeded()
        return again

    def _failed(self, error: Exception) -> None:
        known = error if isinstance(error, SvcError) else None
        if self._streak.failed(type(error).__name__ if known is None else known.reason):
            emit(
                self.log,
                ManagerEvent.RECONCILE_FAILED,
                detail_reason=None if known is None else known.reason,
                detail=None if known is None else str(known),
                failure=Failure(error) if known is None else None,
                attributes={"controller": self.controller.name, "attempts": self._streak.count},
            )


class Control:
    """
    The controllers under one configuration.

    Args:
        identity: of this replica.
        further: the other controllers.
        beside: what else runs on every replica, until it is cancelled.
    """

    log = Logger()

    def __init__(
        self,
        context: ClusterContext,
        identity: str,
        further: Iterable[Supervised[Controller]] = (),
        beside: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        client, now, failed = context.client, context.now, context.failed
        self._elector = Elector(client, context.namespace, MANAGER, identity, now, failed)
        events = EventRecorder(client, f"{DOMAIN}/{MANAGER}", identity, now, failed)
        licenses = Supervised(partial(LicenseController, context, pinned_keys(), events), context.metrics)
        self.licenses = licenses.controller
        self._controllers: tuple[Supervised[Controller], ...] = (licenses, *further)
        self._beside = tuple(beside)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._controllers:
                group.create_task(each.controller.follow())
            for run in self._beside:
                group.create_task(run())
            group.create_task(self._elect())

    async def _elect(self) -> None:
        """Take part in the election for good: what a former leader was doing is cancelled when its Lease is lost."""
        while True:
            try:
                await self._elector.run(self._lead)
            except LeaseLost as error:
                emit(self.log, ManagerEvent.LEASE_LOST, detail_reason=error.reason, detail=str(error))

    async def _lead(self) -> None:
        emit(self.log, ManagerEvent.LEADING)
        async with asyncio.TaskGroup() as group:
            for each in self._controllers:
                group.create_task(each.run())
