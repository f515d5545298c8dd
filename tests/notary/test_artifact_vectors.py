"""The vectors of statements, receipts and evidence: each file gives the result of its ``expect`` line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.envelope.ids import parse_artifact_id
from svc.envelope.profile import Profile
from svc.identity import BundleArchive, SpiffeID, verify_svid
from svc.notary.batchcheck import VerifiedBatchCache
from svc.notary.evidence import EvidenceFile, verify_offline
from svc.notary.exchange import BodySummary, ObservedExchange, Peer, TlsFacts, prefix_digests, split_target
from svc.notary.receiptcheck import verify_receipt
from svc.notary.statement import SelfIssued, verify_statement
from svc.notary.verification import Anchors
from svc.strictjson import dumps, loads, loads_object
from svc.testing.vectors import Vector, load_vectors, vector_anchors

FOLDER: Final = Path(__file__).parent.parent / "vectors"
ANCHORS: Final = frozenset({"profile", "now", "spiffe", "pq"})
RULES: Final = frozenset({"issuers", "self-issued", "expect-id"})
#: The vectors that the formats themselves name.
NAMED: Final = {
    "statement": {"self-issued-central-domain", "replica-key", "neighbour-signed", "id-padded"},
    "receipt": {
        "stale-statement", "redacted-authorization", "latin1", "empty-query", "trailing-ows", "connection-named",
        "head", "206-gzip", "early-413", "trailers", "upgraded", "stream-cut",
    },
    "batch": {
        "size-2", "size-3", "size-7", "size-64", "size-256", "size-1", "size-257", "both-members", "path-short",
        "path-long", "path-of-neighbour", "left-right", "node-as-leaf", "size-other", "index-other", "blind-other",
        "receipt-of-neighbour", "receipt-of-other-statement", "receipt-of-replica", "level-log", "evidence-leaf-ended",
        "batch-as-receipt", "receipt-as-batch",
    },
    "publish": {
        "qos-0", "qos-1", "qos-2", "mixed-method", "packet-subscribe", "reason-name", "topic-wildcard", "level-log",
    },
    "evidence": {"root-retired-before-iat", "no-anchor", "asserted-time"},
}  # fmt: skip
#: The reasons that a vector can show; the others need a connection (``statement_missing``, ``receipt_pending``, ...).
REASONS: Final = {
    "statement": {
        "ok", "id_malformed", "id_mismatch", "issuer_not_authorised", "trust_domain_mismatch", "audience_mismatch",
        "not_yet_valid", "expired", "subject_mismatch", "key_mismatch", "bundle_stale", "transport_unbound",
        "identity_unexpected",
    },
    "receipt": {
        "ok", "statement_mismatch", "nonce_mismatch", "time_skew", "level_mismatch", "issuer_mismatch", "key_mismatch",
        "request_mismatch{method}", "request_mismatch{authority}", "request_mismatch{path}", "request_mismatch{query}",
        "request_mismatch{header:0}", "request_mismatch{body}", "response_mismatch{status}",
        "response_mismatch{header:0}", "response_mismatch{trailer:0}", "response_mismatch{body}",
    },
    "batch": {
        "ok", "malformed", "wrong_type", "unsupported_version", "signature_invalid{ES256}", "inclusion_invalid",
        "batch_mismatch{size}", "batch_mismatch{alg}", "batch_mismatch{iss}", "batch_mismatch{iat}",
        "batch_mismatch{aud}", "statement_mismatch", "key_mismatch", "level_mismatch", "time_skew",
        "certificate_not_valid_at_time", "issuer_mismatch", "request_mismatch{header:2}",
    },
    "publish": {"ok", "malformed", "level_mismatch", "key_mismatch"},
    "evidence": {"ok", "no_anchor", "time_unproven"},
}  # fmt: skip


def ids_of(vector: Vector, header: str) -> list[SpiffeID]:
    """The SPIFFE IDs of a header line."""
    return [SpiffeID.parse(text) for text in vector.headers.get(header, "").split()]


def rules_of(vector: Vector) -> dict[str, Any]:
    """The local rules that a vector sets."""
    choice = vector.headers.get("self-issued")
    return {
        "profile": Profile.parse(vector.headers["profile"]),
        "now": vector.moment(),
        "issuers": ids_of(vector, "issuers"),
        "self_issued": None if choice is None else SelfIssued(choice),
        "expectations": ids_of(vector, "expect-id"),
    }


def statement_outcome(vector: Vector) -> None:
    """Verify a statement with the settings of the vector."""
    anchors = vector_anchors(vector, FOLDER / "anchors")
    mode = vector.headers.get("mode", "live")
    peer = None
    if "peer" in vector.sections:
        peer = verify_svid(x509.load_pem_x509_certificates(vector.section("peer")), anchors.spiffe, vector.moment())
    verify_statement(
        vector.section("envelope"),
        expected_id=parse_artifact_id(vector.headers["id"]) if "id" in vector.headers else None,
        anchors=anchors,
        peer=peer,
        unbound_ok=mode != "live",
        at_iat=mode == "evidence",
        stale_since=vector.moment("stale-since") if "stale-since" in vector.headers else None,
        **rules_of(vector),
    )


def seen_of(vector: Vector) -> ObservedExchange:
    """The client's view of an exchange."""
    view: dict[str, Any] = loads_object(vector.section("seen"))
    path, query = split_target(view["target"].encode("latin-1"))
    request_body = vector.section("request-body")
    complete = vector.headers.get("response-complete", "true") == "true"

    def raw(name: str) -> tuple[tuple[bytes, bytes], ...]:
        return tuple((key.encode("latin-1"), value.encode("latin-1")) for key, value in view[name])

    return ObservedExchange(
        nonce=view["nonce"],
        started=datetime.fromisoformat(view["started"]),
        client=Peer(SpiffeID.parse(view["client"]["spiffeID"]), view["client"]["x5t#S256"]),
        tls=TlsFacts(**view["tls"]),
        method=view["method"],
        authority=view["authority"],
        path=path,
        query=query,
        request_headers=raw("requestHeaders"),
        request_body=BodySummary.of(request_body),
        request_prefix=prefix_digests(request_body),
        request_trailers=raw("requestTrailers"),
        status=view["status"],
        response_headers=raw("responseHeaders"),
        response_body=BodySummary.of(vector.section("response-body"), complete=complete),
        response_trailers=raw("responseTrailers"),
    )


def receipt_outcome(vector: Vector) -> None:
    """Verify a receipt against what the vector's client observed."""
    anchors = vector_anchors(vector, FOLDER / "anchors")
    profile = Profile.parse(vector.headers["profile"])
    evidence = vector.headers.get("mode", "live") == "evidence"
    statement = verify_statement(
        vector.section("statement"),
        expected_id=None,
        profile=profile,
        anchors=anchors,
        now=vector.moment(),
        peer=None,
        at_iat=evidence,
        unbound_ok=True,
    )
    document = loads_object(vector.section("receipt"))
    inclusions = loads(vector.sections["inclusions"]) if "inclusions" in vector.sections else []
    batches = VerifiedBatchCache()
    for receipt in (vector.section("receipt"), *(dumps({**document, "inclusion": each}) for each in inclusions)):  # type: ignore[attr-defined]
        verify_receipt(
            receipt,
            statement=statement,
            profile=profile,
            anchors=anchors,
            now=vector.moment(),
            seen=None if evidence or "seen" not in vector.sections else seen_of(vector),
            at_iat=evidence,
            batches=batches if inclusions else None,
        )


def evidence_outcome(vector: Vector) -> None:
    """Verify an evidence file offline."""
    anchors = vector_anchors(vector, FOLDER / "anchors")
    if "archive" in vector.sections:
        archive = BundleArchive.parse(vector.section("archive"))
        anchors = Anchors(spiffe=archive.spiffe, pq=archive.pq)
    result = verify_offline(
        EvidenceFile.parse(vector.section("evidence")),
        anchors=anchors,
        require_trusted_time="require-trusted-time" in vector.headers,
        **rules_of(vector),
    )
    if result.to_json()["time"] != vector.headers.get("time", "asserted"):
        raise AssertionError(f"{vector.name}: time")


class ArtifactVectorTests(SynchronousTestCase):
    """The files below ``tests/vectors``."""

    def check(self, group: str, verify: Callable[[Vector], None], headers: frozenset[str], kinds: set[str]) -> None:
        """Compare every vector of a group with what it expects, and the group with what it must show."""
        vectors = load_vectors(FOLDER / group, headers=headers, kinds=kinds)
        wrong = []
        for vector in vectors:
            found = "ok"
            try:
                verify(vector)
            except EnvelopeError as error:
                found = error.detail_reason
            if found != vector.expect:
                wrong.append(f"{vector.name}: expected {vector.expect}, got {found}")
        self.assertEqual([], wrong)
        self.assertEqual(set(), {f"{group}/{name}" for name in NAMED[group]} - {vector.name for vector in vectors})
        self.assertEqual(set(), REASONS[group] - {vector.expect for vector in vectors})
        self.assertTrue(all(vector.comment for vector in vectors))

    def test_statement(self) -> None:
        """Each step of the verification of a statement."""
        headers = ANCHORS | RULES | {"id", "mode", "stale-since"}
        self.check("statement", statement_outcome, headers, {"envelope", "peer"})

    def test_receipt(self) -> None:
        """Signers, times, octets, redaction, bodies and trailers of a receipt."""
        kinds = {"statement", "receipt", "seen", "request-body", "response-body"}
        self.check("receipt", receipt_outcome, ANCHORS | {"response-complete"}, kinds)

    def test_publish(self) -> None:
        """Shapes, properties and acknowledgements of messages of MQTT."""
        self.check("publish", receipt_outcome, ANCHORS, {"statement", "receipt"})

    def test_batch(self) -> None:
        """Shapes, claims, paths, signers and times of receipts that were signed together."""
        kinds = {"statement", "receipt", "seen", "request-body", "response-body", "inclusions"}
        self.check("batch", receipt_outcome, ANCHORS | {"mode"}, kinds)

    def test_every_place(self) -> None:
        """The vectors of sizes have every place of their batch, each once."""
        for size in (2, 3, 7, 64, 256):
            data = (FOLDER / "batch" / f"size-{size}.txt").read_bytes()
            vector = Vector.parse(
                "size",
                data,
                headers=ANCHORS,
                kinds={"statement", "receipt", "seen", "inclusions", "request-body", "response-body"},
            )
            places = loads(vector.section("inclusions"))
            assert isinstance(places, list)
            self.assertEqual(
                [(number, size) for number in range(size)], [(each["index"], each["size"]) for each in places]
            )

    def test_evidence(self) -> None:
        """Evidence files with and without anchors, windows and bodies."""
        headers = ANCHORS | RULES | {"time", "require-trusted-time"}
        self.check("evidence", evidence_outcome, headers, {"evidence", "archive"})
