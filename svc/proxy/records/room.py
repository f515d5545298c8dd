"""
The room that is left for records, and who may still have some of it.

Far from a bound, of the disk or of ``notary.maxBytes``, whoever is alone takes all it wants. Near one the room is
shared by identity: see :func:`svc.shares.fits_left`. Nothing is deleted for that before its time. The store is measured
every second; what is under way, and what became durable since the last measurement, counts beside it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

from svc.proxy.errors import NotaryStoreUnavailable
from svc.shares import SCARCE_PART, fits_left
from svc.store.errors import StoreClosed, StoreError
from svc.store.interface import INotaryStore
from svc.store.usage import StoreUsage

#: Little is free when it is less than a tenth, or than so many octets.
SCARCE_OCTETS: Final = 256 * 1024 * 1024
_INTERVAL: Final = 1.0
#: Seconds without a measurement after one that the database refused, which it reports each time.
_PAUSE: Final = 30.0
#: Growth is that of a day, or since the start but no shorter; the octets are noted once an hour.
_HOUR: Final = 3600.0
_SHORTEST: Final = 600.0
_DAY: Final = 86400.0


@dataclass(frozen=True)
class RoomReport:
    """
    What is reported of a measurement.

    Attributes:
        octets: what all records take.
        left: how many more fit, None where no bound is known.
        days: after how many days nothing is left, if as much is added as in the last one; infinite where it is not
            known, or does not grow.
    """

    octets: int
    left: int | None = None
    days: float = math.inf


@dataclass(frozen=True, slots=True)
class _Bound:
    """One bound; ``strict`` where nothing else refuses what does not fit."""

    free: int
    scarce: int
    where: str
    strict: bool


class RecordRoom(Service):
    """
    Measures a store while it runs, and decides who may have room in it.

    Args:
        store: the store.
        database: its name in messages.
        max_octets: what its records may take; None for the room of the disk.
        clock: measures intervals.
        measured: gets each report.
    """

    def __init__(
        self,
        store: INotaryStore,
        *,
        database: str,
        max_octets: int | None,
        clock: IReactorTime,
        measured: Callable[[RoomReport], object],
    ) -> None:
        self._store = store
        self._database = database
        self._max_octets = max_octets
        self._seconds = clock.seconds
        self._measured = measured
        self._bounds: list[_Bound] = []
        #: Octets by client: at the last measurement, of records under way, and durable ones since it and before.
        self._held: Mapping[str, int] = {}
        self._under_way: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        self._stored_before: dict[str, int] = {}
        #: All of the last three.
        self._pending = 0
        self._not_before = -math.inf
        self._history: deque[tuple[float, int]] = deque(maxlen=int(_DAY / _HOUR) + 1)
        self._loop = LoopingCall(self._measure)
        self._loop.clock = clock

    def startService(self) -> None:
        super().startService()
        self._loop.start(_INTERVAL, now=True)

    def stopService(self) -> None:
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def refusal(self, client: str, octets: int) -> NotaryStoreUnavailable | None:
        """Why a client may not have a record of up to so many octets, or None where it may."""
        for bound in self._bounds:
            free = bound.free - self._pending
            if free >= bound.scarce:
                continue
            held = sum(each.get(client, 0) for each in (self._held, self._under_way, self._stored, self._stored_before))
            # Where not even one record fits the disk, its store takes back its reserve and refuses everybody.
            if not fits_left(held, octets, free, bound.scarce) and (bound.strict or bound.free >= octets):
                what = f"{max(0, free)} octets are left {bound.where}, and records of {client} take {held} already"
                return NotaryStoreUnavailable(database=self._database, what=what)
        return None

    def take(self, client: str, octets: int) -> None:
        """A record that may take so many octets is under way."""
        _add(self._under_way, client, octets)
        self._pending += octets

    def settle(self, client: str, unused: int) -> None:
        """It takes less by so many octets."""
        self.take(client, -unused)

    def stored(self, client: str, octets: int) -> None:
        """A record of so many octets is durable."""
        _add(self._under_way, client, -octets)
        _add(self._stored, client, octets)

    def _measure(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._read())

    async def _read(self) -> None:
        if self._seconds() < self._not_before:
            return
        # What is durable by now is in what is read; after a failure so is what was durable before.
        for client, octets in self._stored.items():
            _add(self._stored_before, client, octets)
        self._stored = {}
        try:
            usage = await self._store.measure()
        except StoreError as error:
            # What was measured before holds on.
            if not isinstance(error, StoreClosed):
                self._not_before = self._seconds() + _PAUSE
            return
        self._pending -= sum(self._stored_before.values())
        self._stored_before = {}
        self._held = usage.held
        self._bounds = self._bounds_of(usage)
        left = min((each.free for each in self._bounds), default=None)
        self._measured(RoomReport(usage.octets, left, self._days(usage.octets, left)))

    def _bounds_of(self, usage: StoreUsage) -> list[_Bound]:
        bounds = []
        if usage.free is not None and usage.size is not None:
            bounds.append(_Bound(usage.free, _scarce(usage.size), "on the disk", strict=False))
        if self._max_octets is not None:
            left = max(0, self._max_octets - usage.octets)
            bounds.append(_Bound(left, _scarce(self._max_octets), "below notary.maxBytes", strict=True))
        return bounds

    def _days(self, octets: int, left: int | None) -> float:
        now = self._seconds()
        if not self._history or now - self._history[-1][0] >= _HOUR:
            self._history.append((now, octets))
        since, before = self._history[0]
        if left is None or now - since < _SHORTEST or octets <= before:
            return math.inf
        return left / (octets - before) * (now - since) / _DAY


def _scarce(size: int) -> int:
    return max(SCARCE_OCTETS, size // SCARCE_PART)


def _add(octets_of: dict[str, int], client: str, octets: int) -> None:
    after = octets_of.get(client, 0) + octets
    if after:
        octets_of[client] = after
    else:
        octets_of.pop(client, None)
