"""
Fixtures for the tests of statements, receipts and evidence: authorities, a server and a client, one exchange.

All values are valid; each test changes the one that it is about.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import cast

from svc import naming
from svc.envelope.envelope import Envelope, sign_envelope
from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.identity import BundleSet, SpiffeID, SvidEvidence, X509Svid, certificate_sha256, verify_svid
from svc.notary.artifact import BatchedReceipt, parse_receipt
from svc.notary.batch import batch_artifact, sign_batch
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import BodySummary, ObservedExchange, Peer, RecordedExchange, TlsFacts, prefix_digests
from svc.notary.facts import Container, WorkloadFacts
from svc.notary.level import Level
from svc.notary.pqleaf import PqLeaf
from svc.notary.publish import (
    AckedBy,
    PublishedMessage,
    RecordedAcknowledgement,
    RecordedPublish,
    publish_payload,
    recorded_properties,
)
from svc.notary.receipt import PayloadWriter, ReceiptDraft, Redaction, sign_receipt, with_disclosures
from svc.notary.statement import StatementEvidence, verify_statement
from svc.notary.verification import Anchors
from svc.strictjson import b64u_encode, dumps, loads_object
from svc.testing.ca import TestAuthority
from svc.wire.mqtt import Properties, Version

NOW = datetime(2026, 11, 21, 0, 25, 31, tzinfo=UTC)
RECEIVED = NOW + timedelta(microseconds=101223)
COMPLETED = NOW + timedelta(seconds=1, microseconds=999999)
NONCE = "AAECAwQFBgcICQoLDA0ODw"
JTI = "Dw4NDAsKCQgHBgUEAwIBAA"
DOMAIN = "prod.example.org"
SERVER_PATH = "/ns/pay/sa/api"
CLIENT_PATH = "/ns/web/sa/fe"
TLS = TlsFacts(version="1.3", group="X25519MLKEM768", cipher="TLS_AES_256_GCM_SHA384", pq=True)
REQUEST_BODY = b'{"amount":12}'
RESPONSE_BODY = b'{"ok":true}'
PROPERTIES = Properties(
    payload_format=1,
    message_expiry=3600,
    content_type="application/json",
    response_topic="meters/1/answers",
    correlation_data=b"\x00\xff",
    topic_alias=3,
    user=(("unit", "kW"), ("svc-nonce", NONCE), ("Authorization", "Bearer geheim"), ("unit", "kW")),
)
FACTS = WorkloadFacts.explicit(
    namespace="pay",
    service_account="api",
    pod_name="api-7c",
    pod_uid="0a1b",
    node="n1",
    containers=[Container("api", "reg/pay/api:1.4", "sha256:" + "ab" * 32)],
    labels={naming.LABEL_COMPARTMENT: "DE-S-ALPHA", "app": "api"},
    annotations={naming.ANNOTATION_LEVEL: "de:s", naming.ANNOTATION_COMPARTMENT: "de:alpha"},
)


def counting_random(seed: bytes = b"random") -> Callable[[int], bytes]:
    """A source of octets that differ from call to call and not from run to run; ``seed`` makes another sequence."""
    calls = itertools.count()

    def random(size: int) -> bytes:
        return hashlib.shake_256(seed + str(next(calls)).encode()).digest(size)

    return random


def peer_of(svid: X509Svid) -> Peer:
    """One end of a connection, identified by its SVID."""
    return Peer(svid.spiffe_id, b64u_encode(certificate_sha256(svid.leaf)))


class Fixture:
    """A trust domain with both authorities, a server and a client, at the time ``NOW``."""

    def __init__(self, domain: str = DOMAIN) -> None:
        self.authority = TestAuthority(domain, now=NOW)
        self.pq_authority = TestAuthority(domain, now=NOW, algorithm="ML-DSA-65")
        self.svid = self.authority.svid(SERVER_PATH)
        self.client_svid = self.authority.svid(CLIENT_PATH)

    @cached_property
    def anchors(self) -> Anchors:
        """The trust anchors of both sides."""
        return Anchors(spiffe=self.authority.bundles(), pq=self.pq_authority.bundles())

    @cached_property
    def credentials(self) -> CredentialSet:
        """The server's credential set."""
        return self.credentials_of(self.svid)

    @cached_property
    def evidence(self) -> StatementEvidence:
        """The evidence of the server's statement, bound to its connection."""
        return self.verified_statement(self.credentials.statement.envelope)

    def pq_leaf(self, svid: X509Svid) -> PqLeaf:
        """Issue a post-quantum leaf that is bound to an SVID."""
        return PqLeaf.accept(*self.pq_authority.pq_leaf(svid), svid)  # type: ignore[arg-type]

    def credentials_of(self, svid: X509Svid, *, facts: WorkloadFacts = FACTS) -> CredentialSet:
        """Make a hybrid credential set."""
        return CredentialSet.issue(svid, self.pq_leaf(svid), facts, Profile.HYBRID, NOW, counting_random())

    def peer(self, svid: X509Svid | None = None) -> SvidEvidence:
        """Verify the other end of a connection, by default the server."""
        return verify_svid((svid or self.svid).chain, self.anchors.spiffe, NOW)

    def verified_statement(self, envelope: Envelope, **changes: object) -> StatementEvidence:
        """Verify a statement as a client of the server does, with these arguments changed."""
        arguments: dict[str, object] = {
            "expected_id": None,
            "profile": Profile.HYBRID,
            "anchors": self.anchors,
            "now": NOW,
            "peer": self.peer(),
        }
        return verify_statement(envelope, **{**arguments, **changes})  # type: ignore[arg-type]

    def exchange(self, **changes: object) -> RecordedExchange:
        """The exchange as the proxy recorded it, with these fields changed."""
        found = RecordedExchange(
            level=Level.SIGN_REQUEST,
            nonce=NONCE,
            jti=JTI,
            client=peer_of(self.client_svid),
            server=peer_of(self.svid),
            tls=TLS,
            method="POST",
            scheme="https",
            authority="api.pay:8443",
            path="/v1/transfer",
            query="?x=1",
            version="1.1",
            request_headers=(
                (b"Host", b"api.pay:8443"),
                (b"Content-Type", b"application/json"),
                (b"Authorization", b"Bearer secret"),
                (b"Svc-Notary-Nonce", NONCE.encode()),
                (b"Content-Length", str(len(REQUEST_BODY)).encode()),
            ),
            request_body=BodySummary.of(REQUEST_BODY),
            request_trailers=(),
            status=200,
            response_headers=(
                (b"Content-Type", b"application/json"),
                (b"Set-Cookie", b"a=b"),
                (b"Svc-Workload-ID", b"x"),
                (b"Connection", b"keep-alive"),
                (b"Content-Length", str(len(RESPONSE_BODY)).encode()),
            ),
            response_body=BodySummary.of(RESPONSE_BODY),
            response_trailers=(),
            received=RECEIVED,
            completed=COMPLETED,
        )
        return dataclasses.replace(found, **changes)  # type: ignore[arg-type]

    def publish(self, *, message: PublishedMessage | None = None, **changes: object) -> RecordedPublish:
        """A message with QoS 1 as the proxy recorded it, with these fields changed."""
        found = RecordedPublish(
            level=Level.SIGN_REQUEST,
            jti=JTI,
            client=peer_of(self.client_svid),
            server=peer_of(self.svid),
            tls=TLS,
            message=message or message_of(),
            acknowledgement=RecordedAcknowledgement(0, AckedBy.UPSTREAM),
            received=RECEIVED,
            completed=COMPLETED,
        )
        return dataclasses.replace(found, **changes)  # type: ignore[arg-type]

    def draft(
        self, exchange: RecordedExchange | RecordedPublish | None = None, *, redaction: Redaction | None = None
    ) -> ReceiptDraft:
        """Build a payload."""
        about = self.credentials.statement.id, self.svid.spiffe_id
        redacted = redaction or Redaction(), counting_random(b"salts")
        if isinstance(exchange, RecordedPublish):
            return publish_payload(exchange, *about, *redacted)
        return PayloadWriter(*redacted).write(exchange or self.exchange(), *about)

    def receipt(
        self, exchange: RecordedExchange | RecordedPublish | None = None, *, redaction: Redaction | None = None
    ) -> Envelope:
        """Sign a receipt and add its disclosures, as it is served to the client."""
        draft = self.draft(exchange, redaction=redaction)
        return with_disclosures(sign_receipt(draft, self.credentials.signers), draft.disclosures)

    def batched(
        self,
        *,
        size: int = 3,
        index: int = 1,
        exchange: RecordedExchange | RecordedPublish | None = None,
        issued_at: int = 0,
    ) -> BatchedReceipt:
        """Sign the receipt of an exchange with others; it is as it is served to the client."""
        own = self.draft(exchange)
        drafts = [dataclasses.replace(own, payload=b"%d" % number) for number in range(size)]
        drafts[index] = own
        credentials = self.credentials
        batch = sign_batch(
            drafts, credentials.spiffe_id, credentials.signers, issued_at or own.issued_at, counting_random(b"batch")
        )
        data = batch_artifact(own.payload, batch.inclusions[index], batch.envelope, own.disclosures)
        return cast(BatchedReceipt, parse_receipt(data))


def message_of(**changes: object) -> PublishedMessage:
    """A message with every property that is recorded, with these fields changed."""
    found = PublishedMessage(
        version=Version.V5,
        client_id="meter-1",
        topic="meters/1/power",
        qos=1,
        retain=False,
        packet_id=7,
        properties=recorded_properties(PROPERTIES),
        body=BodySummary.of(REQUEST_BODY),
        nonce=NONCE,
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def seen_of(exchange: RecordedExchange, *, request: bytes = REQUEST_BODY, **changes: object) -> ObservedExchange:
    """The same exchange as the client observed it, with these fields changed; ``request`` is the request body."""
    found = ObservedExchange(
        nonce=exchange.nonce,
        started=NOW,
        client=exchange.client,
        tls=exchange.tls,
        method=exchange.method,
        authority=exchange.authority,
        path=exchange.path,
        query=exchange.query,
        request_headers=exchange.request_headers,
        request_body=BodySummary.of(request),
        request_prefix=prefix_digests(request),
        request_trailers=exchange.request_trailers,
        status=exchange.status or 0,
        response_headers=exchange.response_headers,
        response_body=exchange.response_body,
        response_trailers=exchange.response_trailers,
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def resigned(envelope: Envelope, typ: str, signers: tuple[Signer, ...], **claims: object) -> Envelope:
    """
    Sign a payload again with changed claims; a change named ``svc__x`` changes ``x`` inside ``svc``, ``...`` removes a
    claim.

    The extra members of the envelope stay.
    """
    payload = loads_object(envelope.payload)
    for name, value in claims.items():
        *path, last = name.split("__")
        target: dict[str, object] = payload
        for step in path:
            inner = target[step]
            if not isinstance(inner, dict):
                raise TypeError(f"{step} is no object")
            target = inner
        if value is ...:
            del target[last]
        else:
            target[last] = value
    signed = sign_envelope(dumps(payload), typ, signers)
    return signed.with_extra(**envelope.extra)


def spiffe_id(path: str, domain: str = DOMAIN) -> SpiffeID:
    return SpiffeID.parse(f"spiffe://{domain}{path}")


NO_ANCHORS = Anchors(spiffe=BundleSet.of(), pq=BundleSet.of())
