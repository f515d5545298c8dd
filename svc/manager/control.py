"""What runs while one configuration is in force: caches, the election, and on the leader the controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.kube.cache import Worker
from svc.kube.client import Client
from svc.kube.election import Elector, LeaseLost
from svc.kube.events import EventRecorder
from svc.license.vendors import pinned_keys
from svc.manager.config import ClusterSettings
from svc.manager.licenses import NAME, LicenseController
from svc.manager.metrics import ManagerMetrics
from svc.naming import MANAGER
from svc.telemetry.events import Event
from svc.telemetry.log_limits import FailureStreak
from svc.telemetry.logs import emit

CONTROLLERS = (NAME,)


class Control:
    """
    The controllers under one configuration.

    Args:
        namespace: of the Lease.
        identity: of this replica.
        now: the time, aware.
        failed: receives failures of watches and of the election.

    Attributes:
        leading: whether this replica holds the Lease.
    """

    log = Logger()

    def __init__(
        self,
        client: Client,
        namespace: str,
        cluster: ClusterSettings,
        identity: str,
        metrics: ManagerMetrics,
        now: Callable[[], datetime],
        failed: Callable[[SvcError], object],
    ) -> None:
        self.leading = False
        self._elector = Elector(client, namespace, MANAGER, identity, now, failed)
        events = EventRecorder(client, f"svc.internal/{MANAGER}", identity, now, failed)
        self.licenses = LicenseController(
            client, cluster, pinned_keys(), events, now, failed, lambda: self._worker.changed()
        )
        self._streak = FailureStreak()
        self._worker = Worker(metrics.measured(NAME, self._reconciled), self._reconcile_failed)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.licenses.caches:
                group.create_task(cache.run())
            group.create_task(self._elect())

    async def _elect(self) -> None:
        """Take part in the election for good: what a former leader was doing is cancelled when its Lease is lost."""
        while True:
            try:
                await self._elector.run(self._lead)
            except LeaseLost as error:
                emit(self.log, Event.MANAGER_LEASE_LOST, detail_reason=error.reason, detail=str(error))

    async def _lead(self) -> None:
        self.leading = True
        emit(self.log, Event.MANAGER_LEADING)
        try:
            await self._worker.run(*self.licenses.caches)
        finally:
            self.leading = False

    async def _reconciled(self) -> float:
        again = await self.licenses.reconcile()
        self._streak.succeeded()
        return again

    def _reconcile_failed(self, error: Exception) -> None:
        known = isinstance(error, SvcError)
        if self._streak.failed(error.reason if isinstance(error, SvcError) else type(error).__name__):
            emit(
                self.log,
                Event.MANAGER_RECONCILE_FAILED,
                detail_reason=error.reason if isinstance(error, SvcError) else None,
                detail=str(error) if known else None,
                failure=None if known else Failure(error),
                attributes={"controller": NAME, "attempts": self._streak.count},
            )
