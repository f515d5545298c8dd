"""
Writes the vectors of the post-quantum leaf: ``pq/``.

Called by ``make_jws.py``, which documents how to run it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from svc import naming
from svc.envelope.keys import Signer
from svc.strictjson import b64u_encode, dumps
from tests.vectors.material import (
    DOMAIN,
    MINUTE,
    NEIGHBOUR,
    NOW,
    WORKLOAD,
    forge,
    make_key,
    seed,
    write_vector,
)
from tests.vectors.scenario import (
    AUDIENCE,
    CHALLENGE,
    CLASSICAL,
    HYBRID,
    KEY,
    PAYLOAD,
    PQ,
    PQ_KEY,
    PQ_ONLY,
    ROOT,
    SVID,
    A,
    B,
    claims_with,
    flip,
    one,
    with_signature,
)


def bindings() -> None:
    """The binding of the post-quantum leaf to the SVID and to its time."""
    reason = "chain_binding_mismatch"
    other = make_key("ES256", "workload, next rotation")
    rotated = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, ROOT.leaf(other)[0]))
    one(
        "pq/binding-other-svid",
        "The leaf is bound to another SVID of the same workload.",
        reason,
        forge([A, rotated], PAYLOAD),
        HYBRID,
    )
    unbound = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, SVID[0], bound=False))
    one("pq/binding-missing", "A leaf without the binding extension.", reason, forge([A, unbound], PAYLOAD), HYBRID)
    oid = x509.ObjectIdentifier(naming.OID_SVID_BINDING)
    for name, value in (("malformed", b"\x04\x1f" + bytes(31)), ("not-der", bytes(32))):
        extension = x509.UnrecognizedExtension(oid, value)
        bent = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, SVID[0], extensions=((extension, False),)))
        comment = "The extension is no OCTET STRING of 32 octets."
        one(f"pq/binding-{name}", comment, reason, forge([A, bent], PAYLOAD), HYBRID)
    comment = "A lone leaf whose binding is broken is no SVID for that."
    one("pq/binding-malformed-alone", comment, reason, forge([bent], PAYLOAD), PQ_ONLY)
    day = timedelta(days=1)
    long_svid = ROOT.leaf(KEY, not_before=NOW - day, not_after=NOW + day)
    today = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, long_svid[0], not_before=NOW - MINUTE, not_after=NOW + day))
    yesterday = NOW - day / 2
    document = forge([Signer.from_chain(KEY, long_svid), today], claims_with(iat=int(yesterday.timestamp())))
    comment = "Evidence dated to yesterday with a leaf of today, judged at its iat."
    moment = {**HYBRID, "now": f"{yesterday:%Y-%m-%dT%H:%M:%SZ}"}
    one("pq/iat-before-leaf", comment, "certificate_not_valid_at_time", document, moment)
    one("pq/good-leaf", "The same, judged today.", "ok", document, HYBRID)


def proofs() -> None:
    """Proofs of possession."""
    raw = Signer.from_raw_key(PQ_KEY)
    claims = {
        "iss": WORKLOAD,
        "aud": AUDIENCE,
        "iat": int(NOW.timestamp()),
        "challenge": CHALLENGE,
        "pub": b64u_encode(PQ_KEY.public_key().public_bytes_raw()),
    }
    payload = dumps(claims)
    proof("good", "Both keys sign.", "ok", forge([A, raw], payload, typ=naming.TYPE_PQ_PROOF))
    other = make_key("ML-DSA-65", "another")
    named = dumps({**claims, "pub": b64u_encode(other.public_key().public_bytes_raw())})
    kid = {"ML-DSA-65": {"kid": Signer.from_raw_key(other).thumbprint}}
    document = forge([A, raw], named, typ=naming.TYPE_PQ_PROOF, protected_of=kid)
    proof("other-pub", "pub is another key than the one that signed.", "signature_invalid{ML-DSA-65}", document)
    document = forge([A, raw], named, typ=naming.TYPE_PQ_PROOF)
    proof("other-pub-own-kid", "pub is another key than kid names.", "malformed", document)
    for name, member, value, expect in (
        ("other-audience", "aud", f"spiffe://{DOMAIN}/svc/other", "proof_mismatch{aud}"),
        ("other-challenge", "challenge", b64u_encode(seed("other")), "proof_mismatch{challenge}"),
        ("late", "iat", int(claims["iat"]) - 61, "time_skew"),  # type: ignore[call-overload]
        ("early", "iat", int(claims["iat"]) + 61, "time_skew"),  # type: ignore[call-overload]
        ("year-9999", "iat", 253_402_300_799, "time_skew"),
        ("year-10000", "iat", 253_402_300_800, "malformed"),
        ("last-second", "iat", int(claims["iat"]) - 60, "ok"),  # type: ignore[call-overload]
        ("other-issuer", "iss", NEIGHBOUR, "issuer_mismatch"),
        ("short-pub", "pub", b64u_encode(bytes(1951)), "malformed"),
    ):
        document = forge([A, raw], dumps({**claims, member: value}), typ=naming.TYPE_PQ_PROOF)
        proof(name, f"The claim {member} is not what the issuer expects, or just so.", expect, document)
    _proof_signatures(payload, raw)


def _proof_signatures(payload: bytes, raw: Signer) -> None:
    typ = naming.TYPE_PQ_PROOF
    proof("alone", "Only the new key signs.", "hybrid_incomplete", forge([raw], payload, typ=typ))
    proof("svid-alone", "Only the SVID key signs.", "hybrid_incomplete", forge([A], payload, typ=typ))
    proof("with-certificates", "The new key has certificates already.", "malformed", forge([A, B], payload, typ=typ))
    proof("wrong-type", "A receipt is no proof.", "wrong_type", forge([A, raw], payload))
    both = forge([A, raw], payload, typ=typ, protected={"x-note": 1}, header={"x-note": 1})
    proof("both-headers", "A member in both headers of a signature.", "malformed", both)
    twin = Signer.from_chain(KEY, ROOT.leaf(KEY))
    comment = "The proof is signed with another certificate than the one that was verified."
    proof("other-certificate", comment, "proof_mismatch{x5c}", forge([twin, raw], payload, typ=typ))
    broken = forge([A, raw], payload, typ=typ)
    with_signature(broken, 0, flip(broken["signatures"][0]["signature"]))
    proof("svid-signature", "The SVID key did not sign.", "signature_invalid{ES256}", broken)
    weak = Signer.from_raw_key(make_key("ML-DSA-44", "workload pq 44"))
    proof("ml-dsa-44", "The new key is too weak.", "alg_not_allowed", forge([A, weak], payload, typ=typ))


def proof(name: str, comment: str, expect: str, document: dict[str, Any]) -> None:
    """Write a vector of a proof of possession, together with the SVID that the issuer has verified."""
    pem = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in SVID)
    headers_ = {
        "kind": "pq-proof",
        "now": CLASSICAL["now"],
        "spiffe": CLASSICAL["spiffe"],
        "audience": AUDIENCE,
        "challenge": CHALLENGE,
    }
    write_vector(f"pq/proof-{name}", comment, expect, document, headers_, svid=pem)
