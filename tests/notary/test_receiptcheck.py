"""Tests of :mod:`svc.notary.receiptcheck`."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import Envelope
from svc.envelope.errors import EnvelopeError
from svc.envelope.profile import Profile
from svc.notary.exchange import EMPTY_BODY, BodySummary, ExchangeOutcome, ObservedExchange, RecordedExchange, TlsFacts
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.receipt import Redaction
from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
from svc.strictjson import loads_object
from tests.notary.artifacts import NONCE, NOW, REQUEST_BODY, Fixture, peer_of, resigned, seen_of

FIXTURE = Fixture()
#: The same SPIFFE ID with another key: another replica.
LAST_SECOND = 253_402_300_799
TIMES = st.integers(0, 2**53 - 1) | st.integers(LAST_SECOND - 120, LAST_SECOND + 1) | st.integers(0, 120)
REPLICA = FIXTURE.authority.svid(FIXTURE.svid.spiffe_id.path)


def verified(envelope: Envelope | bytes, seen: ObservedExchange | None, **changes: object) -> ReceiptEvidence:
    """Verify a receipt as the client of the exchange does."""
    arguments: dict[str, object] = {
        "statement": FIXTURE.evidence,
        "profile": Profile.HYBRID,
        "anchors": FIXTURE.anchors,
        "now": NOW + timedelta(seconds=2),
        "seen": seen,
    }
    return verify_receipt(envelope, **{**arguments, **changes})  # type: ignore[arg-type]


def refusal(envelope: Envelope | bytes, seen: ObservedExchange | None = None, **changes: object) -> str:
    """The precise reason for which a receipt is refused."""
    try:
        verified(envelope, seen or seen_of(FIXTURE.exchange()), **changes)
    except EnvelopeError as error:
        return error.detail_reason
    return "ok"


def result_of(exchange: RecordedExchange, seen: ObservedExchange, *, redaction: Redaction | None = None) -> str:
    """Sign what the proxy recorded and verify it against what the client observed."""
    return refusal(FIXTURE.receipt(exchange, redaction=redaction), seen)


def changed(**claims: object) -> Envelope:
    """The valid receipt with other claims, signed by the server itself."""
    return resigned(FIXTURE.receipt(), naming.TYPE_RECEIPT, FIXTURE.credentials.signers, **claims)


class SignerTests(SynchronousTestCase):
    """Who may sign a receipt."""

    def test_good(self) -> None:
        """A valid receipt gives the evidence."""
        envelope = FIXTURE.receipt()
        evidence = verified(envelope.serialize(), seen_of(FIXTURE.exchange()), expected_id=FIXTURE.draft().id)
        self.assertEqual((FIXTURE.draft().id, Level.SIGN_REQUEST), (evidence.id, evidence.level))
        self.assertTrue(evidence.compared and evidence.post_quantum)
        self.assertIs(ExchangeOutcome.COMPLETE, evidence.outcome)

    def test_other_id(self) -> None:
        """What is fetched by an identifier must hash to it."""
        self.assertEqual("id_mismatch", refusal(FIXTURE.receipt(), expected_id=FIXTURE.credentials.statement.id))

    def test_statement_type(self) -> None:
        """A statement is no receipt."""
        wrong = resigned(FIXTURE.receipt(), naming.TYPE_STATEMENT, FIXTURE.credentials.signers)
        self.assertEqual("wrong_type", refusal(wrong))

    def test_audience(self) -> None:
        """The audience contains the receipt's."""
        self.assertEqual("audience_mismatch", refusal(changed(aud=["https://svc.internal/workload-statement"])))
        self.assertEqual("ok", refusal(changed(aud=["https://else.example", naming.AUDIENCE_RECEIPT])))

    def test_another_workload(self) -> None:
        """Another valid workload cannot issue it, neither in its own name nor in the server's."""
        signers = FIXTURE.credentials_of(FIXTURE.client_svid).signers
        other_workload = str(FIXTURE.client_svid.spiffe_id)
        own = resigned(FIXTURE.receipt(), naming.TYPE_RECEIPT, signers, iss=other_workload)
        self.assertEqual("issuer_mismatch", refusal(own))
        self.assertEqual("issuer_mismatch", refusal(resigned(FIXTURE.receipt(), naming.TYPE_RECEIPT, signers)))

    def test_other_server(self) -> None:
        """The server that the receipt names is its signer."""
        other_workload = {
            "spiffeID": str(FIXTURE.client_svid.spiffe_id),
            "x5t#S256": FIXTURE.credentials.server.thumbprint,
        }
        self.assertEqual("issuer_mismatch", refusal(changed(svc__server=other_workload)))
        other = {"spiffeID": str(FIXTURE.svid.spiffe_id), "x5t#S256": peer_of(REPLICA).thumbprint}
        self.assertEqual("key_mismatch", refusal(changed(svc__server=other)))

    def test_replica(self) -> None:
        """Another replica of the same workload is another key."""
        signers = FIXTURE.credentials_of(REPLICA).signers
        self.assertEqual("key_mismatch", refusal(resigned(FIXTURE.receipt(), naming.TYPE_RECEIPT, signers)))

    def test_other_statement(self) -> None:
        """The receipt refers to the statement that was verified."""
        later = FIXTURE.credentials_of(FIXTURE.svid, facts=WorkloadFacts())
        evidence = FIXTURE.verified_statement(later.statement.envelope)
        self.assertEqual("statement_mismatch", refusal(FIXTURE.receipt(), statement=evidence))

    def test_unsigned_record(self) -> None:
        """A record of level logRequest is no receipt, even when it is signed."""
        self.assertEqual("level_mismatch", refusal(changed(svc__level="logRequest")))


class TimeTests(SynchronousTestCase):
    """When the receipt was issued."""

    def test_skew(self) -> None:
        """Sixty seconds before the exchange and after now are accepted, one more is not."""
        now = int(NOW.timestamp())
        for issued, reason in ((-60, "ok"), (-61, "time_skew"), (62, "ok"), (63, "time_skew")):
            self.assertEqual(reason, refusal(changed(iat=now + issued)), issued)

    def test_stale_statement(self) -> None:
        """A receipt from after the end of its statement, or before its start, is time_skew."""
        receipt = changed()
        for field, delta in (("expires", -60), ("not_before", 62)):
            moved = NOW + timedelta(seconds=delta)
            change: dict[str, Any] = {field: moved}
            statement = dataclasses.replace(FIXTURE.evidence, **change)
            self.assertEqual("time_skew", refusal(receipt, statement=statement), field)

    def test_last_second(self) -> None:
        """A statement that ends with the calendar has no leeway to be added to its end."""
        endless = dataclasses.replace(FIXTURE.evidence, expires=datetime.fromtimestamp(LAST_SECOND, UTC))
        self.assertEqual("ok", refusal(FIXTURE.receipt(), statement=endless))
        self.assertEqual("time_skew", refusal(changed(iat=LAST_SECOND), statement=endless))
        self.assertEqual("malformed", refusal(changed(iat=LAST_SECOND + 1), statement=endless))

    @given(TIMES, TIMES, TIMES)
    @settings(deadline=None)
    def test_any_times(self, issued: int, not_before: int, expires: int) -> None:
        """Any time of a receipt and of its statement gives evidence or a typed error."""
        window: dict[str, Any] = {
            name: datetime.fromtimestamp(min(value, LAST_SECOND), UTC)
            for name, value in (("not_before", not_before), ("expires", expires))
        }
        statement = dataclasses.replace(FIXTURE.evidence, **window)
        receipt = changed(iat=issued)
        self.assertIn(refusal(receipt, statement=statement), ("ok", "time_skew", "malformed"))

    def test_at_iat(self) -> None:
        """Evidence is verified at its own time, which must not be in the future."""
        later = NOW + timedelta(days=300)
        self.assertEqual("ok", refusal(FIXTURE.receipt(), at_iat=True, now=later))
        self.assertEqual("certificate_not_valid_at_time", refusal(FIXTURE.receipt(), now=later))
        ahead = changed(iat=int(NOW.timestamp()) + 900)
        evidence_of_nothing = {"seen": None, "at_iat": True, "now": NOW}
        self.assertRaises(EnvelopeError, verified, ahead, **evidence_of_nothing)


class ConnectionTests(SynchronousTestCase):
    """The claims about the connection."""

    def test_nonce(self) -> None:
        """The nonce is that of this request."""
        seen = seen_of(FIXTURE.exchange(), nonce="Dw4NDAsKCQgHBgUEAwIBAA")
        self.assertEqual("nonce_mismatch", refusal(FIXTURE.receipt(), seen))
        self.assertEqual("nonce_mismatch", refusal(changed(svc__nonce=None)))
        self.assertEqual("malformed", refusal(changed(svc__nonce="x")))
        self.assertEqual("ok", result_of(FIXTURE.exchange(nonce=None), seen_of(FIXTURE.exchange(), nonce=None)))

    def test_client(self) -> None:
        """The client is the verifier's own identity and certificate."""
        for client in (
            peer_of(FIXTURE.svid),
            peer_of(FIXTURE.authority.svid(FIXTURE.client_svid.spiffe_id.path)),
            None,
        ):
            self.assertEqual(
                "request_mismatch{client}", result_of(FIXTURE.exchange(client=client), seen_of(FIXTURE.exchange()))
            )

    def test_tls(self) -> None:
        """The TLS facts are those of the verifier's own view."""
        downgraded = TlsFacts("1.3", "X25519", "TLS_AES_256_GCM_SHA384", pq=False)
        for tls in (downgraded, None):
            self.assertEqual("request_mismatch{tls}", result_of(FIXTURE.exchange(tls=tls), seen_of(FIXTURE.exchange())))


class RequestTests(SynchronousTestCase):
    """The claims about the request."""

    def test_parts(self) -> None:
        """Each part that differs is named."""
        right = FIXTURE.exchange()
        for part, value in (
            ("method", "PUT"),
            ("authority", "API.pay:8443"),
            ("path", "/v1/transfer/"),
            ("query", "?x=2"),
            ("query", ""),
        ):
            found = result_of(FIXTURE.exchange(**{part: value}), seen_of(right))
            self.assertEqual(f"request_mismatch{{{part}}}", found)

    def test_headers(self) -> None:
        """The first header that differs is named by its index in the receipt's list."""
        right = FIXTURE.exchange()
        headers = list(right.request_headers)
        for altered, header_name in (
            ([*headers, (b"X-More", b"1")], 3),
            (headers[:-1], 2),
            ([headers[0], (b"Content-Type", b"text/plain"), *headers[2:]], 0),
            ([headers[0], headers[2], headers[1], *headers[3:]], 0),
            ([*headers[:2], (b"Authorization", b"Bearer other"), *headers[3:]], 1),
        ):
            found = result_of(FIXTURE.exchange(request_headers=altered), seen_of(right))
            self.assertEqual(f"request_mismatch{{header:{header_name}}}", found)

    def test_hop_by_hop_headers_are_not_compared(self) -> None:
        """Host, reserved headers and hop-by-hop headers are not compared."""
        right = FIXTURE.exchange()
        more = (*right.request_headers, (b"Connection", b"X-Hop"), (b"X-Hop", b"1"), (b"Svc-Anything", b"2"))
        self.assertEqual("ok", result_of(FIXTURE.exchange(request_headers=more), seen_of(right)))

    def test_missing_salt(self) -> None:
        """Without its salt, or with that of another value, a redacted header does not match."""
        receipt = FIXTURE.receipt()
        bare = Envelope(receipt.payload, receipt.signatures)
        self.assertEqual("request_mismatch{header:1}", refusal(bare))
        wrong = bare.with_extra(disclosures={"request": {"1": NONCE}})
        self.assertEqual("request_mismatch{header:1}", refusal(wrong))

    def test_disclosures_without_exchange(self) -> None:
        """Disclosures are read as strictly where there is no exchange to compare with."""
        receipt = FIXTURE.receipt()
        right = receipt.extra["disclosures"]
        self.assertEqual({"request": {"1"}, "response": {"1"}}, {side: set(each) for side, each in right.items()})  # type: ignore[attr-defined]
        for disclosures, reason in (
            (right, "ok"),
            ({}, "ok"),
            ({"request": {}}, "ok"),
            ({"request": {"1": NONCE, "0": NONCE}}, "malformed"),
            ({"request": {"01": NONCE}}, "malformed"),
            ({"request": {"trailer:1": NONCE}}, "malformed"),
            ({"request": {"query": NONCE}}, "malformed"),
            ({"response": {"query": NONCE}}, "malformed"),
            ({"proxy": {}}, "malformed"),
        ):
            given_ = Envelope(receipt.payload, receipt.signatures, {"disclosures": disclosures})
            found = "ok"
            try:
                verified(given_, None)
            except EnvelopeError as error:
                found = error.detail_reason
            self.assertEqual(reason, found, disclosures)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["", NONCE, NONCE[:-1]]),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.sampled_from(["request", "response", "1", "2", "query", "trailer:0"]), inner)
            ),
            max_leaves=6,
        )
    )
    @settings(deadline=None)
    def test_any_disclosures(self, disclosures: object) -> None:
        """Any disclosures are salts of redacted values or malformed."""
        receipt = FIXTURE.receipt()
        given_ = Envelope(receipt.payload, receipt.signatures, {"disclosures": disclosures})
        found = refusal(given_)
        self.assertIn(found, ("malformed", "request_mismatch{header:1}", "response_mismatch{header:1}"))

    def test_odd_disclosures(self) -> None:
        """Disclosures of another shape are malformed."""
        receipt = FIXTURE.receipt()
        for odd in ([], {"request": []}, {"request": {"1": "x"}}, {"request": {"1": 7}}):
            broken = Envelope(receipt.payload, receipt.signatures, {"disclosures": odd})
            self.assertEqual("malformed", refusal(broken), odd)

    def test_redacted_query(self) -> None:
        """A redacted query is compared through its salt."""
        redaction = Redaction.of(query=True)
        right = FIXTURE.exchange()
        self.assertEqual("ok", result_of(right, seen_of(right), redaction=redaction))
        other = seen_of(right, query="?x=2")
        self.assertEqual("request_mismatch{query}", result_of(right, other, redaction=redaction))

    def test_body(self) -> None:
        """The digest is that of the octets sent."""
        for body in (b"other", REQUEST_BODY + b"x", REQUEST_BODY[:-1], b""):
            found = result_of(FIXTURE.exchange(request_body=BodySummary.of(body)), seen_of(FIXTURE.exchange()))
            self.assertEqual("request_mismatch{body}", found)

    def test_early_response(self) -> None:
        """Of a body that the server did not read to its end, its first octets are compared."""
        for size in (0, 5, len(REQUEST_BODY)):
            partial = FIXTURE.exchange(request_body=BodySummary.of(REQUEST_BODY[:size], complete=False))
            self.assertEqual("ok", result_of(partial, seen_of(FIXTURE.exchange())))
        for claimed in (BodySummary.of(b"other", complete=False), BodySummary(99, EMPTY_BODY.sha256, complete=False)):
            found = result_of(FIXTURE.exchange(request_body=claimed), seen_of(FIXTURE.exchange()))
            self.assertEqual("request_mismatch{body}", found)

    def test_trailers(self) -> None:
        """Trailers of the request are compared like headers, redacted ones too."""
        exchange = FIXTURE.exchange(request_trailers=((b"X-Sum", b"1"), (b"Cookie", b"a")))
        self.assertEqual("ok", result_of(exchange, seen_of(exchange)))
        other = seen_of(exchange, request_trailers=((b"X-Sum", b"1"), (b"Cookie", b"b")))
        self.assertEqual("request_mismatch{trailer:1}", result_of(exchange, other))


class ResponseTests(SynchronousTestCase):
    """The claims about the response."""

    def test_status(self) -> None:
        """The status is the one that arrived."""
        self.assertEqual(
            "response_mismatch{status}", result_of(FIXTURE.exchange(status=201), seen_of(FIXTURE.exchange()))
        )
        aborted = FIXTURE.exchange(status=None, outcome=ExchangeOutcome.CLIENT_ABORTED)
        self.assertEqual("response_mismatch{status}", result_of(aborted, seen_of(FIXTURE.exchange())))

    def test_headers(self) -> None:
        """The first header that differs is named."""
        right = FIXTURE.exchange()
        other = (*right.response_headers[:-1], (b"Content-Length", b"12"))
        found = result_of(FIXTURE.exchange(response_headers=other), seen_of(right))
        self.assertEqual("response_mismatch{header:2}", found)

    def test_trailers(self) -> None:
        """Trailers are compared like headers; a missing one is named by its index."""
        exchange = FIXTURE.exchange(response_trailers=((b"X-Sum", b"1"), (b"X-Two", b"2")))
        self.assertEqual("ok", result_of(exchange, seen_of(exchange)))
        cut = seen_of(exchange, response_trailers=((b"X-Sum", b"1"),))
        self.assertEqual("response_mismatch{trailer:1}", result_of(exchange, cut))

    def test_body(self) -> None:
        """The body is the one that arrived, whole on both sides."""
        right = FIXTURE.exchange()
        for ours, theirs in (
            (BodySummary.of(b"a"), BodySummary.of(b"b")),
            (BodySummary.of(b"a", complete=False), BodySummary.of(b"a")),
            (BodySummary.of(b"a", complete=False), BodySummary.of(b"a", complete=False)),
            (BodySummary.of(b"a"), BodySummary.of(b"a", complete=False)),
        ):
            seen = seen_of(right, response_body=theirs)
            self.assertEqual("response_mismatch{body}", result_of(FIXTURE.exchange(response_body=ours), seen))

    def test_head(self) -> None:
        """A response to HEAD announces a length and has no body."""
        head = FIXTURE.exchange(method="HEAD")
        self.assertEqual("ok", result_of(head, seen_of(head, response_body=EMPTY_BODY)))

    def test_octets_behind_no_body(self) -> None:
        """Octets after a response that has no body are not attested, whatever the receipt counts."""
        for changes in ({"method": "HEAD"}, {"status": 204}, {"status": 304}, {"status": 101}):
            bare = FIXTURE.exchange(**changes)
            self.assertEqual("response_mismatch{body}", result_of(bare, seen_of(bare)), changes)
            counted = resigned(
                FIXTURE.receipt(bare),
                naming.TYPE_RECEIPT,
                FIXTURE.credentials.signers,
                svc__response__body=loads_object(FIXTURE.receipt().payload)["svc"]["response"]["body"],  # type: ignore[index]
            )
            self.assertEqual("response_mismatch{body}", refusal(counted, seen_of(bare)), changes)


class ShapeTests(SynchronousTestCase):
    """A receipt is read strictly before it is compared."""

    def test_malformed(self) -> None:
        """Every claim of another type is malformed, and so is one that is absent."""
        for claims in (
            {"aud": naming.AUDIENCE_RECEIPT}, {"aud": [1]}, {"iat": "x"}, {"jti": ...}, {"svc__level": "x"},
            {"svc__outcome": "done"}, {"svc__server": None}, {"svc__client": []}, {"svc__client": ...},
            {"svc__tls": {"version": "1.3"}}, {"svc__request": None}, {"svc__response__status": "200"},
            {"svc__request__headers": [["a"]]}, {"svc__request__headers": [["a", 1]]},
            {"svc__request__headers": [["a", {"redacted": "md5", "digest": "x"}]]},
            {"svc__request__body__size": -1}, {"svc__request__body__complete": 1}, {"svc__time": {}},
            {"svc__workloadStatementID": "x"}, {"svc__request__query": None}, {"svc__response__trailers": ...},
        ):  # fmt: skip
            self.assertEqual("malformed", refusal(changed(**claims)), claims)

    @given(
        st.sampled_from(["request", "response", "client", "server", "tls", "time", "level", "nonce", "outcome"]),
        st.recursive(
            st.none() | st.booleans() | st.integers(0, 9) | st.text("ab", max_size=3),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.sampled_from(["headers", "body", "size", "spiffeID"]), inner, max_size=2)
            ),
            max_leaves=4,
        ),
    )
    def test_any_claim(self, name: str, value: object) -> None:
        """Any value of a claim gives evidence or a typed error."""
        self.assertRegex(refusal(changed(**{f"svc__{name}": value})), r"\A[a-z_]+(\{.*\})?\Z")

    @given(st.binary(max_size=60))
    def test_any_octets(self, octets: bytes) -> None:
        """Any octets instead of an envelope are a typed error."""
        self.assertNotEqual("ok", refusal(octets))
