"""A record refers to its statement."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.store.records import StoredReceipt
from svc.strictjson import JsonRefused


def record(payload: bytes, **members: Any) -> StoredReceipt:
    return StoredReceipt("id", "logRequest", "c", "s", None, "j", 1, "complete", None, payload, **members)


class StoredReceiptTests(SynchronousTestCase):
    """The ID of the statement is given or read from the payload."""

    def test_read_out_of_the_payload(self) -> None:
        """Without a given ID the one in the payload is used."""
        self.assertEqual("abc", record(b'{"svc":{"workloadStatementID":"abc"}}').statement_id)

    def test_payload_names_none(self) -> None:
        """A payload without a statement gives an empty ID."""
        for payload in (b"{}", b'{"svc":1}', b'{"svc":{"workloadStatementID":null}}'):
            self.assertEqual("", record(payload).statement_id)

    def test_given(self) -> None:
        """If an ID is given, the payload is not parsed."""
        self.assertEqual("given", record(b"not json", statement_id="given").statement_id)

    def test_unreadable(self) -> None:
        """If no ID is given, a payload that cannot be parsed is refused."""
        self.assertRaises(JsonRefused, record, b"not json")
