"""
When a signing key is made, used, announced and forgotten.

Owns the calendar of all keys of the authority: X.509 roots, JWT keys and PQ roots rotate by the same rule. Knows
neither keys nor the clock.

A key lives ``ttl``. At half of its life its successor is made and announced in the bundles; at two thirds the
successor begins to sign, so every consumer had a sixth of the life to fetch the new bundle; at its end the old key
leaves the bundles. What a key signs lives at most a quarter of ``ttl``, so nothing signed outlives its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT")

#: Certificates begin a little in the past, so that a consumer whose clock is behind accepts them.
BACKDATE: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Slot(Generic[KeyT]):
    """
    One key and its times.

    Args:
        key: what signs.
        made: when it was made.
        active_from: from when on it signs.
        succeeded_at: when a successor is made.
        expires: when it leaves the bundles.
    """

    key: KeyT
    made: datetime
    active_from: datetime
    succeeded_at: datetime
    expires: datetime


class KeyRing(Generic[KeyT]):
    """
    The keys of one kind, oldest first.

    Args:
        make: makes a key that is announced at the first and expires at the second time.
        ttl: how long a key lives.
    """

    def __init__(self, make: Callable[[datetime, datetime], KeyT], ttl: timedelta) -> None:
        self._make = make
        self._ttl = ttl
        self._slots: tuple[Slot[KeyT], ...] = ()
        self._active: KeyT | None = None
        self._keep: Callable[[tuple[Slot[KeyT], ...]], None] = lambda slots: None

    def resume(self, slots: tuple[Slot[KeyT], ...], keep: Callable[[tuple[Slot[KeyT], ...]], None]) -> None:
        """
        Begin with keys of before, and have every change kept before a new key is used.

        Args:
            slots: the keys, oldest first.
            keep: takes all keys after a change; what it raises keeps the change from being made.
        """
        self._slots, self._keep = slots, keep

    def want(self, fits: Callable[[KeyT], bool], now: datetime) -> None:
        """
        Let the newest key have a successor now where it is not of the kind that is wanted.

        Args:
            fits: whether a key is of that kind.
            now: the time.
        """
        if self._slots and not fits(self._slots[-1].key):
            newest = self._slots[-1]
            self._slots = (*self._slots[:-1], replace(newest, succeeded_at=min(newest.succeeded_at, now)))

    def advance(self, now: datetime) -> bool:
        """
        Bring the ring to a time: drop what expired, make what is due.

        Args:
            now: the time; a clock that was set past all keys, forward or back, gets a new one at once.

        Returns:
            Whether the announced keys or the signing one changed.

        Raises:
            SvcError: a change could not be kept; the keys of before serve while they live.
        """
        before, active = self._slots, self._active
        slots = self._slots = tuple(slot for slot in before if now < slot.expires)
        if all(now < slot.made - BACKDATE for slot in slots):
            # Nobody would believe now what keys of the future sign. The one that signed stays announced: its clock may
            # have been right, and be set again.
            slots = (*(slot for slot in slots if slot.key is active), self._slot(now, now))
        newest = slots[-1]
        if now >= newest.succeeded_at:
            slots += (self._slot(now, max(now, newest.succeeded_at + self._ttl / 6)),)
        if slots != before:
            self._keep(slots)
            self._slots = slots
        self._active = self._signing(now).key
        return self._slots != before or self._active is not active

    def active(self, now: datetime) -> Slot[KeyT]:
        """
        Find the key that signs.

        Args:
            now: the time.

        Returns:
            The newest slot that is active; where there is none that lives, one is made.

        Raises:
            SvcError: none lives, and a new one could not be kept.
        """
        if all(slot.expires <= now for slot in self._slots):
            self.advance(now)
        return self._signing(now)

    @property
    def announced(self) -> tuple[Slot[KeyT], ...]:
        """Every slot whose key belongs into a bundle, oldest first."""
        return self._slots

    def _signing(self, now: datetime) -> Slot[KeyT]:
        begun = [slot for slot in self._slots if slot.active_from <= now]
        # A clock that was set back a little finds no active key: the oldest one is the best known to consumers.
        return begun[-1] if begun else self._slots[0]

    def _slot(self, now: datetime, active_from: datetime) -> Slot[KeyT]:
        expires = now + self._ttl
        return Slot(self._make(now, expires), now, active_from, now + self._ttl / 2, expires)
