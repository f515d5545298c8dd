"""The records of a database of this machine, or of a server."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

from svc.cli.errors import UsageRefused
from svc.cli.receipts.errors import RecordError
from svc.cli.receipts.plan import Page, ReceiptSource, Record
from svc.envelope.envelope import Envelope
from svc.envelope.ids import identifies
from svc.notary.artifact import parse_receipt, stored_artifact
from svc.notary.receipt import Disclosures, with_disclosures
from svc.reports.summary import receipt_summary
from svc.store.readonly import NotaryReader, open_notary
from svc.store.records import ReceiptQuery

_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,43}\Z")
#: Characters of a whole id.
_WHOLE: Final = 43
#: The most records that an error names.
_NAMED: Final = 3

T = TypeVar("T")


class DatabaseSource:
    """Implements :class:`svc.cli.receipts.plan.ReceiptSource`; nothing in it waits."""

    def __init__(self, reader: NotaryReader) -> None:
        self.place = f"the notary database {reader.name}"
        self.nothing = (
            f"{self.place} has no record that matches;"
            " only requests at the levels logRequest and signRequest are recorded"
        )
        self._reader = reader

    async def find(self, query: ReceiptQuery) -> Page:
        found = self._reader.find(query)
        return Page([receipt_summary(stored.id, stored.payload) for stored in found], found.next)

    async def record(self, key: str) -> Record:
        """Find one record by its id or the beginning of it, in any spelling, or by its nonce or ``jti``."""
        name = self._resolved(key)
        stored = self._reader.get_receipt(name)
        if stored is None:
            raise self._missing(key)
        if not identifies(name, stored.payload):
            raise RecordError("record_altered", place=self.place, key=name)
        artifact = stored_artifact(stored.payload, stored.envelope, stored.batch, stored.inclusion)
        if artifact is None:
            return Record(name, stored.payload, None, None)
        receipt = parse_receipt(artifact)
        if receipt.payload != stored.payload:
            raise RecordError("record_altered", place=self.place, key=name)
        statement = self._reader.get_statement(stored.statement_id or "")
        return Record(
            name,
            stored.payload,
            with_disclosures(receipt, cast("Disclosures | None", stored.disclosures)),
            None if statement is None else Envelope.parse(statement),
        )

    def _resolved(self, key: str) -> str:
        wanted = key.strip().rstrip("=").replace("+", "-").replace("/", "_")
        if not _KEY.match(wanted):
            raise UsageRefused(
                f'"{key}" is not an identifier',
                "expected: an id as a list or a report shows it, its beginning, or a nonce or jti",
            )
        if len(wanted) == _WHOLE:
            return wanted
        found = self._reader.named(wanted, _NAMED + 1)
        if not found:
            raise self._missing(key)
        if len(found) > 1:
            shown = ", ".join(found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
            raise RecordError("record_ambiguous", key=key, found=shown)
        return found[0]

    def _missing(self, key: str) -> RecordError:
        return RecordError("record_missing", place=self.place, key=key)


def run_local(database: str, work: Callable[[ReceiptSource], Coroutine[Any, Any, T]]) -> T:
    """Open a database, do the work with it, and close it."""
    reader = open_notary(database)
    try:
        work(DatabaseSource(reader)).send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        reader.close()
    raise RuntimeError("a database is read without waiting")
