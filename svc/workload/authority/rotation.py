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
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class Slot(Generic[KeyT]):
    """
    One key and its times.

    Args:
        key: what signs.
        active_from: from when on it signs.
        succeeded_at: when a successor is made.
        expires: when it leaves the bundles.
    """

    key: KeyT
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

    def advance(self, now: datetime) -> bool:
        """
        Bring the ring to a time: drop what expired, make what is due.

        Args:
            now: the time; a clock that was set forward past all keys gets a new one at once.

        Returns:
            Whether the announced keys or the signing one changed.
        """
        before = self._slots
        active = self._active
        self._slots = tuple(slot for slot in self._slots if now < slot.expires)
        if not self._slots:
            self._slots = (self._slot(now, now),)
        newest = self._slots[-1]
        if now >= newest.succeeded_at:
            self._slots += (self._slot(now, max(now, newest.succeeded_at + self._ttl / 6)),)
        self._active = self._signing(now).key
        return self._slots != before or self._active is not active

    def active(self, now: datetime) -> Slot[KeyT]:
        """
        Find the key that signs.

        Args:
            now: the time.

        Returns:
            The newest slot that is active; before the first :meth:`advance` one is made.
        """
        if not self._slots:
            self.advance(now)
        return self._signing(now)

    @property
    def announced(self) -> tuple[Slot[KeyT], ...]:
        """Every slot whose key belongs into a bundle, oldest first."""
        return self._slots

    def _signing(self, now: datetime) -> Slot[KeyT]:
        begun = [slot for slot in self._slots if slot.active_from <= now]
        # A clock that was set back finds no active key: the oldest one is the best known to consumers.
        return begun[-1] if begun else self._slots[0]

    def _slot(self, now: datetime, active_from: datetime) -> Slot[KeyT]:
        expires = now + self._ttl
        return Slot(self._make(now, expires), active_from, now + self._ttl / 2, expires)
