"""
How a search goes through a database: in slices, so that no other read waits for more than one of them.

Contains no I/O; its callers read the slices, in the thread that reads or, in the command line, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from svc.store.records import FoundReceipts, ReceiptQuery, RecordPosition, StoredReceipt

#: Records that are read in one transaction.
SLICE_ROWS: Final = 256
#: Octets of payloads after which a slice ends: a record may have a megabyte.
SLICE_OCTETS: Final = 512 * 1024
#: Records, and octets of payloads, that one search reads; then it ends, however many it has found.
SEARCH_ROWS: Final = 8192
SEARCH_OCTETS: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class SearchSlice:
    """
    The result of reading one slice.

    Args:
        found: the records that the query selects.
        rows: how many were read.
        last: the last one that was read; None where nothing is left behind the slice.
        octets: how many their payloads had, of those that were read.
    """

    found: Sequence[StoredReceipt]
    rows: int
    last: RecordPosition | None
    octets: int = 0


class Search:
    """
    One search.

    Args:
        query: what to find.
        rows: records that may be read.
        octets: of payloads that may be read.

    Attributes:
        found: what was found.
        query: for the next slice.
        rows: the size of the next slice; 0 where the search has ended.
    """

    def __init__(self, query: ReceiptQuery, rows: int = SEARCH_ROWS, octets: int = SEARCH_OCTETS) -> None:
        self.found = FoundReceipts()
        self.query = query
        self._limit = query.limit
        self._left = rows
        self._octets_left = octets
        self.rows = min(SLICE_ROWS, rows)

    def got(self, part: SearchSlice) -> None:
        """Take the result of a slice."""
        self.found += part.found
        self.found.next = part.last
        self._left -= part.rows
        self._octets_left -= part.octets
        room = self._limit - len(self.found)
        more = part.last is not None and room > 0 and self._octets_left > 0
        self.rows = min(SLICE_ROWS, self._left) if more else 0
        if self.rows:
            self.query = replace(self.query, before=part.last, limit=room)
