"""Tests of :mod:`svc.reports.html` and of the accounts of :mod:`svc.reports.exchange_account`."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Sequence
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.envelope.ids import printed_id
from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.errors import printable
from svc.identity import BundleSet
from svc.notary.errors import NotaryRefused
from svc.notary.evidence import TIME_ASSERTED, EvidenceFile, VerificationResult, verify_offline
from svc.notary.exchange import BodySummary, ExchangeOutcome
from svc.notary.facts import Container, WorkloadFacts
from svc.notary.publish import AckedBy, RecordedAcknowledgement
from svc.notary.statement import issue_statement
from svc.notary.verification import Anchors
from svc.reports.account import Account, Verdict
from svc.reports.checks import EvidenceSource
from svc.reports.exchange_account import (
    ACKNOWLEDGED,
    ASSERTED,
    ASSERTED_MESSAGE,
    ASSERTED_UNACKNOWLEDGED,
    NO_CLIENT,
    NOT_PROVEN,
    OUTCOMES,
    stored_account,
    verification_account,
)
from svc.reports.html import STYLE, html_page
from svc.reports.report import CheckResult, ReportLine
from svc.strictjson import loads_object
from svc.testing.ca import TestAuthority
from tests.notary.artifacts import NOW, REQUEST_BODY, RESPONSE_BODY, Fixture, message_of

FIXTURE = Fixture()
#: Markup, ends of every context of the page, and characters that act on a terminal or reorder a line.
HOSTILE = "</pre></style></title>--><script>alert(1)</script><img src=x onerror=y>\"' &lt;\x1b[2J\r\n\u202e\u2028\x00"
TEXTS = st.text(min_size=1, max_size=8) | st.just(HOSTILE) | st.text("<>&\"'/!-a=\x00\u202e\n", min_size=1)
CLAIMS = loads_object(FIXTURE.receipt(FIXTURE.exchange()).payload)
RECEIPTS = Path(__file__).parents[2] / "docs" / "receipts.md"
SOURCE = EvidenceSource("evidence.json", 3, hashlib.sha256(b"{}\n").digest(), NOW, Profile.HYBRID, ("roots.pem",))


class Skeleton(HTMLParser):
    """What a page consists of: its elements with their attributes in order, and apart from them its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[object] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *attrs))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.elements.append(f"comment {data}")

    def unknown_decl(self, data: str) -> None:
        self.elements.append(f"declaration {data}")


def evidence_of(**changes: object) -> EvidenceFile:
    """An evidence file about an exchange with other fields."""
    return EvidenceFile(
        FIXTURE.credentials.statement.envelope,
        FIXTURE.receipt(FIXTURE.exchange(**changes)),
        None if "request_body" in changes else REQUEST_BODY,
        None if "response_body" in changes else RESPONSE_BODY,
    )


def account_of(evidence: EvidenceFile, profile: Profile = Profile.HYBRID) -> Account:
    """The account of a successful verification."""
    result = verify_offline(evidence, profile=profile, anchors=FIXTURE.anchors, now=NOW + timedelta(seconds=2))
    return verification_account(result, SOURCE, evidence)


def text_of(account: Account) -> str:
    """The text of a page, without that of its style sheet."""
    return Skeleton(html_page([account])).text.replace(STYLE, "")


def checks_of(account: Account, title: str) -> dict[str, tuple[CheckResult | None, str]]:
    """The checks of the section with this end of its title: result and words by label."""
    lines = next(section.lines for section in account.sections if section.title.endswith(title))
    return {line.label: (line.check, line.value) for line in lines if line.depth == 0}


def lines_of(account: Account, title: str) -> dict[str, ReportLine]:
    """The lines of a section by label."""
    return {line.label: line for section in account.sections if section.title == title for line in section.lines}


def claims_with(texts: Sequence[str]) -> dict[str, object]:
    """The claims of a receipt with these texts, in turn, in place of its own."""
    remaining = itertools.cycle(texts)

    def replaced(value: object) -> object:
        if isinstance(value, dict):
            return {name: replaced(member) for name, member in value.items()}
        if isinstance(value, list):
            return [replaced(member) for member in value]
        return next(remaining) if isinstance(value, str) else value

    return {name: replaced(value) for name, value in CLAIMS.items()}


class PageTests(SynchronousTestCase):
    """The page as a document."""

    def test_self_contained(self) -> None:
        """It has no script, no address and no style but its own, which its policy names by digest."""
        found = Skeleton(html_page([account_of(evidence_of())]))
        tags = {element[0] for element in found.elements if isinstance(element, tuple)}
        self.assertEqual(set(), tags & {"script", "link", "img", "iframe", "object", "form", "a", "base"})
        attributes = {name for element in found.elements if isinstance(element, tuple) for name, _value in element[1:]}
        self.assertEqual({"lang", "charset", "http-equiv", "content", "name", "class", "role"}, attributes)
        self.assertNotIn("url(", STYLE)
        self.assertNotIn("@import", STYLE)
        page = html_page([account_of(evidence_of())])
        style = re.search("<style>(.*)</style>", page, re.DOTALL)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        self.assertIn(f"content=\"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'", page)

    def test_hostile_facts(self) -> None:
        """Facts of a statement and the name of the file add no element and no control character."""
        facts = WorkloadFacts.explicit(namespace=HOSTILE, containers=[Container(HOSTILE, HOSTILE)])
        statement = FIXTURE.credentials_of(FIXTURE.svid, facts=facts).statement
        harmless = FIXTURE.credentials_of(
            FIXTURE.svid, facts=WorkloadFacts.explicit(namespace="x", containers=[Container("x", "x")])
        ).statement
        pages = []
        for made, name in ((statement, HOSTILE), (harmless, "x")):
            source = EvidenceSource(name, 1, bytes(32), NOW, Profile.HYBRID, (name,))
            result = VerificationResult(FIXTURE.verified_statement(made.envelope), time_asserted=True)
            pages.append(Skeleton(html_page([verification_account(result, source)], made_by=name)))
        self.assertEqual(pages[0].elements, pages[1].elements)
        self.assertIn("<script>alert(1)</script>", pages[0].text)
        self.assertTrue(pages[0].text.replace("\n", "").isprintable())

    @given(st.lists(TEXTS, min_size=1, max_size=5))
    def test_any_claims(self, texts: list[str]) -> None:
        """No text of any claim becomes markup, and none stays that acts on a terminal."""
        found = Skeleton(html_page([stored_account(claims_with(texts), texts[0], signed=True)]))
        harmless = Skeleton(html_page([stored_account(claims_with(["x"]), "x", signed=True)]))
        self.assertEqual(harmless.elements, found.elements)
        for character in set(found.text) - {"\n"}:
            self.assertEqual(character, printable(character))

    @given(st.text(max_size=40) | st.just(HOSTILE))
    def test_any_failure(self, text: str) -> None:
        """The same of what an error names."""
        pages = []
        for value in (text, "x"):
            error = EnvelopeError("wrong_type", found=value, expected=value)
            pages.append(Skeleton(html_page([verification_account(VerificationResult(error=error), SOURCE)])))
        self.assertEqual(pages[0].elements, pages[1].elements)

    def test_several(self) -> None:
        """Several accounts are one page, each with its own verdict."""
        account = account_of(evidence_of())
        page = html_page([account, account])
        self.assertEqual(2, page.count("<article>"))
        self.assertIn(f"<title>{account.title} and 1 more</title>", page)


class VerifiedTests(SynchronousTestCase):
    """The account of a verification that succeeded."""

    def test_who_what_when(self) -> None:
        """It names both sides, the request, the response with sizes and digests, and whose word the times are."""
        account = account_of(evidence_of())
        self.assertIs(Verdict.VERIFIED, account.verdict)
        who, what, when = (lines_of(account, title) for title in ("Who", "What", "When"))
        self.assertEqual("spiffe://prod.example.org/ns/web/sa/fe", who["Client"].value)
        self.assertEqual("spiffe://prod.example.org/ns/pay/sa/api", who["Server"].value)
        self.assertEqual(("POST", "200"), (what["Method"].value, what["Status Code"].value))
        self.assertEqual(hashlib.sha256(RESPONSE_BODY).hexdigest(), what["Body SHA-256"].value)
        self.assertIn(hashlib.sha256(REQUEST_BODY).hexdigest(), text_of(account))
        self.assertEqual({"the signer's word"}, {when[name].mark for name in ("Request received", "Receipt issued")})
        self.assertEqual(("none", TIME_ASSERTED), (when["Trusted time"].value, when["Trusted time"].mark))
        self.assertIn("sent POST /v1/transfer to spiffe://prod.example.org/ns/pay/sa/api", account.summary[2])
        self.assertIn(printed_id(FIXTURE.evidence.id), text_of(account))

    def test_long_path(self) -> None:
        """The sentence on top has the beginning of a long path, the section below it the whole."""
        for length, told in ((120, f"/{'a' * 119}"), (121, f"/{'a' * 119}…")):
            path = f"/{'a' * (length - 1)}"
            account = account_of(evidence_of(path=path))
            self.assertIn(f"sent POST {told} to ", account.summary[2])
            self.assertIn(path, lines_of(account, "What")["Path"].value)

    def test_message(self) -> None:
        """Of a message of MQTT it names topic, acknowledgement, and what that means."""
        for by, (word, qos) in itertools.product(AckedBy, (("PUBACK", 1), ("PUBREC", 2))):
            publish = FIXTURE.publish(message=message_of(qos=qos), acknowledgement=RecordedAcknowledgement(0x10, by))
            evidence = EvidenceFile(
                FIXTURE.credentials.statement.envelope, FIXTURE.receipt(publish), request_body=REQUEST_BODY
            )
            account = account_of(evidence)
            self.assertEqual(ASSERTED_MESSAGE, account.summary[1])
            self.assertIn(f"published to meters/1/power with QoS {qos} through spiffe://", account.summary[2])
            self.assertIn(f"acknowledged it with {word}, No matching subscribers.", account.summary[2])
            what, limits = lines_of(account, "What"), lines_of(account, "What this does not prove")
            self.assertEqual((by.value, "meters/1/power"), (what["Acknowledged By"].value, what["Topic"].value))
            self.assertEqual(hashlib.sha256(REQUEST_BODY).hexdigest(), what["Body SHA-256"].value)
            self.assertEqual(ACKNOWLEDGED[by.value], limits["Acknowledgement"].value)
            self.assertEqual("kW", lines_of(account, "Properties")["unit"].value)
            self.assertNotIn("HTTP", text_of(account))
        self.assertNotIn("Acknowledgement", lines_of(account_of(evidence_of()), "What this does not prove"))

    def test_message_without_acknowledgement(self) -> None:
        """A message with QoS 0 was forwarded, and nobody acknowledged it."""
        publish = FIXTURE.publish(message=message_of(qos=0, packet_id=0), acknowledgement=None)
        account = account_of(EvidenceFile(FIXTURE.credentials.statement.envelope, FIXTURE.receipt(publish)))
        self.assertEqual(ASSERTED_UNACKNOWLEDGED, account.summary[1])
        self.assertTrue(account.summary[2].endswith("and did not acknowledge it."), account.summary[2])
        self.assertEqual("none", lines_of(account, "What")["MQTT Acknowledgement"].value)

    def test_checks(self) -> None:
        """Each check is there with its result: what was not compared offline is not called passed."""
        account = account_of(evidence_of())
        receipt = checks_of(account, "the receipt")
        for name in ("Signature ES256", "Certificate chain ML-DSA-65", "Statement", "Request body", "Response body"):
            self.assertIs(CheckResult.PASSED, receipt[name][0], name)
        for name in ("Compared With Own Exchange", "Trusted time"):
            self.assertIs(CheckResult.NOT_DONE, receipt[name][0], name)
        self.assertIn("post-quantum bundle; bound to the key", receipt["Certificate chain ML-DSA-65"][1])
        statement = checks_of(account, "the workload statement")
        self.assertIs(CheckResult.NOT_DONE, statement["Bound To Connection"][0])
        self.assertIs(CheckResult.NOT_DONE, statement["Expected identity"][0])
        self.assertEqual(CheckResult.PASSED, statement["Issuer"][0])

    def test_signed_together(self) -> None:
        """The account of a receipt of a batch names its place and both times for which certificates were verified."""
        moment = int(NOW.timestamp()) + 31
        late = EvidenceFile(FIXTURE.credentials.statement.envelope, FIXTURE.batched(issued_at=moment))
        account = account_of(late)
        found, words = checks_of(account, "the receipt")["Batch"]
        self.assertEqual(CheckResult.PASSED, found)
        self.assertEqual(
            "receipt 2 of 3 in a batch issued at 2026-11-21T00:26:02Z: its path leads to the Merkle root that the "
            "signatures cover",
            words,
        )
        at = "2026-11-21T00:25:31Z and 2026-11-21T00:25:32Z and 2026-11-21T00:26:02Z"
        self.assertEqual(at, lines_of(account, "When")["Certificates verified for"].value)
        self.assertNotIn("Batch", checks_of(account_of(evidence_of()), "the receipt"))

    def test_profiles(self) -> None:
        """A signature that the profile does not demand is not called passed."""
        for profile, label in ((Profile.CLASSICAL, "Post-quantum signature"), (Profile.PQ, "Classical signature")):
            result = checks_of(account_of(evidence_of(), profile), "the receipt")
            self.assertIs(CheckResult.NOT_DONE, result[label][0])

    def test_ml_dsa_svid(self) -> None:
        """The chain of an ML-DSA SVID, which signs alone, leads to the SPIFFE bundle and is bound to no other key."""
        authority = TestAuthority("prod.example.org", now=NOW, algorithm="ML-DSA-65")
        svid = authority.svid("/ns/pay/sa/api", algorithm="ML-DSA-65")
        signer = Signer.from_chain(svid.private_key, svid.chain)
        statement = issue_statement(svid, WorkloadFacts.explicit(), [signer], NOW, bytes)
        evidence = FIXTURE.verified_statement(
            statement.envelope,
            profile=Profile.PQ,
            anchors=Anchors(authority.bundles(), BundleSet()),
            peer=None,
            unbound_ok=True,
        )
        found = checks_of(
            verification_account(VerificationResult(evidence, time_asserted=True), SOURCE), "the workload statement"
        )
        self.assertTrue(found["Certificate chain ML-DSA-65"][1].endswith("in the verifier's SPIFFE bundle"))
        self.assertIs(CheckResult.NOT_DONE, found["Classical signature"][0])

    def test_without_bodies(self) -> None:
        """Bodies that are not in the file were not compared."""
        evidence = evidence_of(request_body=BodySummary.of(b"a"), response_body=BodySummary.of(b"b"))
        found = checks_of(account_of(evidence), "the receipt")
        self.assertEqual([CheckResult.NOT_DONE] * 2, [found[name][0] for name in ("Request body", "Response body")])

    def test_without_client(self) -> None:
        """A client without a certificate is called so."""
        account = account_of(evidence_of(client=None))
        self.assertEqual(NO_CLIENT, lines_of(account, "Who")["Client"].value)
        self.assertIn("a client without certificate", account.summary[2])

    def test_outcomes(self) -> None:
        """An exchange that did not end as it should is reported at the top, in words that docs/receipts.md has too."""
        for outcome in ExchangeOutcome:
            account = account_of(evidence_of(outcome=outcome))
            told = f"The exchange {OUTCOMES[outcome]}." in account.summary
            self.assertEqual(outcome is not ExchangeOutcome.COMPLETE, told)
            self.assertIn(f"| `{outcome.value}` | {OUTCOMES[outcome]} |", RECEIPTS.read_text())

    def test_statement_alone(self) -> None:
        """Without a receipt it says that nothing is shown about a request."""
        account = account_of(EvidenceFile(FIXTURE.credentials.statement.envelope))
        self.assertIn("nothing about a request", account.summary[1])
        self.assertEqual("pay", lines_of(account, "Who")["Namespace"].value)
        self.assertNotIn("Delivery", lines_of(account, "What this does not prove"))

    def test_limits(self) -> None:
        """What is not proven stands in the words of docs/receipts.md, all of it on the page."""
        documented = re.sub(r"[\s>]+", " ", RECEIPTS.read_text().replace("`", "").replace("**", ""))
        shown = re.sub(r"\s+", " ", text_of(account_of(evidence_of())))
        for sentence in (ASSERTED, *NOT_PROVEN.values()):
            self.assertIn(sentence, documented)
            self.assertIn(sentence, shown)
        for sentence in (ASSERTED_MESSAGE, ASSERTED_UNACKNOWLEDGED, *ACKNOWLEDGED.values()):
            self.assertIn(sentence, documented)


class OtherAccountTests(SynchronousTestCase):
    """Accounts of what was not verified."""

    def test_refused(self) -> None:
        """A failure is the first thing on the page, with reason and advice; claims are folded and called unverified."""
        evidence = evidence_of()
        error = EnvelopeError("signature_invalid", alg="ES256")
        account = verification_account(VerificationResult(error=error), SOURCE, evidence)
        self.assertIs(Verdict.REFUSED, account.verdict)
        self.assertEqual(("The verification failed: the ES256 signature does not verify.",), account.summary)
        failed = lines_of(account, "What was checked")["First failure"]
        self.assertEqual((CheckResult.FAILED, "signature_invalid{ES256}"), (failed.check, failed.mark))
        for section in account.sections[2:]:
            self.assertTrue(section.folded and "unverified" in section.title)
        self.assertLess(text_of(account).index("do not rely on this"), text_of(account).index("What was checked"))

    def test_refused_without_content(self) -> None:
        """What cannot be read as evidence, or has no JSON payload, has no claims to show."""
        error = NotaryRefused("no_anchor")
        self.assertEqual(2, len(verification_account(VerificationResult(error=error), SOURCE).sections))

    def test_stored(self) -> None:
        """A record that is only shown is not called verified, and one without signature is said to prove nothing."""
        for signed, count in ((True, 1), (False, 2)):
            account = stored_account(CLAIMS, "a" * 43, signed=signed)
            self.assertIs(Verdict.UNCHECKED, account.verdict)
            self.assertEqual(count, len(account.summary))
            self.assertNotIn("passed", text_of(account))
