"""Tests of :mod:`svc.notary.receipt`."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import receipt_id
from svc.notary.exchange import BodySummary, ExchangeOutcome, recorded_headers
from svc.notary.level import Level
from svc.notary.receipt import (
    REDACTED_ALWAYS,
    PayloadWriter,
    ReceiptDraft,
    Redaction,
    redacted_digest,
    sign_receipt,
    with_disclosures,
)
from svc.strictjson import b64u_decode, b64u_encode, dumps, loads_object
from tests.notary.artifacts import (
    COMPLETED,
    JTI,
    NONCE,
    RECEIVED,
    REQUEST_BODY,
    RESPONSE_BODY,
    Fixture,
    counting_random,
    peer_of,
)
from tests.notary.test_exchange import HEADERS

FIXTURE = Fixture()


def svc_of(draft: ReceiptDraft) -> dict[str, object]:
    """The member ``svc`` of a payload."""
    svc = loads_object(draft.payload)["svc"]
    assert isinstance(svc, dict)
    return svc


def body_claim(body: bytes) -> dict[str, object]:
    """A complete body as the payload names it."""
    return {"size": len(body), "sha-256": b64u_encode(hashlib.sha256(body).digest()), "complete": True}


class PayloadTests(SynchronousTestCase):
    """The payload of a receipt, member by member."""

    def test_payload(self) -> None:
        """The payload has exactly the members of the format, in its order."""
        draft = FIXTURE.draft()
        random = counting_random(b"salts")
        salts = {"authorization": random(16), "set-cookie": random(16)}
        redacted = {
            name: {"redacted": "sha-256", "digest": b64u_encode(hashlib.sha256(salts[name] + value).digest())}
            for name, value in (("authorization", b"Bearer secret"), ("set-cookie", b"a=b"))
        }
        client, server = peer_of(FIXTURE.client_svid), peer_of(FIXTURE.svid)
        claims = {
            "iss": "spiffe://prod.example.org/ns/pay/sa/api",
            "aud": ["https://svc.internal/receipt"],
            "iat": 1795220732,
            "jti": JTI,
            "svc": {
                "v": 1,
                "workloadStatementID": FIXTURE.credentials.statement.id,
                "level": "signRequest",
                "nonce": NONCE,
                "client": {"spiffeID": "spiffe://prod.example.org/ns/web/sa/fe", "x5t#S256": client.thumbprint},
                "server": {"spiffeID": "spiffe://prod.example.org/ns/pay/sa/api", "x5t#S256": server.thumbprint},
                "tls": {"version": "1.3", "group": "X25519MLKEM768", "cipher": "TLS_AES_256_GCM_SHA384", "pq": True},
                "request": {
                    "method": "POST",
                    "scheme": "https",
                    "authority": "api.pay:8443",
                    "path": "/v1/transfer",
                    "query": "?x=1",
                    "version": "1.1",
                    "headers": [
                        ["content-type", "application/json"],
                        ["authorization", redacted["authorization"]],
                        ["content-length", "13"],
                    ],
                    "body": body_claim(REQUEST_BODY),
                    "trailers": [],
                },
                "response": {
                    "status": 200,
                    "headers": [
                        ["content-type", "application/json"],
                        ["set-cookie", redacted["set-cookie"]],
                        ["content-length", "11"],
                    ],
                    "body": body_claim(RESPONSE_BODY),
                    "trailers": [],
                },
                "time": {"received": "2026-11-21T00:25:31.101223Z", "completed": "2026-11-21T00:25:32.999999Z"},
                "outcome": "complete",
            },
        }
        self.assertEqual(dumps(claims), draft.payload)
        self.assertEqual(receipt_id(draft.payload), draft.id)
        self.assertEqual((JTI, 1795220732), (draft.jti, draft.issued_at))
        disclosed = {name: b64u_encode(salt) for name, salt in salts.items()}
        expected = {"request": {"1": disclosed["authorization"]}, "response": {"1": disclosed["set-cookie"]}}
        self.assertEqual(expected, draft.disclosures)

    def test_log_request(self) -> None:
        """A record at logRequest has the same payload with its own level; a weaker level leaves none."""
        logged = svc_of(FIXTURE.draft(FIXTURE.exchange(level=Level.LOG_REQUEST)))
        signed = svc_of(FIXTURE.draft())
        self.assertEqual("logRequest", logged["level"])
        self.assertEqual({**signed, "level": "logRequest"}, logged)
        self.assertRaises(ValueError, FIXTURE.draft, FIXTURE.exchange(level=Level.WORKLOAD))

    def test_absent(self) -> None:
        """An absent nonce, TLS or response is null."""
        nothing = FIXTURE.exchange(
            nonce=None, client=None, tls=None, status=None, outcome=ExchangeOutcome.CLIENT_ABORTED
        )
        svc = svc_of(FIXTURE.draft(nothing))
        self.assertEqual([None] * 4, [svc[name] for name in ("nonce", "client", "tls", "response")])
        self.assertEqual("client_aborted", svc["outcome"])

    def test_responses_without_body(self) -> None:
        """HEAD, 101, 204 and 304 have size 0 and the digest of no octets, whatever was counted or announced."""
        for method, status in (("HEAD", 200), ("GET", 101), ("GET", 204), ("GET", 304)):
            exchange = FIXTURE.exchange(method=method, status=status, response_body=BodySummary(9, b"\0" * 32, False))
            response = svc_of(FIXTURE.draft(exchange))["response"]
            assert isinstance(response, dict)
            self.assertEqual(body_claim(b""), response["body"])
            self.assertIn(["content-length", "11"], response["headers"])

    def test_times_are_cut(self) -> None:
        """Times have six digits and a Z in UTC; iat is the floor of the end."""
        exchange = FIXTURE.exchange(received=RECEIVED.replace(microsecond=0), completed=COMPLETED + timedelta(0))
        times = svc_of(FIXTURE.draft(exchange))["time"]
        expected = {"received": "2026-11-21T00:25:31.000000Z", "completed": "2026-11-21T00:25:32.999999Z"}
        self.assertEqual(expected, times)

    def test_octets(self) -> None:
        """Octets beyond ASCII are characters U+0080-00FF, written as UTF-8 in the JSON."""
        draft = FIXTURE.draft(FIXTURE.exchange(path="/caf\xe9", request_headers=((b"X", b"\xff\x80"),)))
        self.assertIn("/café".encode(), draft.payload)
        request = svc_of(draft)["request"]
        assert isinstance(request, dict)
        self.assertEqual([["x", "\xff\x80"]], request["headers"])


class RedactionTests(SynchronousTestCase):
    """Secrets are replaced by salted digests."""

    def test_always(self) -> None:
        """The five headers are redacted in any case of their names; a configured one too; the query by choice."""
        redaction = Redaction.of(["X-Token"], query=True)
        secret = tuple((name.title().encode(), b"geheim") for name in [*sorted(REDACTED_ALWAYS), "x-token"])
        exchange = FIXTURE.exchange(
            request_headers=secret, response_headers=secret, request_trailers=secret, query="?geheim"
        )
        draft = FIXTURE.draft(exchange, redaction=redaction)
        self.assertNotIn(b"geheim", draft.payload)
        disclosures = draft.disclosures or {}
        headers, trailers = [str(n) for n in range(6)], [f"trailer:{n}" for n in range(6)]
        self.assertEqual({*headers, *trailers, "query"}, set(disclosures["request"]))
        self.assertEqual(set(headers), set(disclosures["response"]))

    def test_nothing_to_disclose(self) -> None:
        """Without anything redacted there are no disclosures; an empty query is never redacted."""
        plain = ((b"X", b"1"),)
        exchange = FIXTURE.exchange(request_headers=plain, response_headers=plain, query="")
        self.assertIsNone(FIXTURE.draft(exchange, redaction=Redaction.of(query=True)).disclosures)

    def test_salts_differ(self) -> None:
        """Equal values have different digests."""
        same = ((b"Cookie", b"a"), (b"Cookie", b"a"))
        request = svc_of(FIXTURE.draft(FIXTURE.exchange(request_headers=same)))["request"]
        assert isinstance(request, dict)
        first, second = request["headers"]
        self.assertNotEqual(first, second)

    @given(HEADERS, st.sets(st.sampled_from(["x-a", "content-length"])))
    def test_round_trip(self, raw: list[tuple[bytes, bytes]], names: set[str]) -> None:
        """With its salt each redacted value can be proved; every other value is in clear."""
        draft = FIXTURE.draft(FIXTURE.exchange(request_headers=raw), redaction=Redaction.of(names))
        request = svc_of(draft)["request"]
        assert isinstance(request, dict)
        salts = (draft.disclosures or {}).get("request", {})
        for number, ((name, value), (claimed_name, claimed)) in enumerate(
            zip(recorded_headers(raw), request["headers"], strict=True)
        ):
            self.assertEqual(name, claimed_name)
            if name in names | REDACTED_ALWAYS:
                digest = redacted_digest(b64u_decode(salts[str(number)]), value)
                self.assertEqual({"redacted": "sha-256", "digest": digest}, claimed)
            else:
                self.assertEqual(value, claimed)


class PayloadWriterTests(SynchronousTestCase):
    """Texts that were written before do not change what is written."""

    @given(st.lists(HEADERS, max_size=4), st.booleans())
    def test_same_as_alone(self, messages: list[list[tuple[bytes, bytes]]], query: bool) -> None:
        """Each payload is compact JSON, and the one that a new writer writes, whatever was written before."""
        redaction = Redaction.of(["x-a"], query=query)
        writer = PayloadWriter(redaction, bytes)
        name, issuer = FIXTURE.credentials.statement.id, FIXTURE.svid.spiffe_id
        for raw in messages:
            exchange = FIXTURE.exchange(request_headers=raw, response_headers=raw, request_trailers=raw)
            made = writer.write(exchange, name, issuer)
            self.assertEqual(PayloadWriter(redaction, bytes).write(exchange, name, issuer), made)
            self.assertEqual(dumps(loads_object(made.payload)), made.payload)

    def test_many_fields(self) -> None:
        """Fields beyond what is kept are written all the same."""
        writer = PayloadWriter(Redaction(), bytes)
        raw = [(b"X", str(number).encode()) for number in range(3000)]
        made = writer.write(FIXTURE.exchange(request_headers=raw), "s", FIXTURE.svid.spiffe_id)
        headers = svc_of(made)["request"]["headers"]  # type: ignore[index]
        self.assertEqual([["x", str(number)] for number in range(3000)], headers)

    def test_large_fields(self) -> None:
        """Large fields are not kept, nor are those that are left out."""
        writer = PayloadWriter(Redaction(), bytes)
        for name in (b"X", b"TE", b"Svc-Other"):
            raw = [(name, b"x" * 600)]
            writer.write(FIXTURE.exchange(request_headers=raw), "s", FIXTURE.svid.spiffe_id)
            self.assertNotIn(raw[0], writer._known)


class EnvelopeTests(SynchronousTestCase):
    """The signed receipt as it is stored and served."""

    def test_disclosures_ride_outside(self) -> None:
        """The salts are an unsigned member of what is served to a party, and of nothing else."""
        draft = FIXTURE.draft()
        stored = sign_receipt(draft, FIXTURE.credentials.signers)
        self.assertNotIn("disclosures", loads_object(stored.serialize()))
        served = with_disclosures(stored, draft.disclosures)
        self.assertEqual(draft.disclosures, loads_object(served.serialize())["disclosures"])
        self.assertEqual((stored.payload, stored.signatures), (served.payload, served.signatures))
        self.assertIs(stored, with_disclosures(stored, None))
