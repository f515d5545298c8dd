"""
Writes the vectors of the profiles: ``profile/``.

Called by ``make_jws.py``, which documents how to run it.
"""

from __future__ import annotations

from typing import Any

from svc.envelope.keys import Signer
from tests.vectors.material import (
    DOMAIN,
    HOUR,
    NOW,
    Root,
    forge,
    make_key,
)
from tests.vectors.scenario import (
    CNSA2,
    HYBRID,
    KEY,
    NEIGHBOUR_SVID,
    PAYLOAD,
    PQ,
    PQ_87,
    PQ_KEY,
    PQ_ONLY,
    PQ_SVID,
    ROOT,
    ROOT_384,
    ROOT_PQ_SVID,
    SVID,
    A,
    B,
    flip,
    one,
    with_signature,
)


def profiles() -> None:
    """Each profile with an ECDSA SVID and its leaf, and with an ML-DSA SVID alone."""
    pair = forge([A, B], PAYLOAD)
    alone = forge([_ml_dsa_svid("ML-DSA-65")], PAYLOAD)
    incomplete = "hybrid_incomplete"
    one("profile/hybrid-ecdsa", "Both chains verify.", "ok", pair, HYBRID)
    one("profile/pq-ecdsa", "Chain B verifies and is bound to chain A.", "ok", pair, PQ_ONLY)
    one("profile/classical-ecdsa", "Chain A verifies, chain B is ignored.", "ok", pair)
    one(
        "profile/cnsa2-ecdsa",
        "P-256 and ML-DSA-65 are too weak.",
        "alg_not_allowed",
        pair,
        {**HYBRID, "profile": "cnsa2"},
    )
    comment = "An ML-DSA SVID signs alone, which is no hybrid."
    one("profile/hybrid-mldsa-svid", comment, incomplete, alone, PQ_SVID)
    comment = "An ML-DSA SVID verifies to the SPIFFE bundle and satisfies the profile pq."
    one("profile/pq-mldsa-svid", comment, "ok", alone, {**PQ_SVID, "profile": "pq"})
    comment = "An ML-DSA SVID has no classical signature."
    one("profile/classical-mldsa-svid", comment, incomplete, alone, {**PQ_SVID, "profile": "classical"})
    one("profile/cnsa2-mldsa-svid", comment, incomplete, alone, {**PQ_SVID, "profile": "cnsa2"})
    one("profile/cnsa2-p384", "ES384 and ML-DSA-87, in the chains too.", "ok", _cnsa2_pair(ROOT_384), CNSA2)
    weak = _cnsa2_pair(Root("prod-p384", "ES384", digest="sha256"))
    one("profile/cnsa2-sha256-chain", "A P-384 chain signed with SHA-256.", "alg_not_allowed", weak, CNSA2)
    mixed = {**CNSA2, "spiffe": f"{DOMAIN}=prod-p256"}
    comment = "A P-384 leaf under a P-256 root."
    one("profile/cnsa2-p256-root", comment, "alg_not_allowed", _cnsa2_pair(ROOT), mixed)
    comment = "Under hybrid the stronger algorithms are as good."
    one("profile/hybrid-p384", comment, "ok", _cnsa2_pair(ROOT_384), {**CNSA2, "profile": "hybrid"})


def _ml_dsa_svid(alg: str) -> Signer:
    key = make_key(alg, f"workload svid {alg}")
    return Signer.from_chain(key, ROOT_PQ_SVID.leaf(key))


def _cnsa2_pair(root: Root) -> dict[str, Any]:
    key, quantum = make_key("ES384", "workload ES384"), make_key("ML-DSA-87", "workload pq 87")
    svid = root.leaf(key)
    leaf = PQ_87.pq_leaf(quantum, svid[0])
    return forge([Signer.from_chain(key, svid), Signer.from_chain(quantum, leaf)], PAYLOAD)


def profile_edges() -> None:
    """Limits of each profile."""
    alone, bound = forge([A], PAYLOAD), forge([B], PAYLOAD)
    incomplete = "hybrid_incomplete"
    one("profile/hybrid-ecdsa-alone", "One valid signature never satisfies hybrid.", incomplete, alone, HYBRID)
    one("profile/pq-ecdsa-alone", "The profile pq needs ML-DSA.", incomplete, alone, PQ_ONLY)
    one("profile/classical-ecdsa-alone", "The profile classical needs no more.", "ok", alone)
    one("profile/hybrid-leaf-alone", "Chain B without chain A.", incomplete, bound, HYBRID)
    one("profile/pq-leaf-alone", "Chain B without chain A verifies to the post-quantum bundle.", "ok", bound, PQ_ONLY)
    comment = "A lone chain B leaf never counts as an SVID: it is judged by the post-quantum bundle alone."
    swapped = {**PQ_ONLY, "spiffe": f"{DOMAIN}=prod-pq", "pq": f"{DOMAIN}=prod-mldsa-svid"}
    one("profile/pq-leaf-alone-under-spiffe", comment, "chain_untrusted{pq}", bound, swapped)
    comment = "An ML-DSA SVID never counts as a chain B leaf: it is judged by the SPIFFE bundle alone."
    swapped = {**PQ_ONLY, "pq": f"{DOMAIN}=prod-mldsa-svid"}
    svid = forge([_ml_dsa_svid("ML-DSA-65")], PAYLOAD)
    one("profile/pq-mldsa-svid-under-pq", comment, "chain_untrusted{pq}", svid, swapped)
    one(
        "profile/pq-mldsa-44-svid",
        "An SVID may be ML-DSA-44.",
        "ok",
        forge([_ml_dsa_svid("ML-DSA-44")], PAYLOAD),
        {**PQ_SVID, "profile": "pq"},
    )
    weak = make_key("ML-DSA-44", "workload pq 44")
    leaf = Signer.from_chain(weak, PQ.pq_leaf(weak, SVID[0]))
    one("profile/hybrid-mldsa-44-leaf", "A chain B leaf may not.", "alg_not_allowed", forge([A, leaf], PAYLOAD), HYBRID)
    one("profile/pq-mldsa-44-leaf-alone", "Nor may a lone one.", "alg_not_allowed", forge([leaf], PAYLOAD), PQ_ONLY)
    broken = forge([A, B], PAYLOAD)
    with_signature(broken, 1, flip(broken["signatures"][1]["signature"]))
    one("profile/classical-b-broken", "Under classical nobody looks at chain B.", "ok", broken)
    _unchecked_a()


def _unchecked_a() -> None:
    expired = ROOT.leaf(KEY, not_before=NOW - 2 * HOUR, not_after=NOW - HOUR)
    stale = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, expired[0]))
    document = forge([Signer.from_chain(KEY, expired), stale], PAYLOAD)
    with_signature(document, 0, flip(document["signatures"][0]["signature"]))
    comment = "Under pq chain A is unchecked but for the binding: it is expired, untrusted, and its signature broken."
    headers_ = {**PQ_ONLY, "spiffe": f"{DOMAIN}=stranger-p256"}
    one("profile/pq-a-unchecked", comment, "ok", document, headers_)
    one(
        "profile/hybrid-a-unchecked",
        "Under hybrid the same is refused.",
        "chain_untrusted{classical}",
        document,
        {**headers_, "profile": "hybrid"},
    )
    other = Signer.from_chain(PQ_KEY, PQ.pq_leaf(PQ_KEY, NEIGHBOUR_SVID[0]))
    comment = "Under pq chain A must still be the one that chain B is bound to."
    one("profile/pq-a-other-svid", comment, "chain_binding_mismatch", forge([A, other], PAYLOAD), PQ_ONLY)
