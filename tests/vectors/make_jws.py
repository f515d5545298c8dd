"""
Writes the vectors of the signature envelope, ``jws/``, ``profile/`` and ``pq/``, and the anchors they share.

Run from the top of the checkout, then look at what changed and run the tests::

    .venv/bin/python -m tests.vectors.make_jws

Keys come from fixed seeds (see ``material.py``); certificates and signatures are new in each run.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from svc.envelope.envelope import MAX_PROTECTED
from svc.envelope.keys import Signer
from svc.envelope.x5c import encode_x5c
from svc.identity import certificate_sha256
from svc.strictjson import b64u_decode, b64u_encode, dumps
from tests.vectors import make_pq, make_profile
from tests.vectors.material import (
    DOMAIN,
    NEIGHBOUR,
    NOW,
    WORKLOAD,
    Root,
    forge,
    make_key,
)
from tests.vectors.scenario import (
    CLAIMS,
    CLASSICAL,
    HYBRID,
    KEY,
    NEIGHBOUR_KEY,
    NEIGHBOUR_SVID,
    PAYLOAD,
    PQ,
    PQ_KEY,
    ROOT,
    SVID,
    A,
    B,
    claims_with,
    flip,
    one,
    with_signature,
    write_anchors,
)


def main() -> None:
    """Write everything; the chains are new in each run, so the anchors and all three groups belong together."""
    write_anchors()
    for group in (good, json_and_shape, headers, sets, certificates, payloads, issuers, chains, signatures):
        group()
    for group in (make_profile.profiles, make_profile.profile_edges, make_pq.bindings, make_pq.proofs):
        group()


def good() -> None:
    """Valid envelopes, which must be accepted."""
    one("jws/good-hybrid", "An SVID and a post-quantum leaf sign together.", "ok", forge([A, B], PAYLOAD), HYBRID)
    for alg in ("ES384", "Ed25519"):
        key = make_key(alg, f"workload {alg}")
        document = forge([Signer.from_chain(key, ROOT.leaf(key))], PAYLOAD)
        one(f"jws/good-{alg.lower()}", f"The algorithm by the key: {alg}.", "ok", document)
    swapped = forge([A, B], PAYLOAD)
    swapped["signatures"].reverse()
    one("jws/good-reversed", "The order of the signatures carries no meaning.", "ok", swapped, HYBRID)
    spaced = dumps(forge([A], PAYLOAD)).replace(b'","signatures":[{', b'" ,\n\t"signatures": [ {')
    one("jws/good-whitespace", "White space between JSON tokens is no part of what is signed.", "ok", spaced)
    document = {**forge([A], PAYLOAD, protected={"x-note": 1}, header={"note": "x"}), "disclosures": {"request": {}}}
    one("jws/good-unknown-members", "Unknown members are ignored unless they are critical.", "ok", document)
    middle = Root("prod-intermediate", issuer=ROOT)
    document = forge([Signer.from_chain(KEY, middle.leaf(KEY))], PAYLOAD)
    one("jws/good-intermediate", "The chain has an intermediate, and the root stays away.", "ok", document)
    eight = encode_x5c([*SVID, *[middle.certificate] * 7])
    one("jws/x5c-eight", "Eight certificates are the most.", "ok", forge([A], PAYLOAD, x5c=eight))
    limit = {**CLASSICAL, "pad-to": "262144"}
    one("jws/size-at-limit", "256 KiB, padded with spaces, is the largest envelope.", "ok", forge([A], PAYLOAD), limit)


def json_and_shape() -> None:
    """Size, JSON and the members of the serialization."""
    document = forge([A], PAYLOAD)
    text = dumps(document)
    over = {**CLASSICAL, "pad-to": "262145"}
    one("jws/size-over-limit", "One octet more than 256 KiB.", "too_large", document, over)
    malformed = "malformed"
    flat = {"payload": document["payload"], **document["signatures"][0]}
    one("jws/flattened", "The flattened serialization (RFC 7515, 7.2.2).", malformed, flat)
    one("jws/flattened-beside", "A flattened signature beside the array.", malformed, {**document, "signature": "AA"})
    compact = ".".join((flat["protected"], flat["payload"], flat["signature"])).encode("ascii")
    one("jws/compact", "The compact serialization (RFC 7515, 7.1).", malformed, compact)
    one("jws/bom", "A byte order mark before the document.", malformed, b"\xef\xbb\xbf" + text)
    one("jws/not-utf8", "An octet that is not UTF-8.", malformed, text[:-1] + b',"x":"\xff"}')
    one("jws/lone-surrogate", "An escaped lone surrogate.", malformed, text[:-1] + b',"x":"\\ud800"}')
    one("jws/nan", "The constant NaN, which is no JSON.", malformed, text[:-1] + b',"x":NaN}')
    one("jws/exponent", "A number with an exponent.", malformed, text[:-1] + b',"x":1e0}')
    deep = b"[" * 32 + b"]" * 32
    one("jws/too-deep", "Nesting of 33.", malformed, text[:-1] + b',"x":' + deep + b"}")
    one("jws/deepest", "Nesting of 32, the most.", "ok", text[:-1] + b',"x":' + deep[1:-1] + b"}")
    doubled = text[:-1] + b',"payload":"' + document["payload"].encode() + b'"}'
    one("jws/duplicate-member", "A member that stands twice, though with the same value.", malformed, doubled)
    one("jws/payload-missing", "No payload.", malformed, {"signatures": document["signatures"]})
    one("jws/no-signatures", "An empty array of signatures.", malformed, {**document, "signatures": []})
    three = forge([A, B], PAYLOAD)
    three["signatures"].append(three["signatures"][0])
    one("jws/three-signatures", "More than one signature of each kind.", malformed, three, HYBRID)
    _base64_vectors(document)


def _base64_vectors(document: dict[str, Any]) -> None:
    payload = dumps({**CLAIMS, "pad": "x" * ((1 - len(dumps({**CLAIMS, "pad": ""}))) % 3)})
    signed = forge([A], payload)
    last = signed["payload"][-1]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    spare = signed["payload"][:-1] + alphabet[alphabet.index(last) | 1]
    comment = "The payload's last character has spare bits that are not zero; both spellings decode to the same octets."
    one("jws/spare-bits", comment, "malformed", {**signed, "payload": spare})
    padded = signed["payload"] + "=" * (-len(signed["payload"]) % 4)
    one("jws/padded-payload", "base64url with padding.", "malformed", {**signed, "payload": padded})
    standard = with_signature(forge([A], PAYLOAD), 0, "+/+/")
    one("jws/standard-base64", "Standard base64 where base64url belongs.", "malformed", standard)
    broken = {**document, "payload": document["payload"] + "\n"}
    one("jws/newline-payload", "A line feed behind the payload.", "malformed", broken)


def headers() -> None:
    """Protected and unprotected headers."""
    one(
        "jws/wrong-type",
        "A statement where a receipt is expected.",
        "wrong_type",
        forge([A], PAYLOAD, typ="svc-statement+jws"),
    )
    prefixed = forge([A], PAYLOAD, typ="application/svc-receipt+jws")
    one("jws/type-with-prefix", "The type is compared exactly.", "wrong_type", prefixed)
    one("jws/type-missing", "No type.", "malformed", forge([A], PAYLOAD, without=["typ"]))
    extra = forge([A], PAYLOAD, protected={"crit": ["svc-set", "exp"], "exp": 1})
    one("jws/crit-extra", "A critical member that nobody knows (RFC 7515, 4.1.11).", "critical_unknown", extra)
    one("jws/crit-missing", "svc-set is not marked as critical.", "malformed", forge([A], PAYLOAD, without=["crit"]))
    twice = forge([A], PAYLOAD, protected={"crit": ["svc-set", "svc-set"]})
    one("jws/crit-twice", "The one critical member is named twice.", "critical_unknown", twice)
    for alg in ("none", "HS256", "ES512", "EdDSA", "ES256-ML-DSA-65"):
        document = forge([A], PAYLOAD, protected={"alg": alg}, algorithms=[alg])
        one(f"jws/alg-{alg.lower()}", f"The algorithm {alg} is not part of the format.", "alg_not_allowed", document)
    lying = forge([A], PAYLOAD, protected={"alg": "ES384"}, algorithms=["ES384"])
    one("jws/alg-of-other-key", "ES384 announced by a P-256 key.", "alg_not_allowed", lying)
    weak = b64u_encode(certificate_sha256(_p521_leaf()))
    document = forge([A], PAYLOAD, protected={"x5t#S256": weak}, x5c=encode_x5c([_p521_leaf()]))
    one("jws/alg-of-odd-key", "ES256 announced by a P-521 key.", "alg_not_allowed", document)
    for name, value in (("jku", "https://x.example"), ("x5u", "https://x.example"), ("jwk", {}), ("b64", False)):
        one(
            f"jws/{name}-protected",
            f"The forbidden member {name}.",
            "malformed",
            forge([A], PAYLOAD, protected={name: value}),
        )
        one(
            f"jws/{name}-unprotected",
            f"The forbidden member {name}.",
            "malformed",
            forge([A], PAYLOAD, header={name: value}),
        )
    one(
        "jws/x5c-protected",
        "Certificates in the protected header.",
        "malformed",
        forge([A], PAYLOAD, protected={"x5c": list(A.x5c)}),
    )
    one(
        "jws/unprotected-alg",
        "The algorithm stands outside the signature.",
        "malformed",
        forge([A], PAYLOAD, header={"alg": "ES256"}),
    )
    one(
        "jws/both-headers",
        "A member without a meaning in both headers of a signature.",
        "malformed",
        forge([A], PAYLOAD, protected={"x-note": 1}, header={"x-note": 1}),
    )
    one(
        "jws/both-headers-second",
        "A member in both headers of the second signature alone.",
        "malformed",
        forge([A, B], PAYLOAD, protected_of={"ML-DSA-65": {"x-note": 1}}, header={"x-note": 2}),
        HYBRID,
    )
    one(
        "jws/kid-in-receipt",
        "A receipt is never signed by a pinned key.",
        "malformed",
        forge([A], PAYLOAD, protected={"kid": A.thumbprint}),
    )
    doubled = forge([A], PAYLOAD)
    text = b64u_decode(doubled["signatures"][0]["protected"])
    doubled["signatures"][0]["protected"] = b64u_encode(text[:-1] + b',"alg":"none"}')
    one("jws/duplicate-alg", "The protected header has two algorithms.", "malformed", doubled)
    room = MAX_PROTECTED - len(b64u_decode(forge([A], PAYLOAD, protected={"x": ""})["signatures"][0]["protected"]))
    one("jws/header-at-limit", "A protected header of 4 KiB.", "ok", forge([A], PAYLOAD, protected={"x": "x" * room}))
    over = forge([A], PAYLOAD, protected={"x": "x" * (room + 1)})
    one("jws/header-over-limit", "A protected header of 4 KiB and an octet.", "malformed", over)
    two = forge([A], PAYLOAD, typ="svc-statement+jws", protected={"alg": "none"}, algorithms=["ES256", "ML-DSA-65"])
    comment = "Type, algorithm, set and signature are all wrong: the type is checked first."
    one("jws/two-defects", comment, "wrong_type", two)


@cache
def _p521_leaf() -> x509.Certificate:
    key = ec.derive_private_key(7, ec.SECP521R1())
    return ROOT.leaf(key)[0]


def sets() -> None:
    """Sets of signatures to which one was added, removed or mixed in."""
    reason = "set_mismatch"
    disordered = forge([A, B], PAYLOAD, algorithms=["ML-DSA-65", "ES256"])
    one("jws/set-order", "The set is not in ASCII order.", reason, disordered, HYBRID)
    stripped = forge([A, B], PAYLOAD)
    del stripped["signatures"][1]
    comment = "The ML-DSA signature was removed: not even the profile classical accepts that."
    one("jws/set-stripped", comment, reason, stripped)
    mixed = forge([A, B], PAYLOAD)
    mixed["signatures"][0] = forge([A], PAYLOAD)["signatures"][0]
    one("jws/set-mixed", "A signature that was made to stand alone is put beside another.", reason, mixed, HYBRID)
    key = make_key("Ed25519", "workload Ed25519")
    both = forge([A, Signer.from_chain(key, ROOT.leaf(key))], PAYLOAD)
    one("jws/set-two-classical", "Two classical signatures.", reason, both, HYBRID)
    doubled = forge([A], PAYLOAD, algorithms=["ES256", "ES256"])
    doubled["signatures"] *= 2
    one("jws/set-one-twice", "The same signature twice never stands for two.", reason, doubled, HYBRID)


def certificates() -> None:
    """Certificates in the unprotected header."""
    malformed = "malformed"
    other = ROOT.leaf(KEY)
    one(
        "jws/x5t-mismatch",
        "A certificate for the same key, but not the one named.",
        malformed,
        forge([A], PAYLOAD, x5c=encode_x5c(other)),
    )
    one("jws/x5t-missing", "No thumbprint.", malformed, forge([A], PAYLOAD, without=["x5t#S256"]))
    one("jws/x5c-missing", "No certificates.", malformed, forge([A], PAYLOAD, x5c=()))
    leaf = A.x5c[0]
    padded = _long_leaf()
    for kind, comment in (("unpadded", "base64 without its padding."), ("spare-bits", "base64 with spare bits set.")):
        document = forge([padded], PAYLOAD, x5c=[_spelt_wrongly(padded, kind)])
        one(f"jws/x5c-{kind}", comment, malformed, document)
    longer = base64.b64encode(base64.b64decode(leaf) + b"\0").decode("ascii")
    one("jws/x5c-trailing-octet", "An octet behind the certificate.", malformed, forge([A], PAYLOAD, x5c=[longer]))
    nine = [leaf, *[encode_x5c([Root("prod-intermediate", issuer=ROOT).certificate])[0]] * 8]
    one("jws/x5c-nine", "One certificate more than the eight allowed.", malformed, forge([A], PAYLOAD, x5c=nine))
    _year_zero(malformed)
    rooted = [*A.x5c, *encode_x5c([ROOT.certificate])]
    one("jws/x5c-with-root", "A root travels with the signature.", malformed, forge([A], PAYLOAD, x5c=rooted))


def _year_zero(reason: str) -> None:
    later = timedelta(days=365 * 30)
    der = base64.b64decode(encode_x5c(ROOT.leaf(KEY, not_before=NOW + later, not_after=NOW + 2 * later))[0])
    start = f"{NOW + later:%Y%m%d%H%M%SZ}".encode("ascii")
    bent = der.replace(start, b"00000101000000Z")
    thumbprint = b64u_encode(hashlib.sha256(bent).digest())
    document = forge([A], PAYLOAD, protected={"x5t#S256": thumbprint}, x5c=[base64.b64encode(bent).decode("ascii")])
    one("jws/x5c-year-zero", "A leaf that begins in the year 0, which no calendar here has.", reason, document)


def _long_leaf() -> Signer:
    """A signer whose leaf has a length that base64 must pad."""
    for size in range(100):
        signer = Signer.from_chain(KEY, ROOT.leaf(KEY, subject="workload" + "x" * (size % 3)))
        if signer.x5c[0].endswith("=="):
            return signer
    raise AssertionError("no leaf of a fitting length")


def _spelt_wrongly(signer: Signer, kind: str) -> str:
    body = signer.x5c[0].rstrip("=")
    if kind == "unpadded":
        return body
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return body[:-1] + alphabet[alphabet.index(body[-1]) | 1] + "=="


def payloads() -> None:
    """The payload and its version."""
    malformed = "malformed"
    one("jws/payload-not-json", "The payload is no JSON.", malformed, forge([A], b"payload"))
    one("jws/payload-array", "The payload is no object.", malformed, forge([A], b"[]"))
    text = PAYLOAD.replace(b'"v":1', b'"v":1.0')
    one("jws/number-1.0", "The version is written 1.0.", malformed, forge([A], text))
    one("jws/version-true", "The version is a truth value.", malformed, forge([A], claims_with(svc={"v": True})))
    one("jws/version-missing", "No version.", malformed, forge([A], claims_with(svc={})))
    one("jws/version-2", "A later version.", "unsupported_version", forge([A], claims_with(svc={"v": 2})))
    doubled = PAYLOAD[:-1] + b',"iss":"' + NEIGHBOUR.encode() + b'"}'
    one("jws/payload-duplicate-iss", "The payload has two issuers.", malformed, forge([A], doubled))
    one("jws/issuer-missing", "No issuer.", malformed, forge([A], dumps({"svc": {"v": 1}})))
    shouting = forge([A], claims_with(iss=WORKLOAD.upper()))
    one("jws/issuer-upper-case", "The issuer is no SPIFFE ID.", malformed, shouting)


def issuers() -> None:
    """The signer's identity."""
    reason = "issuer_mismatch"
    neighbour = Signer.from_chain(NEIGHBOUR_KEY, NEIGHBOUR_SVID)
    comment = "A neighbour with a valid SVID signs in the name of another workload."
    one("jws/issuer-neighbour", comment, reason, forge([neighbour], PAYLOAD))
    _two_names(reason)
    alias = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, SVID[0], NEIGHBOUR))
    comment = "The post-quantum leaf is bound to the right SVID, but names a neighbour."
    one("jws/issuer-other-pq-name", comment, reason, forge([A, alias], PAYLOAD), HYBRID)


def _two_names(reason: str) -> None:
    leaf = ROOT.leaf(KEY, uris=(WORKLOAD, NEIGHBOUR))[0]
    bare = ROOT.leaf(KEY, uris=())[0]
    for name, comment, certificate in (
        ("two-names", "A leaf with two URI names.", leaf),
        ("no-name", "A leaf without a URI name.", bare),
    ):
        thumbprint = b64u_encode(certificate_sha256(certificate))
        document = forge([A], PAYLOAD, protected={"x5t#S256": thumbprint}, x5c=encode_x5c([certificate]))
        one(f"jws/issuer-{name}", comment, reason, document)


def chains() -> None:
    """Trust domains, chains and times."""
    unknown = "trust_domain_unknown"
    document = forge([A, B], PAYLOAD)
    foreign = {**HYBRID, "spiffe": "other.example=prod-p256"}
    one("jws/trust-domain-no-spiffe", "No SPIFFE bundle for the trust domain.", unknown, document, foreign)
    unpaired = {name: value for name, value in HYBRID.items() if name != "pq"}
    comment = "No post-quantum bundle for the trust domain: hybrid is never downgraded."
    one("jws/trust-domain-no-pq", comment, unknown, document, unpaired)
    classical, quantum = "chain_untrusted{classical}", "chain_untrusted{pq}"
    one(
        "jws/chain-a-stranger",
        "Chain A leads to another root.",
        classical,
        document,
        {**HYBRID, "spiffe": f"{DOMAIN}=stranger-p256"},
    )
    one(
        "jws/chain-a-empty-bundle",
        "An empty bundle verifies nothing.",
        classical,
        document,
        {**HYBRID, "spiffe": f"{DOMAIN}=empty"},
    )
    one(
        "jws/chain-b-stranger",
        "Chain B leads to another root.",
        quantum,
        document,
        {**HYBRID, "pq": f"{DOMAIN}=stranger-pq"},
    )
    one(
        "jws/chain-b-empty-bundle",
        "An empty post-quantum bundle.",
        quantum,
        document,
        {**HYBRID, "pq": f"{DOMAIN}=empty"},
    )
    mixed = Signer.from_chain(PQ_KEY, ROOT.pq_leaf(PQ_KEY, SVID[0]))
    comment = "The post-quantum leaf was signed by a classical root."
    one(
        "jws/chain-b-classical-root",
        comment,
        quantum,
        forge([A, mixed], PAYLOAD),
        {**HYBRID, "pq": f"{DOMAIN}=prod-p256"},
    )
    signing = Signer.from_chain(KEY, ROOT.leaf(KEY, key_usage=frozenset({"digital_signature", "key_cert_sign"})))
    one("jws/chain-a-leaf-signs", "A leaf that may sign certificates.", classical, forge([signing], PAYLOAD))
    late = "certificate_not_valid_at_time"
    one(
        "jws/leaf-expired", "The leaf ended a second before.", late, document, {**HYBRID, "now": "2026-11-21T01:25:33Z"}
    )
    one(
        "jws/leaf-last-second",
        "The last second of the leaf counts.",
        "ok",
        document,
        {**HYBRID, "now": "2026-11-21T01:25:32Z"},
    )
    one("jws/leaf-future", "The leaf begins a second later.", late, document, {**HYBRID, "now": "2026-11-21T00:24:31Z"})
    one(
        "jws/leaf-first-second",
        "The first second of the leaf counts.",
        "ok",
        document,
        {**HYBRID, "now": "2026-11-21T00:24:32Z"},
    )
    both = {**HYBRID, "now": "2026-11-21T01:25:33Z", "pq": f"{DOMAIN}=stranger-pq"}
    comment = "The leaf of chain A is expired and chain B is not trusted: leaf times come after both chains."
    one("jws/two-defects-chains", comment, quantum, document, both)


def signatures() -> None:
    """The raw signatures."""
    changed = forge([A, B], PAYLOAD)
    one(
        "jws/signature-es256",
        "One bit of the ES256 signature.",
        "signature_invalid{ES256}",
        with_signature(changed, 0, flip(changed["signatures"][0]["signature"])),
        HYBRID,
    )
    changed = forge([A, B], PAYLOAD)
    one(
        "jws/signature-ml-dsa",
        "One bit of the ML-DSA signature.",
        "signature_invalid{ML-DSA-65}",
        with_signature(changed, 1, flip(changed["signatures"][1]["signature"])),
        HYBRID,
    )
    raw = b64u_decode(forge([A], PAYLOAD)["signatures"][0]["signature"])
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    reason = "signature_invalid{ES256}"
    one(
        "jws/signature-der",
        "ECDSA as DER instead of r || s.",
        reason,
        with_signature(forge([A], PAYLOAD), 0, b64u_encode(der)),
    )
    one(
        "jws/signature-long",
        "An octet behind the signature.",
        reason,
        with_signature(forge([A], PAYLOAD), 0, b64u_encode(raw + b"\0")),
    )
    one("jws/signature-empty", "An empty signature.", reason, with_signature(forge([A], PAYLOAD), 0, ""))
    one(
        "jws/signature-zero",
        "r and s are zero.",
        reason,
        with_signature(forge([A], PAYLOAD), 0, b64u_encode(bytes(64))),
    )
    one("jws/payload-changed", "Another payload was signed.", reason, forge([A], PAYLOAD, other_payload=PAYLOAD + b" "))
    document = forge([A, B], PAYLOAD)
    entry = document["signatures"][1]
    signed = f"{entry['protected']}.{document['payload']}".encode("ascii")
    with_context = with_signature(document, 1, b64u_encode(PQ_KEY.sign(signed, b"svc")))
    comment = "ML-DSA with a context that is not empty (RFC 9964 has none)."
    one("jws/signature-ml-dsa-context", comment, "signature_invalid{ML-DSA-65}", with_context, HYBRID)


if __name__ == "__main__":
    main()
