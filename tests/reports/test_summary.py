"""Summaries of receipts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.reports.summary import MAX_TEXT, described, receipt_summary
from svc.strictjson import dumps
from tests.notary.artifacts import JTI, NONCE, Fixture

FIXTURE = Fixture()
NAMES = st.sampled_from(["svc", "request", "response", "status", "iat", "path", "client", "time"])
SCALARS = st.none() | st.booleans() | st.text() | st.integers()
DOCUMENTS = st.recursive(SCALARS, lambda each: st.dictionaries(NAMES, each))


class SummaryTests(SynchronousTestCase):
    """What a list says of a record."""

    def test_receipt(self) -> None:
        """All members of a complete exchange, the path without its query."""
        draft = FIXTURE.draft()
        found = receipt_summary(draft.id, draft.payload)
        self.assertEqual(
            {
                "id": draft.id,
                "time": found["time"],
                "level": "signRequest",
                "client": str(FIXTURE.client_svid.spiffe_id),
                "server": str(FIXTURE.svid.spiffe_id),
                "method": "POST",
                "authority": "api.pay:8443",
                "path": "/v1/transfer",
                "status": 200,
                "packet": None,
                "topic": None,
                "reasonCode": None,
                "outcome": "complete",
                "nonce": NONCE,
                "jti": JTI,
                "workloadStatementID": FIXTURE.credentials.statement.id,
                "received": found["received"],
                "completed": found["completed"],
            },
            found,
        )
        self.assertRegex(str(found["time"]), r"\A2[0-9-]{9}T[0-9:]{8}Z\Z")
        self.assertRegex(str(found["completed"]), r"\A2[0-9-]{9}T[0-9:]{8}\.[0-9]{6}Z\Z")

    def test_message(self) -> None:
        """A message of MQTT has packet, topic and reason code, and nothing of HTTP; for people they take its place."""
        found = receipt_summary("name", FIXTURE.draft(FIXTURE.publish()).payload)
        self.assertEqual(("PUBLISH", "meters/1/power", 0), (found["packet"], found["topic"], found["reasonCode"]))
        self.assertEqual([None] * 4, [found[name] for name in ("method", "authority", "path", "status")])
        self.assertEqual((NONCE, "complete"), (found["nonce"], found["outcome"]))
        self.assertEqual(("PUBLISH", "meters/1/power", "0x00"), described(found))
        self.assertEqual(("PUBLISH", None, None), described({"packet": "PUBLISH", "reasonCode": "0"}))
        self.assertEqual(("POST", "/v1/transfer", 200), described(receipt_summary("name", FIXTURE.draft().payload)))

    def test_absent(self) -> None:
        """What a record has not is None."""
        exchange = FIXTURE.exchange(
            level=Level.LOG_REQUEST, client=None, nonce=None, status=None, outcome=ExchangeOutcome.CLIENT_ABORTED
        )
        found = receipt_summary("name", FIXTURE.draft(exchange).payload)
        self.assertEqual((None, None, None), (found["client"], found["nonce"], found["status"]))
        self.assertEqual(("logRequest", "client_aborted"), (found["level"], found["outcome"]))

    def test_long_path(self) -> None:
        """A long path is cut."""
        found = receipt_summary("name", FIXTURE.draft(FIXTURE.exchange(path="/" + "a" * MAX_TEXT)).payload)
        self.assertEqual("/" + "a" * (MAX_TEXT - 1) + "…", found["path"])

    @given(st.binary() | DOCUMENTS.map(dumps))
    def test_any_payload(self, payload: bytes) -> None:
        """Any octets have a summary with an id."""
        self.assertEqual("name", receipt_summary("name", payload)["id"])

    def test_deep_payload(self) -> None:
        """Deep nesting raises nothing."""
        self.assertIsNone(receipt_summary("name", b"[" * 100_000)["path"])
