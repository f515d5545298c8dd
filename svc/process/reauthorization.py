"""
Reauthorization of open connections after a change of what they were authorized by.

Owns in which order connections are decided on again and for how long at a time: 10,000 of them take up to two
seconds, in which the reactor serves the others. What a decision is belongs to the connections.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from svc.pacing.turns import TURN_SECONDS
from svc.telemetry.records import Value

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReauthorizationSummary:
    """
    One walk over the open connections: how many decisions and refusals, how long it took, and the longest part of a
    reactor turn that it took.
    """

    decisions: int
    refusals: int
    seconds: float
    longest_slice: float

    @property
    def attributes(self) -> dict[str, Value]:
        """The attributes of its log record."""
        return {
            "connections": self.decisions,
            "refused": self.refusals,
            "duration_seconds": round(self.seconds, 6),
            "longest_slice_seconds": round(self.longest_slice, 6),
        }


class Reauthorization(Generic[T]):
    """
    The open connections of a process, and the walk over them after a change.

    Connections are ordered by when they were last decided on, so that changes that come faster than a walk ends leave
    none undecided for ever.

    Args:
        clock: the reactor; its time is monotonic.
        decide: decides on a connection by what is in force now, ends it where it is refused, and returns whether it
            was; must not raise.
        finished: called when all open connections are decided by what is in force.
    """

    def __init__(
        self,
        clock: IReactorTime,
        decide: Callable[[T], bool],
        finished: Callable[[ReauthorizationSummary], None] = lambda _summary: None,
    ) -> None:
        self._clock = clock
        self._decide = decide
        self._finished = finished
        #: How many changes there were.
        self.changes = 0
        #: By which of them each connection was decided; those in front are to be decided first.
        self._decided: OrderedDict[T, int] = OrderedDict()
        self._next_slice: IDelayedCall | None = None
        self._began = self._longest = 0.0
        self._decisions = self._refusals = 0
        #: Whether connections may be undecided; read for each request.
        self.running = False

    def add(self, connection: T) -> None:
        """Add a connection that was authorized by what is in force now."""
        self._decided[connection] = self.changes

    def discard(self, connection: T) -> None:
        """Remove a connection that has ended."""
        self._decided.pop(connection, None)

    def __iter__(self) -> Iterator[T]:
        return iter(self._decided)

    def __len__(self) -> int:
        return len(self._decided)

    def begin(self) -> None:
        """Decide on all open connections again, from the next reactor turn on; call it when a change is in force."""
        self.changes += 1
        if self.running or not self._decided:
            return
        self.running = True
        self._began, self._longest = self._clock.seconds(), 0.0
        self._decisions = self._refusals = 0
        self._schedule()

    def stop(self) -> None:
        """Decide on no more connections."""
        self.running = False
        call, self._next_slice = self._next_slice, None
        if call is not None:
            call.cancel()

    def decide(self, connection: T) -> bool:
        """Decide on an open connection that the walk has not reached yet; returns whether it is refused by that."""
        if self._decided.get(connection, self.changes) == self.changes:
            return False
        # Before the decision, which may remove it.
        self._decided[connection] = self.changes
        self._decided.move_to_end(connection)
        self._decisions += 1
        refused = self._decide(connection)
        self._refusals += refused
        return refused

    def _schedule(self) -> None:
        self._next_slice = self._clock.callLater(0, self._slice)

    def _slice(self) -> None:
        self._next_slice = None
        began = now = self._clock.seconds()
        for connection in iter(self._first_undecided, None):
            self.decide(connection)
            now = self._clock.seconds()
            if now - began >= TURN_SECONDS:
                break
        self._longest = max(self._longest, now - began)
        if self._first_undecided() is not None:
            self._schedule()
            return
        self.running = False
        seconds = now - self._began
        self._finished(ReauthorizationSummary(self._decisions, self._refusals, seconds, self._longest))

    def _first_undecided(self) -> T | None:
        connection = next(iter(self._decided), None)
        return None if connection is None or self._decided[connection] == self.changes else connection
