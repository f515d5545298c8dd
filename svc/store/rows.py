"""
What a store's threads hand to each other: rows to be written, and what came of them.

Knows no database.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from svc.store.errors import StoreError
from svc.store.interface import Entity
from svc.store.records import StoredReceipt


@dataclass(frozen=True)
class StatementRow:
    """
    A statement as it is written.

    Args:
        id: its id.
        expires: NumericDate.
        envelope: its JSON octets.
    """

    id: str
    expires: int
    envelope: bytes


Row = StatementRow | StoredReceipt


@dataclass
class Outcome:
    """
    What came of some work.

    Args:
        results: for each record None, or why it is not stored.
        errors: the entities whose operation the database refused.
        seconds: how long it took.
        detail: what the database said, for people.
        undecided: whether the database went away before it said what came of the group; there are no results then.
    """

    results: list[StoreError | None] = field(default_factory=list)
    errors: list[Entity] = field(default_factory=list)
    seconds: float = 0.0
    detail: str = ""
    undecided: bool = False


class Refused(Exception):
    """An error of the database, with the entity it hit and what it said to people."""

    def __init__(self, entity: Entity, error: Exception, detail: str = "") -> None:
        super().__init__(entity, error, detail)
        self.detail = detail
        self.entity: Entity = entity
        self.error = error
