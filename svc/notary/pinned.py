"""
Verification of envelopes whose keys are pinned instead of certified: licences and bootstrap packages.

Owns the same order of checks as :mod:`svc.notary.verification`, with a list of known keys in the place of the chains.
Knows nothing of where the list comes from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from svc.notary.chains import CLASSICAL, POST_QUANTUM
from svc.notary.envelope import Envelope
from svc.notary.errors import AlgNotAllowed, ChainUntrusted, HybridIncomplete, Malformed
from svc.notary.headers import check_headers, check_set
from svc.notary.keys import verify_raw
from svc.notary.profile import POST_QUANTUM_ALGORITHMS
from svc.notary.verification import read_payload


@dataclass(frozen=True)
class PinnedEvidence:
    """
    What the signatures of pinned keys prove. Only :func:`verify_pinned` makes it.

    Attributes:
        payload: the octets that were signed.
        claims: the payload as an object.
        kids: the thumbprints of the keys that signed, in the order of the envelope.
    """

    payload: bytes = field(repr=False)
    claims: Mapping[str, object] = field(repr=False, hash=False)
    kids: tuple[str, ...]


def verify_pinned(
    envelope: Envelope | bytes,
    *,
    typ: str,
    keys: Mapping[str, PublicKeyTypes],
    sets: Collection[tuple[str, ...]],
) -> PinnedEvidence:
    """
    Verify an envelope under raw keys that the verifier already has.

    Args:
        envelope: the envelope, or its octets.
        typ: the kind of artefact that is expected.
        keys: the pinned keys by RFC 7638 thumbprint, which is the protected ``kid``.
        sets: the sets of algorithms that are accepted, each sorted, as ``("Ed25519", "ML-DSA-87")``; all signatures of
            the set must verify.

    Returns:
        The evidence.

    Raises:
        NotaryError: the subclass that names the first failed check.
    """
    opened = envelope if isinstance(envelope, Envelope) else Envelope.parse(envelope)
    check_headers(opened.headers, typ)
    check_set(opened.headers)
    _check_accepted(opened, sets)
    kids = [_kid(opened, index) for index in range(len(opened.signatures))]
    claims = read_payload(opened.payload, typ)
    for entry, kid in zip(opened.signatures, kids, strict=True):
        if kid not in keys:
            role = POST_QUANTUM if entry.alg in POST_QUANTUM_ALGORITHMS else CLASSICAL
            raise ChainUntrusted(chain=role, issuer=typ, cause=f"the key {kid} is not pinned")
    for entry, kid in zip(opened.signatures, kids, strict=True):
        verify_raw(entry.alg, keys[kid], opened.signing_input(entry), entry.signature)
    return PinnedEvidence(opened.payload, claims.members, tuple(kids))


def _check_accepted(envelope: Envelope, sets: Collection[tuple[str, ...]]) -> None:
    present = envelope.headers[0].algorithms
    if present in sets:
        return
    for accepted in sets:
        missing = set(accepted) - set(present)
        if set(present) < set(accepted):
            raise HybridIncomplete(profile="pinned keys", missing=f"a signature with {' and '.join(sorted(missing))}")
    raise AlgNotAllowed(alg=", ".join(present), detail="this kind of artefact is signed with other algorithms")


def _kid(envelope: Envelope, index: int) -> str:
    entry = envelope.signatures[index]
    where = f"signatures[{index}]"
    if entry.x5c or entry.protected.thumbprint is not None:
        raise Malformed(where=where, defect="certificates are forbidden beside a pinned key")
    if entry.protected.kid is None:
        raise Malformed(where=where, defect="the member kid is missing")
    return entry.protected.kid
