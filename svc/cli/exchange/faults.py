"""
The faults of ``--inject-faults``: what a dishonest or broken server would send, made here.

Owns how each one is made; the verification knows nothing of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from svc.notary.envelope import Envelope
from svc.notary.errors import NotaryError
from svc.notary.profile import POST_QUANTUM_ALGORITHMS, Profile

NO_STATEMENT: Final = "no-workload-statement"
BAD_STATEMENT: Final = "bad-workload-statement"
FAULTS: Final = (NO_STATEMENT, BAD_STATEMENT)


def with_broken_signature(data: bytes, profile: Profile) -> bytes:
    """
    Flip one bit of a signature that the profile checks.

    Args:
        data: an envelope.
        profile: the local profile: ``pq`` does not look at the classical signature, ``classical`` not at the other.

    Returns:
        The envelope with the last bit of that signature flipped; octets that are no envelope come back as they are.
    """
    try:
        envelope = Envelope.parse(data)
    except NotaryError:  # the verification names the defect
        return data
    wanted = [
        index
        for index, entry in enumerate(envelope.signatures)
        if (entry.alg in POST_QUANTUM_ALGORITHMS) == (profile is Profile.PQ)
    ]
    index = wanted[0] if wanted else 0
    entry = envelope.signatures[index]
    if not entry.signature:
        return data
    flipped = entry.signature[:-1] + bytes([entry.signature[-1] ^ 1])
    signatures = list(envelope.signatures)
    signatures[index] = replace(entry, signature=flipped)
    return replace(envelope, signatures=tuple(signatures)).serialize()
