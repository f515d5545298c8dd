"""
Who may begin an exchange with a record: places of the queue to the signer and the writer, shared by identity.

A place is held from the admission until the record is durable. While an application takes its time, the exchange loses
its place, since neither signer nor writer has anything to do for it, and has one again when its record comes: slow
applications keep nobody waiting. An admission for which there is no place waits, and nothing more is read of its
connection, so that TCP holds the client back; after a time it is refused.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from svc.proxy.errors import NotaryRate
from svc.proxy.records.budget import RecordBudget
from svc.proxy.records.room import RecordRoom
from svc.shares import Shares
from svc.telemetry.labels import AdmissionWait

#: Places that several identities with records share, half of them taken as they come. Decision 0065 has the figures:
#: with fewer a steady identity waits for its own share, with more for what a greedy one has.
TOGETHER: Final = 32
#: Seconds for which an identity counts after its last record.
_LINGER: Final = 1.0
#: Seconds between two looks at what waits. An exchange that the application has not answered between two of them, and
#: thus in a whole turn of the reactor, loses its place.
_TICK: Final = 0.01

#: Called with the identity whose admission has to wait, for what, and how many places it has.
HeldObserver = Callable[[str, AdmissionWait, int], object]


def _unobserved(_client: str, _reason: AdmissionWait, _places: int) -> None:
    """Nobody is told."""


class Place:
    """
    The place of one exchange.

    Attributes:
        octets: what its record takes of the budget of its identity.
        counted: False while its application takes its time.
    """

    __slots__ = ("client", "counted", "octets")

    def __init__(self, client: str, octets: int) -> None:
        self.client = client
        self.octets = octets
        self.counted = True


@dataclass(slots=True)
class _Waiting:
    """An admission that waits: until when, and for what it waits at its budget, where it does."""

    client: str
    octets: int
    until: float
    budgeted: Deferred[Any] | None = None


class RecordPlaces:
    """
    The places of all identities.

    Args:
        limit: all places.
        clock: the time, and calls at a later one.
        longest: seconds that an admission may wait.
        budget: rates of each identity, which an admission waits for before it waits for a place; None for none.
        held: receives a report of each admission that has to wait.
        room: what is left for records in the database; None where that is not bounded.
    """

    def __init__(
        self,
        limit: int,
        clock: IReactorTime,
        longest: float,
        budget: RecordBudget | None = None,
        held: HeldObserver = _unobserved,
        room: RecordRoom | None = None,
    ) -> None:
        self.longest: Final = longest
        self._clock = clock
        self._budget = budget
        self._on_held = held
        self._room = room
        self._shares: Shares[str, Deferred[Place]] = Shares(limit, TOGETHER, _LINGER)
        #: In the order in which they came, so that the first is the first whose time is over.
        self._waiting: OrderedDict[Deferred[Place], _Waiting] = OrderedDict()
        #: Exchanges without a record yet: since the last tick, and since before.
        self._young: dict[Place, None] = {}
        self._old: dict[Place, None] = {}
        self._timer: IDelayedCall | None = None
        #: The turn of the reactor in which places that were given back are taken.
        self._next: IDelayedCall | None = None
        self._moving = False

    @property
    def waiting(self) -> int:
        """Admissions that wait."""
        return len(self._waiting)

    @property
    def total(self) -> int:
        """Places that are taken."""
        return self._shares.total

    def take(self, client: str, octets: int) -> Place | Deferred[Place]:
        """
        Take a place; ``octets`` is the most that the record takes in the database.

        Returns:
            The place, or what fires with it; that fails with ``NotaryRate`` when it took too long, and at once with
            ``NotaryStoreUnavailable`` where too little room is left for this client.
        """
        if self._room is not None and (refused := self._room.refusal(client, octets)) is not None:
            return fail(refused)
        budgeted = None if self._budget is None else self._budget.reserve(client, octets)
        shares, now = self._shares, self._clock.seconds()
        if budgeted is None and not shares.waiting and shares.fits(client, now):
            shares.take(client)
            return self._placed(client, octets)
        done: Deferred[Place] = Deferred()
        self._waiting[done] = _Waiting(client, octets, now + self.longest, budgeted)
        if budgeted is None:
            self._wait(done)
        else:
            budgeted.addCallbacks(lambda _taken: self._wait(done), lambda failure: self._refuse(done, failure))
            if not budgeted.called:
                self._on_held(client, "rate", shares.held(client))
        return done

    def withdraw(self, admission: Deferred[Place]) -> None:
        """What :meth:`take` returned is not needed any more; it does not fire where it waits."""
        waiting = self._waiting.pop(admission, None)
        if waiting is None:
            return
        if waiting.budgeted is not None and self._budget is not None:
            self._budget.withdraw(waiting.client, waiting.budgeted)
        else:
            self._shares.withdraw(waiting.client, admission)
            self._return_octets(waiting.client, waiting.octets)

    def recording(self, place: Place) -> None:
        """The record of an exchange is made: it has a place until that is durable."""
        self._forget(place)
        if not place.counted:
            place.counted = True
            self._shares.take(place.client)

    def settle(self, place: Place, taken: int) -> None:
        """The record takes so many octets in the database."""
        if self._room is not None:
            self._room.settle(place.client, place.octets - taken)
        self._return_octets(place.client, place.octets - taken)
        place.octets = taken

    def give_back(self, place: Place) -> None:
        """The record of an exchange is durable."""
        if self._room is not None:
            self._room.stored(place.client, place.octets)
        self._forget(place)
        self._leave(place)
        if self._shares.waiting and self._next is None:
            # Not at once: the records that became durable together are all answered before others are admitted.
            self._next = self._clock.callLater(0, self._next_turn)

    def abandon(self, place: Place) -> None:
        """An exchange comes to no record."""
        self.settle(place, 0)
        self.give_back(place)

    def _wait(self, done: Deferred[Place]) -> None:
        waiting = self._waiting[done]
        waiting.budgeted = None
        self._shares.wait(waiting.client, done)
        self._move()
        if done in self._waiting and waiting.until <= self._clock.seconds():
            self._refuse(done, Failure(self._refusal(waiting.client)))
            return
        if done in self._waiting:
            self._on_held(waiting.client, "place", self._shares.held(waiting.client))
        if self._shares.waiting and self._timer is None:
            self._timer = self._clock.callLater(_TICK, self._tick)

    def _refuse(self, done: Deferred[Place], failure: Failure) -> None:
        if self._waiting[done].budgeted is not None:
            # It waits for nothing there any more, and has taken nothing.
            del self._waiting[done]
        else:
            self.withdraw(done)
        done.errback(failure)

    def _return_octets(self, client: str, octets: int) -> None:
        if self._budget is not None:
            self._budget.give_back(client, octets)

    def _forget(self, place: Place) -> None:
        self._young.pop(place, None)
        self._old.pop(place, None)

    def _placed(self, client: str, octets: int) -> Place:
        place = Place(client, octets)
        if self._room is not None:
            self._room.take(client, octets)
        self._young[place] = None
        return place

    def _leave(self, place: Place) -> None:
        if place.counted:
            place.counted = False
            self._shares.give_back(place.client, self._clock.seconds())

    def _next_turn(self) -> None:
        self._next = None
        self._move()

    def _move(self) -> None:
        """Admit what may have a place now."""
        if self._moving or not self._shares.waiting:
            return
        self._moving = True
        now = self._clock.seconds()
        while (found := self._shares.next(now)) is not None:
            client, done = found
            done.callback(self._placed(client, self._waiting.pop(done).octets))
        self._moving = False

    def _tick(self) -> None:
        self._timer = None
        slow, self._old, self._young = self._old, self._young, {}
        for place in slow:
            self._leave(place)
        self._move()
        now = self._clock.seconds()
        for done, waiting in list(takewhile(lambda each: each[1].until <= now, self._waiting.items())):
            # Those that wait for their budget are refused by that.
            if waiting.budgeted is None and done in self._waiting:
                self._refuse(done, Failure(self._refusal(waiting.client)))
        if self._shares.waiting:
            self._timer = self._clock.callLater(_TICK, self._tick)

    def _refusal(self, client: str) -> NotaryRate:
        shares = self._shares
        what = f"{shares.total} records already wait, {shares.held(client)} of this identity (notary.queue)"
        return NotaryRate(what=what, retry_after=max(1, math.ceil(self.longest)))
