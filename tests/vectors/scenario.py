"""
The identities in the vectors of the signature envelope, and what all their generators share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from svc import naming
from svc.envelope.keys import Signer
from svc.strictjson import b64u_decode, b64u_encode, dumps
from tests.vectors.material import DOMAIN, FOLDER, NEIGHBOUR, NOW, WORKLOAD, Root, make_key, seed, write_vector

AUDIENCE: Final = f"spiffe://{DOMAIN}/svc/authority"
CHALLENGE: Final = b64u_encode(seed("challenge"))

ROOT: Final = Root("prod-p256")
ROOT_384: Final = Root("prod-p384", "ES384", digest="sha384")
ROOT_PQ_SVID: Final = Root("prod-mldsa-svid", "ML-DSA-65")
PQ: Final = Root("prod-pq", "ML-DSA-65")
PQ_87: Final = Root("prod-pq-87", "ML-DSA-87")
FOREIGN: Final = Root("stranger-p256")
FOREIGN_PQ: Final = Root("stranger-pq", "ML-DSA-65")
ANCHORS: Final = (ROOT, ROOT_384, ROOT_PQ_SVID, PQ, PQ_87, FOREIGN, FOREIGN_PQ)

KEY: Final = make_key("ES256", "workload")
SVID: Final = ROOT.leaf(KEY)
A: Final = Signer.from_chain(KEY, SVID)
PQ_KEY: Final = make_key("ML-DSA-65", "workload pq")
B: Final = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, SVID[0]))
NEIGHBOUR_KEY: Final = make_key("ES256", "neighbour")
NEIGHBOUR_SVID: Final = ROOT.leaf(NEIGHBOUR_KEY, NEIGHBOUR)

CLAIMS: Final[dict[str, Any]] = {
    "iss": WORKLOAD,
    "aud": [naming.AUDIENCE_RECEIPT],
    "iat": int(NOW.timestamp()),
    "jti": b64u_encode(seed("jti")[:16]),
    "svc": {"v": 1, "level": "signRequest"},
}
PAYLOAD: Final = dumps(CLAIMS)

CLASSICAL: Final = {
    "type": naming.TYPE_RECEIPT,
    "profile": "classical",
    "now": "2026-11-21T00:25:32Z",
    "spiffe": f"{DOMAIN}=prod-p256",
}
HYBRID: Final = {**CLASSICAL, "profile": "hybrid", "pq": f"{DOMAIN}=prod-pq"}
PQ_ONLY: Final = {**HYBRID, "profile": "pq"}
CNSA2: Final = {**HYBRID, "profile": "cnsa2", "spiffe": f"{DOMAIN}=prod-p384", "pq": f"{DOMAIN}=prod-pq-87"}
PQ_SVID: Final = {**HYBRID, "spiffe": f"{DOMAIN}=prod-mldsa-svid"}


def one(
    name: str, comment: str, expect: str, document: bytes | dict[str, Any], headers: Mapping[str, str] = CLASSICAL
) -> None:
    """Write a vector with one classical signature."""
    write_vector(name, comment, expect, document, headers)


def claims_with(**changes: object) -> bytes:
    """Return the payload with other members."""
    return dumps({**CLAIMS, **changes})


def flip(text: str) -> str:
    """Return base64url text with one bit of the middle octet changed."""
    data = bytearray(b64u_decode(text))
    data[len(data) // 2] ^= 1
    return b64u_encode(bytes(data))


def with_signature(document: dict[str, Any], index: int, signature: str) -> dict[str, Any]:
    """Return the document with another signature."""
    document["signatures"][index]["signature"] = signature
    return document


def write_anchors() -> None:
    """Write the bundles that all vectors share."""
    for root in ANCHORS:
        (FOLDER / "anchors" / f"{root.name}.pem").write_text(root.pem())
    (FOLDER / "anchors" / "empty.pem").write_text("")
