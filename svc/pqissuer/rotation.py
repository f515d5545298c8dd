"""
The rotation of signing keys: X.509 roots, JWT keys and PQ roots follow the same rule.

A key is valid for ``ttl``. At half of its lifetime its successor is made and announced in the bundles; at two thirds
the successor starts to sign, so every consumer had a sixth of the lifetime to fetch the new bundle; at its end the old
key is removed from the bundles. What a key signs is valid for at most a quarter of ``ttl``, so nothing signed outlives
its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT")

#: Certificates are valid from a little before they are made, so that a consumer whose clock is behind accepts them.
BACKDATE: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Slot(Generic[KeyT]):
    """A key and its times: made, signing from, successor due, removed from the bundles."""

    key: KeyT
    made: datetime
    active_from: datetime
    succeeded_at: datetime
    expires: datetime


class KeyRing(Generic[KeyT]):
    """
    The keys of one kind, oldest first.

    ``make`` makes a key for the time of its announcement and that of its expiry.
    """

    def __init__(self, make: Callable[[datetime, datetime], KeyT], ttl: timedelta) -> None:
        self._make = make
        self._ttl = ttl
        self._slots: tuple[Slot[KeyT], ...] = ()
        self._active: KeyT | None = None
        self._store: Callable[[tuple[Slot[KeyT], ...]], None] = lambda slots: None

    def resume(self, slots: tuple[Slot[KeyT], ...], store: Callable[[tuple[Slot[KeyT], ...]], None]) -> None:
        """
        Start with earlier keys; ``store`` gets all keys at each change, and an error it raises prevents the change.
        """
        self._slots, self._store = slots, store

    def ensure(self, fits: Callable[[KeyT], bool], now: datetime) -> None:
        """Make the successor of the newest key due now unless it ``fits``."""
        if self._slots and not fits(self._slots[-1].key):
            newest = self._slots[-1]
            self._slots = (*self._slots[:-1], replace(newest, succeeded_at=min(newest.succeeded_at, now)))

    def advance(self, now: datetime) -> bool:
        """
        Drop expired keys and make those that are due.

        If the clock was set past all keys, forward or back, a new key is made at once. Returns whether the announced
        keys or the signing one changed. Raises ``SvcError`` if a change could not be stored; the previous keys stay in
        use.
        """
        before, active = self._slots, self._active
        slots = self._slots = tuple(slot for slot in before if now < slot.expires)
        if all(slot.made - now > BACKDATE for slot in slots):
            # Verifiers would refuse signatures by keys of the future. The signing key stays announced: its clock may
            # have been right, and be set again.
            slots = (*(slot for slot in slots if slot.key is active), self._new_slot(now, now))
        newest = slots[-1]
        if now >= newest.succeeded_at:
            slots += (self._new_slot(now, max(now, newest.succeeded_at + self._ttl / 6)),)
        if slots != before:
            self._store(slots)
            self._slots = slots
        self._active = self._signing_slot(now).key
        return self._slots != before or self._active is not active

    def active(self, now: datetime) -> Slot[KeyT]:
        """The newest key that signs; one is made if all have expired."""
        if all(slot.expires <= now for slot in self._slots):
            self.advance(now)
        return self._signing_slot(now)

    def begin(self, slot: Slot[KeyT], now: datetime) -> None:
        """Let an announced key sign from now on, before its time; stored with the next change."""
        self._slots = tuple(replace(each, active_from=now) if each is slot else each for each in self._slots)

    @property
    def announced(self) -> tuple[Slot[KeyT], ...]:
        """Every key that belongs in a bundle, oldest first."""
        return self._slots

    @property
    def complete_until(self) -> datetime:
        """Until when no key signs that is not announced now: the successor of the newest is made and waits before."""
        newest = self._slots[-1]
        return newest.succeeded_at + self._ttl / 6

    def signs(self, slot: Slot[KeyT], now: datetime) -> bool:
        """Whether an announced key is the one that signs."""
        return slot is self._signing_slot(now)

    def _signing_slot(self, now: datetime) -> Slot[KeyT]:
        begun = [slot for slot in self._slots if slot.active_from <= now]
        # If the clock was set back a little there may be no active key: consumers most likely have the oldest one.
        return begun[-1] if begun else self._slots[0]

    def _new_slot(self, now: datetime, active_from: datetime) -> Slot[KeyT]:
        expires = now + self._ttl
        return Slot(self._make(now, expires), now, active_from, now + self._ttl / 2, expires)
