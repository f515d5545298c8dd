"""What distinguishes one kind of database from another: its names in messages, its mark and its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from svc.errors import SvcError

#: Opens a connection to the file with this path.
Connect = Callable[[str], sqlite3.Connection]
#: What was done with a database, as metrics and logs name it.
Operation = Literal["put", "get", "init", "close"]


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """One kind of database."""

    #: In messages, with its article: "the notary database".
    name: str
    #: The configuration key of its path.
    key: str
    #: What a new database in place of a damaged one means, for hints.
    loss: str
    #: Its ``PRAGMA application_id``.
    application: int
    #: The statements that lead from each version to the next; the version is the number of steps done. One table is
    #: ``write_probe`` with one row and a column ``count``.
    migrations: tuple[tuple[str, ...], ...]
    #: Makes the caller's error for a file that cannot be used now, from ``path``, ``detail`` and ``words``.
    unavailable: Callable[..., SvcError]

    @property
    def version(self) -> int:
        """The schema version that this program creates."""
        return len(self.migrations)

    @property
    def words(self) -> dict[str, str]:
        """The evidence by which a :class:`svc.sqlite.errors.DatabaseError` names this database."""
        return {"database": self.name, "key": self.key, "loss": self.loss}


class DatabaseObserver(Protocol):
    """Receives reports on a database, on the reactor's thread."""

    def committed(self, count: int, seconds: float) -> None:
        """A group of ``count`` became durable within ``seconds``."""

    def damaged(self, path: str) -> None:
        """The database at ``path`` was found damaged while in use; it accepts nothing until the next start."""

    def set_aside(self, path: str, aside: str) -> None:
        """The database at ``path`` was found damaged at the start and quarantined as ``aside``."""

    def lies_aside(self, paths: Sequence[str]) -> None:
        """At the start there are quarantined databases, oldest first, which hold older data than this one."""


class SilentDatabaseObserver:
    """A :class:`DatabaseObserver` that does nothing."""

    def committed(self, count: int, seconds: float) -> None: ...

    def damaged(self, path: str) -> None: ...

    def set_aside(self, path: str, aside: str) -> None: ...

    def lies_aside(self, paths: Sequence[str]) -> None: ...
