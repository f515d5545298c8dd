"""The reasons of the notary: each has a sentence and a hint that its evidence fills."""

from __future__ import annotations

import inspect
import string

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError, detail_reason
from svc.notary import errors
from svc.notary.errors import NotaryError, NotaryRefused, ReceiptRefused, SignerChainUntrusted, StatementRefused

CLASSES = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, NotaryRefused)]
#: Sentence and hint by class and reason; a class that others derive from is not raised itself.
TEXTS = {
    (each, reason): (row.sentence, row.hint)
    for each in CLASSES
    for reason, row in each.__dict__.get("reasons", {}).items()
} | {
    (each, each.reason): ((each.__doc__ or "").strip(), each.hint)
    for each in CLASSES
    if each not in (NotaryRefused, StatementRefused, ReceiptRefused)
}


class ReasonTests(SynchronousTestCase):
    """All classes of the module and the rows of their tables."""

    def test_sentences(self) -> None:
        """Each sentence is one line, in lower case, without a full stop, and each reason has a hint."""
        for key, (sentence, hint) in TEXTS.items():
            self.assertNotIn("\n", sentence, key)
            self.assertFalse(sentence[0].isupper() or sentence.endswith("."), key)
            self.assertTrue(hint or key == (NotaryRefused, "method_not_allowed"), key)

    def test_evidence_fills_the_texts(self) -> None:
        """With its evidence each sentence and hint is filled completely, and so is the reason."""
        for (kind, reason), texts in TEXTS.items():
            names = {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}
            evidence = dict.fromkeys(names, "x")
            error = kind(reason, **evidence) if reason in kind.__dict__.get("reasons", {}) else kind(**evidence)
            self.assertNotIn("{", str(error) + error.hint, reason)
            self.assertNotIn("{}", error.detail_reason)

    def test_parameter(self) -> None:
        """A reason with a parameter is written as the formats write it."""
        for error, expected in (
            (SignerChainUntrusted(chain="pq", issuer="x", cause="y"), "chain_untrusted{pq}"),
            (NotaryRefused("proof_mismatch", member="aud"), "proof_mismatch{aud}"),
            (NotaryRefused("no_anchor"), "no_anchor"),
            (ReceiptRefused("request_mismatch", part="header:3"), "request_mismatch{header:3}"),
        ):
            self.assertEqual((error.detail_reason, detail_reason(error)), (expected, expected))

    def test_status(self) -> None:
        """Statements and receipts are refused with 502; rows of the table may set another status."""
        self.assertEqual(StatementRefused("transport_unbound").http_status, 502)
        self.assertEqual(ReceiptRefused("nonce_mismatch").http_status, 502)
        self.assertEqual(NotaryRefused("caller_mismatch", spiffe_id="a", caller="b").http_status, 403)

    def test_public_name(self) -> None:
        """Who catches the public name catches what the envelope is refused for, and what the notary refuses."""
        self.assertIs(NotaryError, EnvelopeError)
        self.assertTrue(all(issubclass(each, NotaryError) for each in CLASSES))
