"""
How many records each client may cause, and how many octets of them: two token buckets for each client.

What a record takes is known when it is made, long after the request was admitted: the largest possible one is reserved,
and what it did not take is given back. A reservation for which there is no room waits in the line of its client, for a
bounded time: who asks reads nothing more of its connection meanwhile, so that TCP holds the client back. Each open
connection has one reservation in a line at most.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from svc.proxy.errors import NotaryRate

#: Clients whose budgets are kept; the one not seen for longest is dropped, and begins again with a full budget.
MAX_CLIENTS: Final = 8192
#: Seconds before a line is looked at again at the earliest.
_SHORTEST: Final = 0.001


@dataclass(frozen=True, slots=True)
class Allowance:
    """What refills at ``rate`` a second and holds ``burst`` at most."""

    rate: float
    burst: float

    @classmethod
    def of(cls, rate: float | None, burst: float) -> Allowance:
        """An allowance, or without a rate one that is never used up."""
        return cls(1.0, math.inf) if rate is None else cls(rate, burst)

    def wait(self, level: float, wanted: float) -> float:
        """Seconds until a bucket at this level holds what is wanted; 0 where it does."""
        return max(0.0, (min(wanted, self.burst) - level) / self.rate)


@dataclass(slots=True)
class _Buckets:
    records: float
    octets: float
    since: float


@dataclass(slots=True)
class _Waiting:
    octets: int
    until: float


@dataclass(slots=True)
class _Line:
    """What waits for the budget of one client, in order."""

    waiting: dict[Deferred[Any], _Waiting] = field(default_factory=dict)
    timer: IDelayedCall | None = None
    #: Whether it is being gone through.
    moving: bool = False


class RecordBudget:
    """
    The budgets of all clients: records, signed and unsigned alike, and the octets that they take in the database.

    Args:
        clock: the time, and calls at a later one.
        longest: seconds that a reservation may wait.
    """

    def __init__(self, records: Allowance, octets: Allowance, clock: IReactorTime, longest: float = 0.0) -> None:
        self.records = records
        self.octets = octets
        self.longest: Final = longest
        self._clock = clock
        self._clients: OrderedDict[str, _Buckets] = OrderedDict()
        self._lines: dict[str, _Line] = {}

    @property
    def waiting(self) -> int:
        """Reservations that wait."""
        return sum(len(each.waiting) for each in self._lines.values())

    def reserve(self, client: str, octets: int) -> Deferred[Any] | None:
        """
        Take one record and its octets, behind what waits for the same client.

        Returns:
            None where they are taken, or else what fires when they are; it fails with ``NotaryRate`` when that took too
            long.
        """
        line = self._lines.get(client)
        now = self._clock.seconds()
        waiting = _Waiting(octets, now + self.longest)
        if line is None:
            refused = self._attempt(client, waiting)
            if refused is None:
                return None
            if self.longest <= 0:
                return fail(_exceeded(*refused))
            line = self._lines[client] = _Line()
            self._schedule(client, line, min(refused[1], self.longest))
        done: Deferred[Any] = Deferred()
        line.waiting[done] = waiting
        return done

    def withdraw(self, client: str, reservation: Deferred[Any]) -> None:
        """What :meth:`reserve` returned is not needed any more; it does not fire where it waits."""
        line = self._lines.get(client)
        if line is not None and line.waiting.pop(reservation, None) is not None and not line.moving:
            self._remove_empty(client, line)

    def take(self, client: str, octets: int) -> tuple[Allowance, float] | None:
        """
        Take one record and its octets now, and return None; or take nothing, and return what is used up.

        That is the allowance with the longer wait, and the seconds after which the same can be taken.
        """
        found = self._refilled(client)
        if found.records >= 1.0 and found.octets >= min(octets, self.octets.burst):
            found.records -= 1.0
            found.octets -= octets
            return None
        waits = self.records.wait(found.records, 1.0), self.octets.wait(found.octets, octets)
        return (self.records, waits[0]) if waits[0] >= waits[1] else (self.octets, waits[1])

    def _attempt(self, client: str, waiting: _Waiting) -> tuple[str, float] | None:
        """Take what is wanted, or return what is used up, and the seconds until it may not be."""
        used_up = self.take(client, waiting.octets)
        if used_up is None:
            return None
        allowance, seconds = used_up
        if allowance is self.records:
            return f"this identity causes more than {allowance.rate:.0f} records/s (notary.receiptsPerSecond)", seconds
        return f"its records take more than {allowance.rate:.0f} octets/s (notary.recordOctetsPerSecond)", seconds

    def _schedule(self, client: str, line: _Line, seconds: float) -> None:
        seconds = max(_SHORTEST, seconds)
        if line.timer is None or not line.timer.active():
            line.timer = self._clock.callLater(seconds, self._move, client, line)
        elif line.timer.getTime() - self._clock.seconds() > seconds:
            line.timer.reset(seconds)

    def _move(self, client: str, line: _Line) -> None:
        """Take what has room now, and refuse what has waited for too long."""
        line.moving = True
        while line.waiting:
            done, first = next(iter(line.waiting.items()))
            refused = self._attempt(client, first)
            left = first.until - self._clock.seconds()
            if refused is not None and left > 0:
                self._schedule(client, line, min(refused[1], left))
                break
            del line.waiting[done]
            if refused is None:
                done.callback(None)
            else:
                done.errback(_exceeded(*refused))
        line.moving = False
        self._remove_empty(client, line)

    def _remove_empty(self, client: str, line: _Line) -> None:
        if not line.waiting:
            del self._lines[client]
            if line.timer is not None and line.timer.active():
                line.timer.cancel()

    def give_back(self, client: str, octets: int) -> None:
        """Return octets that were reserved and not used; the budget of a dropped client is full anyway."""
        found = self._clients.get(client)
        if found is not None:
            found.octets = min(self.octets.burst, found.octets + octets)
        line = self._lines.get(client)
        if line is not None and not line.moving:
            self._schedule(client, line, _SHORTEST)

    def _refilled(self, client: str) -> _Buckets:
        now, records, octets = self._clock.seconds(), self.records, self.octets
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = _Buckets(records.burst, octets.burst, now)
            if len(self._clients) > MAX_CLIENTS:
                self._clients.popitem(last=False)
            return found
        self._clients.move_to_end(client)
        passed, found.since = now - found.since, now
        found.records = min(records.burst, found.records + passed * records.rate)
        found.octets = min(octets.burst, found.octets + passed * octets.rate)
        return found


def _exceeded(what: str, seconds: float) -> NotaryRate:
    return NotaryRate(what=what, retry_after=max(1, math.ceil(seconds)))
