"""
How something limited is shared by those who want it: who may have more of it, who comes next, who has most.

The rule: one that is alone takes what is free. Several take what is free, too, but of less, so that none waits long
for what another one has; of as much again each may still have its share. What is given back goes to whoever waits and
has least. Of what fills up a part is left. Pure and told the time: whoever uses it makes the waiting ones wait, and
decides for how long.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

#: Holders that are remembered although they have nothing and do not wait; the one that left first is forgotten.
MAX_REMEMBERED: Final = 8192

#: What one may hold of something that fills up, as a multiple of what is still free, once little is.
OF_FREE: Final = 2
#: Little of something that fills up is free when it is less than this part of all.
SCARCE_PART: Final = 10

Holder = TypeVar("Holder", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)

#: Holders by what they have, in the order in which they came to have it. There are few different amounts: with a limit
#: of 65,536 places at most 361 add up to no more.
_Groups = dict[int, OrderedDict[Holder, None]]


def fits_left(held: int, wanted: int, free: int, scarce: int) -> bool:
    """
    Whether one may have more of something that fills up and is given back much later, such as a disk.

    Once less than ``scarce`` is free, whoever holds more than twice what is free gets no more: first the one that holds
    most, and others at less and less, so that a part is left for those that hold nothing.
    """
    return wanted <= free and (free >= scarce or held <= OF_FREE * free)


class SharedRoom:
    """
    Room that fills up, and what each holder has of it, by its name; who may have more: :func:`fits_left`.

    Args:
        limit: all of it.
    """

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        #: What is left; negative where more is held than there may be.
        self.free = limit
        self._scarce = limit // SCARCE_PART
        # Made for many changes: what sorts holders by what they have would cost more than a rare search.
        self._held: dict[str, int] = {}

    @property
    def scarce(self) -> bool:
        """Whether little is left."""
        return self.free < self._scarce

    def held(self, holder: str) -> int:
        """What one has."""
        return self._held.get(holder, 0)

    def fits(self, holder: str, wanted: int) -> bool:
        """Whether one may have so much more."""
        return fits_left(self._held.get(holder, 0), wanted, self.free, self._scarce)

    def take(self, holder: str, amount: int) -> None:
        """Count what one has more, or less where it is negative, whether it fits or not."""
        self.free -= amount
        held = self._held.get(holder, 0) + amount
        if held:
            self._held[holder] = held
        else:
            self._held.pop(holder, None)

    def most(self) -> tuple[str, int]:
        """Who has most, and how much; an empty name where nobody has anything."""
        holder = max(self._held, key=self._held.__getitem__, default="")
        return holder, self._held.get(holder, 0)


class Holdings(Generic[Holder]):
    """What each holder has of something, and who has most."""

    def __init__(self) -> None:
        #: All that is held.
        self.total = 0
        self._held: dict[Holder, int] = {}
        self._by_amount: _Groups[Holder] = {}

    def __iter__(self) -> Iterator[Holder]:
        return iter(self._held)

    def held(self, holder: Holder) -> int:
        """What one has."""
        return self._held.get(holder, 0)

    def most(self) -> Holder | None:
        """Who has most, None where nobody has anything; of several the one who has had that for longest."""
        return next(iter(self._by_amount[max(self._by_amount)])) if self._by_amount else None

    def largest_first(self) -> Iterator[Holder]:
        """All holders, first those that have most, in the order in which they came to have it."""
        return chain.from_iterable(self._by_amount[amount] for amount in sorted(self._by_amount, reverse=True))

    def change(self, holder: Holder, amount: int) -> None:
        """Count what one has more, or less where it is negative."""
        before = self._held.get(holder, 0)
        after = before + amount
        self.total += amount
        if before:
            _discard(self._by_amount, before, holder)
        if after:
            self._held[holder] = after
            _add(self._by_amount, after, holder)
        elif before:
            del self._held[holder]


def one_fits(holdings: Holdings[str], holder: str, limit: int) -> bool:
    """Whether a holder may have one more of ``limit``, of which all have what ``holdings`` says; see fits_left."""
    return fits_left(holdings.held(holder), 1, limit - holdings.total, limit // SCARCE_PART)


def share_evidence(holdings: Holdings[str], holder: str, limit: int) -> dict[str, str | int]:
    """Return the evidence of an error that refuses a holder one more of ``limit``: what it has, and who has most."""
    most = holdings.most() or ""
    return {
        "taken": holdings.total,
        "limit": limit,
        "held": holdings.held(holder),
        "most": most,
        "most_held": holdings.held(most),
    }


class Shares(Holdings[Holder], Generic[Holder, Item]):
    """
    What each holder has of a number of places, and what waits for one.

    Args:
        limit: all the places.
        together: how many of them several holders share; half of these may be taken as they come.
        linger: seconds for which a holder counts that has nothing any more, and does not wait: it comes again.
    """

    def __init__(self, limit: int, together: int, linger: float = 0.0) -> None:
        super().__init__()
        self.limit: Final = limit
        self.together: Final = min(together, limit)
        #: How many are taken as they come while there are several holders.
        self.free: Final = together // 2
        self.linger: Final = linger
        #: How many items wait.
        self.waiting = 0
        #: What waits, in order, and whose it is by what these holders have.
        self._lines: dict[Holder, OrderedDict[Item, None]] = {}
        self._waiting_by_amount: _Groups[Holder] = {}
        #: Until when those count that have nothing and do not wait.
        self._remembered: OrderedDict[Holder, float] = OrderedDict()

    def holders(self, now: float) -> int:
        """How many have something, wait, or have had something lately."""
        while self._remembered:
            holder, until = next(iter(self._remembered.items()))
            if until > now:
                break
            del self._remembered[holder]
        return len(self._held) + len(self._waiting_by_amount.get(0, ())) + len(self._remembered)

    def share(self, holder: Holder, now: float) -> int:
        """What one may have in any case beside all others; at least one place."""
        others = self._others(holder, now)
        return max(1, self.together // (others + 1)) if others else self.limit

    def fits(self, holder: Holder, now: float) -> bool:
        """Whether one may have a place now, as far as nobody waits."""
        if self.total >= self.limit:
            return False
        return self.total < self.free or self.held(holder) < self.share(holder, now)

    def take(self, holder: Holder) -> None:
        """Count a place that one has now, whether it fits or not."""
        self.change(holder, 1)
        self._remembered.pop(holder, None)

    def give_back(self, holder: Holder, now: float) -> None:
        """Count a place that one has no more."""
        self.change(holder, -1)
        if self.linger and holder not in self._held and holder not in self._lines:
            self._remembered[holder] = now + self.linger
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)

    def wait(self, holder: Holder, item: Item) -> None:
        """Add an item to the line of its holder."""
        line = self._lines.get(holder)
        if line is None:
            line = self._lines[holder] = OrderedDict()
            _add(self._waiting_by_amount, self.held(holder), holder)
            self._remembered.pop(holder, None)
        line[item] = None
        self.waiting += 1

    def withdraw(self, holder: Holder, item: Item) -> bool:
        """Remove an item from the line; returns whether it was there."""
        line = self._lines.get(holder)
        if line is None or item not in line:
            return False
        del line[item]
        self.waiting -= 1
        if not line:
            del self._lines[holder]
            _discard(self._waiting_by_amount, self.held(holder), holder)
        return True

    def next(self, now: float) -> tuple[Holder, Item] | None:
        """Take a place for what waits and may have it, first of whoever has least; returns it, no longer waiting."""
        if not self._lines:
            return None
        holder = next(iter(self._waiting_by_amount[min(self._waiting_by_amount)]))
        # Where this one may have no more, none that has more may.
        if not self.fits(holder, now):
            return None
        item = next(iter(self._lines[holder]))
        self.withdraw(holder, item)
        self.take(holder)
        return holder, item

    def _others(self, holder: Holder, now: float) -> int:
        known = holder in self._held or holder in self._lines or holder in self._remembered
        return self.holders(now) - known

    def change(self, holder: Holder, amount: int) -> None:
        before = self.held(holder)
        super().change(holder, amount)
        if holder in self._lines:
            _discard(self._waiting_by_amount, before, holder)
            _add(self._waiting_by_amount, before + amount, holder)


def _add(groups: _Groups[Holder], amount: int, holder: Holder) -> None:
    groups.setdefault(amount, OrderedDict())[holder] = None


def _discard(groups: _Groups[Holder], amount: int, holder: Holder) -> None:
    group = groups[amount]
    del group[holder]
    if not group:
        del groups[amount]
