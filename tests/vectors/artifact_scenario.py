"""
The identities in the vectors of statements, receipts and evidence, and what their generators share.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding

from svc import naming
from svc.envelope.envelope import Envelope, sign_envelope
from svc.envelope.keys import Signer
from svc.identity import SpiffeID, X509Svid, certificate_sha256
from svc.notary.exchange import BodySummary, Peer, RecordedExchange, TlsFacts
from svc.notary.facts import Container, WorkloadFacts
from svc.notary.level import Level
from svc.notary.receipt import PayloadWriter, Redaction, sign_receipt, with_disclosures
from svc.notary.statement import Statement, issue_statement
from svc.strictjson import b64u_encode, dumps, loads_object
from svc.testing.vectors import Vector
from tests.vectors.material import DOMAIN, FOLDER, NEIGHBOUR, NOW, WORKLOAD, Root, make_key, seed

ROOT: Final = Root("prod-p256")
PQ: Final = Root("prod-pq", "ML-DSA-65")
MANAGER: Final = f"spiffe://{DOMAIN}/svc/manager"
MOMENT: Final = "2026-11-21T00:25:32Z"
#: The last second of the year 9999, the latest time that the calendars here can represent.
LAST_SECOND: Final = 253_402_300_799
CLASSICAL: Final = {"profile": "classical", "now": MOMENT, "spiffe": f"{DOMAIN}=prod-p256"}
HYBRID: Final = {"profile": "hybrid", "now": MOMENT, "spiffe": f"{DOMAIN}=prod-p256", "pq": f"{DOMAIN}=prod-pq"}
NONCE: Final = b64u_encode(seed("nonce")[:16])
TLS: Final = TlsFacts("1.3", "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", pq=True)
REQUEST_BODY: Final = b'{"amount":12}'
RESPONSE_BODY: Final = b'{"ok":true}'
FACTS: Final = WorkloadFacts.explicit(
    namespace="pay",
    service_account="api",
    pod_name="api-7c",
    pod_uid="1c0b1f0e-0000-4000-8000-000000000001",
    node="n1",
    containers=[Container("api", "reg/pay/api:1.4", "sha256:" + "ab" * 32)],
    labels={naming.LABEL_COMPARTMENT: "DE-S-ALPHA"},
    annotations={naming.ANNOTATION_LEVEL: "de:s", naming.ANNOTATION_COMPARTMENT: "de:alpha"},
)


def random_of(name: str) -> Callable[[int], bytes]:
    """Return octets that are derived from a name."""
    calls = itertools.count()
    return lambda size: hashlib.shake_256(seed(f"{name} {next(calls)}")).digest(size)


def svid_of(name: str, spiffe_id: str) -> X509Svid:
    """Create an SVID whose key is derived from a name."""
    key = make_key("ES256", name)
    return X509Svid(SpiffeID.parse(spiffe_id), ROOT.leaf(key, spiffe_id), key)


SERVER: Final = svid_of("workload", WORKLOAD)
REPLICA: Final = svid_of("workload, replica", WORKLOAD)
CLIENT: Final = svid_of("neighbour", NEIGHBOUR)
CENTRAL: Final = svid_of("manager", MANAGER)


def signers_of(svid: X509Svid, *, hybrid: bool = False) -> tuple[Signer, ...]:
    """Return the keys that sign for an SVID."""
    own = Signer.from_svid(svid)
    if not hybrid:
        return (own,)
    key = make_key("ML-DSA-65", "workload pq")
    return own, Signer.from_chain(key, PQ.pq_leaf(key, svid.leaf, str(svid.spiffe_id)))


def statement_of(svid: X509Svid = SERVER, *, issuer: X509Svid | None = None, hybrid: bool = False) -> Statement:
    """Create a valid statement."""
    signers = signers_of(issuer or svid, hybrid=hybrid)
    by = None if issuer is None else issuer.spiffe_id
    return issue_statement(svid, FACTS, signers, NOW, random_of("statement"), issuer=by)


def peer_of(svid: X509Svid) -> Peer:
    """Return one end of a connection."""
    return Peer(svid.spiffe_id, b64u_encode(certificate_sha256(svid.leaf)))


def changed(envelope: Envelope, typ: str, signers: Sequence[Signer], **claims: object) -> Envelope:
    """Sign another payload; ``svc__x`` is ``x`` inside ``svc``, and ``...`` removes a claim."""
    payload: dict[str, Any] = loads_object(envelope.payload)
    for name, value in claims.items():
        *path, last = name.split("__")
        target = payload
        for step in path:
            target = target[step]
        if value is ...:
            del target[last]
        else:
            target[last] = value
    return sign_envelope(dumps(payload), typ, signers).with_extra(**envelope.extra)


def exchange(**fields: Any) -> RecordedExchange:
    """Return the exchange as the server saw it."""
    found = RecordedExchange(
        level=Level.SIGN_REQUEST,
        nonce=NONCE,
        jti=b64u_encode(seed("jti")[:16]),
        client=peer_of(CLIENT),
        server=peer_of(SERVER),
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
            (b"Content-Length", b"13"),
        ),
        request_body=BodySummary.of(REQUEST_BODY),
        request_trailers=(),
        status=200,
        response_headers=((b"Content-Type", b"application/json"), (b"Content-Length", b"11")),
        response_body=BodySummary.of(RESPONSE_BODY),
        response_trailers=(),
        received=NOW,
        completed=NOW,
    )
    return dataclasses.replace(found, **fields)


def receipt_of(
    what: RecordedExchange,
    *,
    statement: Statement | None = None,
    signers: Sequence[Signer] | None = None,
    issuer: X509Svid = SERVER,
    redaction: Redaction | None = None,
) -> Envelope:
    """Create a receipt of an exchange, as it is served to the client."""
    about = statement or statement_of()
    draft = PayloadWriter(redaction or Redaction(), random_of("salts")).write(what, about.id, issuer.spiffe_id)
    return with_disclosures(sign_receipt(draft, signers or signers_of(issuer)), draft.disclosures)


def pem_of(svid: X509Svid) -> bytes:
    """Return the certificates of an SVID as PEM."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in svid.chain).rstrip(b"\n")


def seen_json(what: RecordedExchange) -> bytes:
    """Return the client's view of an exchange, without its bodies."""
    return dumps(
        {
            "nonce": what.nonce,
            "started": f"{NOW:%Y-%m-%dT%H:%M:%SZ}",
            "client": what.client and {"spiffeID": str(what.client.spiffe_id), "x5t#S256": what.client.thumbprint},
            "tls": what.tls and dataclasses.asdict(what.tls),
            "method": what.method,
            "authority": what.authority,
            "target": what.path + what.query,
            "requestHeaders": _pairs(what.request_headers),
            "requestTrailers": _pairs(what.request_trailers),
            "status": what.status,
            "responseHeaders": _pairs(what.response_headers),
            "responseTrailers": _pairs(what.response_trailers),
        }
    )


def _pairs(headers: Any) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]


def clear(*groups: str) -> None:
    """Remove all vectors of the groups, so that none is left that no generator writes."""
    for group in groups:
        folder = FOLDER / group
        folder.mkdir(exist_ok=True)
        for file in folder.glob("*.txt"):
            file.unlink()


def write(name: str, comment: str, expect: str, headers: dict[str, str], sections: dict[str, bytes]) -> None:
    """Write one vector."""
    vector = Vector(name, {"expect": expect, **headers}, sections, comment)
    (FOLDER / f"{name}.txt").write_bytes(vector.render())
