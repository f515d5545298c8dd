"""The page of ``svc verify --html``, checked by tidy."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.notary.evidence import EvidenceFile, VerificationResult
from svc.reports.exchange_account import stored_account, verification_account
from svc.reports.html import html_page
from tests.peers.programs import find, run
from tests.reports.test_html import CLAIMS, FIXTURE, HOSTILE, SOURCE, account_of, claims_with, evidence_of


class TidyTests(SynchronousTestCase):
    """Pages of each kind."""

    def test_valid(self) -> None:
        """They are valid HTML without a warning, whatever a claim contains."""
        evidence = evidence_of(client=None, response_trailers=((b"X-Sum", b"1"),))
        failed = VerificationResult(error=EnvelopeError("wrong_type", found=HOSTILE, expected="x"))
        for accounts in (
            [account_of(evidence)],
            [account_of(EvidenceFile(FIXTURE.credentials.statement.envelope))],
            [verification_account(failed, SOURCE, evidence)],
            [stored_account(CLAIMS, "a", signed=True), stored_account(claims_with([HOSTILE]), HOSTILE, signed=False)],
        ):
            ran = run([find("tidy"), "-quiet", "-errors"], data=html_page(accounts).encode())
            self.assertEqual((0, b""), (ran.returncode, ran.stderr), accounts[0].title)

    def test_tidy_reports(self) -> None:
        """Tidy does report markup that a value would have added."""
        page = html_page([stored_account(CLAIMS, "a", signed=True)]).replace("<h1>", "<h1><pre>")
        self.assertTrue(run([find("tidy"), "-quiet", "-errors"], data=page.encode()).stderr)
