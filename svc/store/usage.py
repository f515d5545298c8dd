"""What the records of a store take, and what room is left for more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: Clients whose octets are read, those with most of them.
MAX_HOLDERS: Final = 8192


@dataclass(frozen=True)
class StoreUsage:
    """
    One measurement of a store.

    Attributes:
        octets: what all records take, without room that is used again.
        free: how many more fit the disk, None where the disk is another machine's.
        size: of the file system, None likewise.
        held: octets of the records by their clients; empty where the database does not count them.
    """

    octets: int
    free: int | None = None
    size: int | None = None
    held: Mapping[str, int] = field(default_factory=dict)
