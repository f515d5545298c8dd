"""
How many records each client may cause, and how many octets of them: two token buckets for each client.

Pure but for the clock that is passed in. What a record takes is known when it is made, long after the request was
admitted: the largest possible one is reserved, and what it did not take is given back.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from svc.proxy.errors import NotaryRate

#: Clients whose budgets are kept; the one not seen for longest is dropped, and begins again with a full budget.
MAX_CLIENTS: Final = 8192


@dataclass(frozen=True, slots=True)
class Allowance:
    """What refills at ``rate`` a second and holds ``burst`` at most."""

    rate: float
    burst: float

    def wait(self, level: float, wanted: float) -> float:
        """Seconds until a bucket at this level holds what is wanted; 0 where it does."""
        return max(0.0, (min(wanted, self.burst) - level) / self.rate)


@dataclass(slots=True)
class _Buckets:
    records: float
    octets: float
    since: float


class RecordBudget:
    """The budgets of all clients: records, signed and unsigned alike, and the octets that they take in the database."""

    def __init__(self, records: Allowance, octets: Allowance, seconds: Callable[[], float]) -> None:
        self.records = records
        self.octets = octets
        self._seconds = seconds
        self._clients: OrderedDict[str, _Buckets] = OrderedDict()

    def reserve(self, client: str, octets: int) -> tuple[Allowance, float] | None:
        """
        Take one record and its octets, and return None; or take nothing, and return what is used up.

        That is the allowance with the longer wait, and the seconds after which the same can be taken.
        """
        found = self._refilled(client)
        if found.records >= 1.0 and found.octets >= min(octets, self.octets.burst):
            found.records -= 1.0
            found.octets -= octets
            return None
        waits = self.records.wait(found.records, 1.0), self.octets.wait(found.octets, octets)
        return (self.records, waits[0]) if waits[0] >= waits[1] else (self.octets, waits[1])

    def exceeded(self, allowance: Allowance, seconds: float) -> NotaryRate:
        """The refusal of a client whose allowance is used up for some seconds."""
        if allowance is self.records:
            what = f"this identity causes more than {allowance.rate:.0f} records/s (notary.receiptsPerSecond)"
        else:
            what = f"its records take more than {allowance.rate:.0f} octets/s (notary.recordOctetsPerSecond)"
        return NotaryRate(what=what, retry_after=max(1, math.ceil(seconds)))

    def give_back(self, client: str, octets: int) -> None:
        """Return octets that were reserved and not used; the budget of a dropped client is full anyway."""
        found = self._clients.get(client)
        if found is not None:
            found.octets = min(self.octets.burst, found.octets + octets)

    def _refilled(self, client: str) -> _Buckets:
        now, records, octets = self._seconds(), self.records, self.octets
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
