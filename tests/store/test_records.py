"""A record names its statement."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.store.records import StoredReceipt
from svc.strictjson import JsonRefused


def record(payload: bytes, **members: Any) -> StoredReceipt:
    return StoredReceipt("id", "logRequest", "c", "s", None, "j", 1, "complete", None, payload, **members)


class StoredReceiptTests(SynchronousTestCase):
    """The statement's id is given or read."""

    def test_read_out_of_the_payload(self) -> None:
        """Without an id of its own the record takes the one in its payload."""
        self.assertEqual("abc", record(b'{"svc":{"workloadStatementID":"abc"}}').statement_id)

    def test_payload_names_none(self) -> None:
        """A payload that names no statement gives an empty id."""
        for payload in (b"{}", b'{"svc":1}', b'{"svc":{"workloadStatementID":null}}'):
            self.assertEqual("", record(payload).statement_id)

    def test_given(self) -> None:
        """A given id is taken without a look at the payload."""
        self.assertEqual("given", record(b"not json", statement_id="given").statement_id)

    def test_unreadable(self) -> None:
        """A payload that would have to be read but cannot be is refused."""
        self.assertRaises(JsonRefused, record, b"not json")
