"""Tests of :mod:`svc.notary.receiptcheck`."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.notary.envelope import Envelope
from svc.notary.errors import NotaryError
from svc.notary.exchange import EMPTY_BODY, BodySeen, Exchange, Outcome, SeenExchange, TlsFacts
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.profile import Profile
from svc.notary.receipt import Redaction
from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
from tests.notary.artifacts import NONCE, NOW, REQUEST_BODY, World, peer_of, resigned, seen_of

WORLD = World()
#: The same SPIFFE ID with another key: another replica.
REPLICA = WORLD.authority.svid(WORLD.svid.spiffe_id.path)


def verified(envelope: Envelope | bytes, seen: SeenExchange | None, **changes: object) -> ReceiptEvidence:
    """Judge a receipt as the client does that saw the exchange."""
    arguments: dict[str, object] = {
        "statement": WORLD.evidence,
        "profile": Profile.HYBRID,
        "anchors": WORLD.anchors,
        "now": NOW + timedelta(seconds=2),
        "seen": seen,
    }
    return verify_receipt(envelope, **{**arguments, **changes})  # type: ignore[arg-type]


def refusal(envelope: Envelope | bytes, seen: SeenExchange | None = None, **changes: object) -> str:
    """The precise reason for which a receipt is refused."""
    try:
        verified(envelope, seen or seen_of(WORLD.exchange()), **changes)
    except NotaryError as error:
        return error.detail_reason
    return "ok"


def judged(exchange: Exchange, seen: SeenExchange, *, redaction: Redaction | None = None) -> str:
    """Sign what the proxy saw and judge it by what the client saw."""
    return refusal(WORLD.receipt(exchange, redaction=redaction), seen)


def changed(**claims: object) -> Envelope:
    """The right receipt with other claims, signed by the server itself."""
    return resigned(WORLD.receipt(), naming.TYPE_RECEIPT, WORLD.generation.signers, **claims)


class SignerTests(SynchronousTestCase):
    """Whose word counts."""

    def test_good(self) -> None:
        """A right receipt gives the evidence."""
        envelope = WORLD.receipt()
        evidence = verified(envelope.serialize(), seen_of(WORLD.exchange()), expected_id=WORLD.draft().id)
        self.assertEqual((WORLD.draft().id, Level.SIGN_REQUEST), (evidence.id, evidence.level))
        self.assertTrue(evidence.compared and evidence.post_quantum)
        self.assertIs(Outcome.COMPLETE, evidence.outcome)

    def test_other_id(self) -> None:
        """What is fetched by an identifier must hash to it."""
        self.assertEqual("id_mismatch", refusal(WORLD.receipt(), expected_id=WORLD.generation.statement.id))

    def test_statement_type(self) -> None:
        """A statement is no receipt."""
        wrong = resigned(WORLD.receipt(), naming.TYPE_STATEMENT, WORLD.generation.signers)
        self.assertEqual("wrong_type", refusal(wrong))

    def test_audience(self) -> None:
        """The audience contains the receipt's."""
        self.assertEqual("audience_mismatch", refusal(changed(aud=["https://svc.internal/workload-statement"])))
        self.assertEqual("ok", refusal(changed(aud=["https://else.example", naming.AUDIENCE_RECEIPT])))

    def test_neighbour(self) -> None:
        """A valid neighbour can vouch neither in its own name nor in the server's."""
        signers = WORLD.generation_of(WORLD.client_svid).signers
        neighbour = str(WORLD.client_svid.spiffe_id)
        own = resigned(WORLD.receipt(), naming.TYPE_RECEIPT, signers, iss=neighbour)
        self.assertEqual("issuer_mismatch", refusal(own))
        self.assertEqual("issuer_mismatch", refusal(resigned(WORLD.receipt(), naming.TYPE_RECEIPT, signers)))

    def test_other_server(self) -> None:
        """The server that the receipt names is its signer."""
        neighbour = {"spiffeID": str(WORLD.client_svid.spiffe_id), "x5t#S256": WORLD.generation.server.thumbprint}
        self.assertEqual("issuer_mismatch", refusal(changed(svc__server=neighbour)))
        other = {"spiffeID": str(WORLD.svid.spiffe_id), "x5t#S256": peer_of(REPLICA).thumbprint}
        self.assertEqual("key_mismatch", refusal(changed(svc__server=other)))

    def test_replica(self) -> None:
        """Another replica of the same workload is another key."""
        signers = WORLD.generation_of(REPLICA).signers
        self.assertEqual("key_mismatch", refusal(resigned(WORLD.receipt(), naming.TYPE_RECEIPT, signers)))

    def test_other_statement(self) -> None:
        """The receipt refers to the statement that was verified."""
        later = WORLD.generation_of(WORLD.svid, facts=WorkloadFacts())
        evidence = WORLD.verified_statement(later.statement.envelope)
        self.assertEqual("statement_mismatch", refusal(WORLD.receipt(), statement=evidence))

    def test_unsigned_record(self) -> None:
        """A record of level logRequest is no receipt, even when somebody signs it."""
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
            statement = dataclasses.replace(WORLD.evidence, **{field: moved})
            self.assertEqual("time_skew", refusal(receipt, statement=statement), field)

    def test_at_iat(self) -> None:
        """Evidence is judged at its own time, but never from the future."""
        later = NOW + timedelta(days=300)
        self.assertEqual("ok", refusal(WORLD.receipt(), at_iat=True, now=later))
        self.assertEqual("certificate_not_valid_at_time", refusal(WORLD.receipt(), now=later))
        ahead = changed(iat=int(NOW.timestamp()) + 900)
        evidence_of_nothing = {"seen": None, "at_iat": True, "now": NOW}
        self.assertRaises(NotaryError, verified, ahead, **evidence_of_nothing)


class ConnectionTests(SynchronousTestCase):
    """What the receipt says of the connection."""

    def test_nonce(self) -> None:
        """The nonce is that of this request."""
        seen = seen_of(WORLD.exchange(), nonce="Dw4NDAsKCQgHBgUEAwIBAA")
        self.assertEqual("nonce_mismatch", refusal(WORLD.receipt(), seen))
        self.assertEqual("nonce_mismatch", refusal(changed(svc__nonce=None)))
        self.assertEqual("malformed", refusal(changed(svc__nonce="x")))
        self.assertEqual("ok", judged(WORLD.exchange(nonce=None), seen_of(WORLD.exchange(), nonce=None)))

    def test_client(self) -> None:
        """The client is the verifier's own identity and certificate."""
        for client in (peer_of(WORLD.svid), peer_of(WORLD.authority.svid(WORLD.client_svid.spiffe_id.path)), None):
            self.assertEqual(
                "request_mismatch{client}", judged(WORLD.exchange(client=client), seen_of(WORLD.exchange()))
            )

    def test_tls(self) -> None:
        """The TLS facts are those of the verifier's own view."""
        downgraded = TlsFacts("1.3", "X25519", "TLS_AES_256_GCM_SHA384", pq=False)
        for tls in (downgraded, None):
            self.assertEqual("request_mismatch{tls}", judged(WORLD.exchange(tls=tls), seen_of(WORLD.exchange())))


class RequestTests(SynchronousTestCase):
    """What the receipt says of the request."""

    def test_parts(self) -> None:
        """Each part that differs is named."""
        right = WORLD.exchange()
        for part, value in (
            ("method", "PUT"),
            ("authority", "API.pay:8443"),
            ("path", "/v1/transfer/"),
            ("query", "?x=2"),
            ("query", ""),
        ):
            found = judged(WORLD.exchange(**{part: value}), seen_of(right))
            self.assertEqual(f"request_mismatch{{{part}}}", found)

    def test_headers(self) -> None:
        """The first header that differs is named by its index in the receipt's list."""
        right = WORLD.exchange()
        headers = list(right.request_headers)
        for altered, place in (
            ([*headers, (b"X-More", b"1")], 3),
            (headers[:-1], 2),
            ([headers[0], (b"Content-Type", b"text/plain"), *headers[2:]], 0),
            ([headers[0], headers[2], headers[1], *headers[3:]], 0),
            ([*headers[:2], (b"Authorization", b"Bearer other"), *headers[3:]], 1),
        ):
            found = judged(WORLD.exchange(request_headers=altered), seen_of(right))
            self.assertEqual(f"request_mismatch{{header:{place}}}", found)

    def test_neighbour_headers_do_not_count(self) -> None:
        """Host, reserved headers and those between neighbours are not compared."""
        right = WORLD.exchange()
        more = (*right.request_headers, (b"Connection", b"X-Hop"), (b"X-Hop", b"1"), (b"Svc-Anything", b"2"))
        self.assertEqual("ok", judged(WORLD.exchange(request_headers=more), seen_of(right)))

    def test_missing_salt(self) -> None:
        """Without its salt a redacted header cannot agree; with the salt of another value it does not."""
        receipt = WORLD.receipt()
        bare = Envelope(receipt.payload, receipt.signatures)
        self.assertEqual("request_mismatch{header:1}", refusal(bare))
        wrong = bare.with_extra(disclosures={"request": {"1": NONCE}})
        self.assertEqual("request_mismatch{header:1}", refusal(wrong))

    def test_odd_disclosures(self) -> None:
        """Disclosures of another shape are malformed."""
        receipt = WORLD.receipt()
        for odd in ([], {"request": []}, {"request": {"1": "x"}}, {"request": {"1": 7}}):
            broken = Envelope(receipt.payload, receipt.signatures, {"disclosures": odd})
            self.assertEqual("malformed", refusal(broken), odd)

    def test_redacted_query(self) -> None:
        """A redacted query is compared through its salt."""
        redaction = Redaction.of(query=True)
        right = WORLD.exchange()
        self.assertEqual("ok", judged(right, seen_of(right), redaction=redaction))
        other = seen_of(right, query="?x=2")
        self.assertEqual("request_mismatch{query}", judged(right, other, redaction=redaction))

    def test_body(self) -> None:
        """The digest is that of the octets sent."""
        for body in (b"other", REQUEST_BODY + b"x", REQUEST_BODY[:-1], b""):
            found = judged(WORLD.exchange(request_body=BodySeen.of(body)), seen_of(WORLD.exchange()))
            self.assertEqual("request_mismatch{body}", found)

    def test_early_answer(self) -> None:
        """Of a body that the server did not read to its end, its first octets are compared."""
        for size in (0, 5, len(REQUEST_BODY)):
            partial = WORLD.exchange(request_body=BodySeen.of(REQUEST_BODY[:size], complete=False))
            self.assertEqual("ok", judged(partial, seen_of(WORLD.exchange())))
        for claimed in (BodySeen.of(b"other", complete=False), BodySeen(99, EMPTY_BODY.sha256, complete=False)):
            found = judged(WORLD.exchange(request_body=claimed), seen_of(WORLD.exchange()))
            self.assertEqual("request_mismatch{body}", found)

    def test_trailers(self) -> None:
        """Trailers of the request are compared like headers, redacted ones too."""
        exchange = WORLD.exchange(request_trailers=((b"X-Sum", b"1"), (b"Cookie", b"a")))
        self.assertEqual("ok", judged(exchange, seen_of(exchange)))
        other = seen_of(exchange, request_trailers=((b"X-Sum", b"1"), (b"Cookie", b"b")))
        self.assertEqual("request_mismatch{trailer:1}", judged(exchange, other))


class ResponseTests(SynchronousTestCase):
    """What the receipt says of the response."""

    def test_status(self) -> None:
        """The status is the one that arrived."""
        self.assertEqual("response_mismatch{status}", judged(WORLD.exchange(status=201), seen_of(WORLD.exchange())))
        aborted = WORLD.exchange(status=None, outcome=Outcome.CLIENT_ABORTED)
        self.assertEqual("response_mismatch{status}", judged(aborted, seen_of(WORLD.exchange())))

    def test_headers(self) -> None:
        """The first header that differs is named."""
        right = WORLD.exchange()
        other = (*right.response_headers[:-1], (b"Content-Length", b"12"))
        found = judged(WORLD.exchange(response_headers=other), seen_of(right))
        self.assertEqual("response_mismatch{header:2}", found)

    def test_trailers(self) -> None:
        """Trailers are compared like headers; a missing one is named by its index."""
        exchange = WORLD.exchange(response_trailers=((b"X-Sum", b"1"), (b"X-Two", b"2")))
        self.assertEqual("ok", judged(exchange, seen_of(exchange)))
        cut = seen_of(exchange, response_trailers=((b"X-Sum", b"1"),))
        self.assertEqual("response_mismatch{trailer:1}", judged(exchange, cut))

    def test_body(self) -> None:
        """The body is the one that arrived, whole on both sides."""
        right = WORLD.exchange()
        for ours, theirs in (
            (BodySeen.of(b"a"), BodySeen.of(b"b")),
            (BodySeen.of(b"a", complete=False), BodySeen.of(b"a")),
            (BodySeen.of(b"a", complete=False), BodySeen.of(b"a", complete=False)),
            (BodySeen.of(b"a"), BodySeen.of(b"a", complete=False)),
        ):
            seen = seen_of(right, response_body=theirs)
            self.assertEqual("response_mismatch{body}", judged(WORLD.exchange(response_body=ours), seen))

    def test_head(self) -> None:
        """An answer to HEAD announces a length and has no body."""
        head = WORLD.exchange(method="HEAD")
        self.assertEqual("ok", judged(head, seen_of(head, response_body=EMPTY_BODY)))


class ShapeTests(SynchronousTestCase):
    """A receipt is read strictly before it is compared."""

    def test_malformed(self) -> None:
        """Every claim of a wrong type is malformed, and so is one that is absent."""
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
        """Any value in the place of a claim is judged or refused by a typed error."""
        self.assertRegex(refusal(changed(**{f"svc__{name}": value})), r"\A[a-z_]+(\{.*\})?\Z")

    @given(st.binary(max_size=60))
    def test_any_octets(self, octets: bytes) -> None:
        """Any octets in the place of an envelope are a typed error."""
        self.assertNotEqual("ok", refusal(octets))
