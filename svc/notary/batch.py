"""
Receipts that are signed together: one envelope over the Merkle root of a batch, and in each receipt the way to it.

Owns the format: the payload of a batch, the entries of its tree, the inclusion of a receipt as JSON and as octets for a
database, and the artifact that is served. A receipt that was signed alone is an envelope of its own;
:mod:`svc.notary.receiptcheck` verifies both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE, required_octets, sign_envelope
from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.ids import NONCE_BYTES, RECEIPT_PREFIX, new_nonce
from svc.envelope.keys import Signer
from svc.identity import SpiffeID
from svc.notary.merkle import HASH_FUNCTIONS, HashFunction, build_tree, leaf_hash, path_length
from svc.notary.receipt import Disclosures, ReceiptDraft
from svc.strictjson import b64u_encode, dumps

#: A receipt of its own is no batch.
MIN_BATCH: Final = 2
#: A path then has at most 8 nodes, and a verifier that was sent one receipt does no more work for it.
MAX_BATCH: Final = 256
MAX_PATH: Final = 8
#: Seconds by which a batch may be issued after a receipt in it.
MAX_DELAY: Final = 60
#: The most octets by which a receipt of a batch is longer than the same receipt signed alone: the payload of the batch
#: with an issuer of 2,048 octets, and an inclusion with nodes of SHA-384, both in base64.
BATCH_ROOM: Final = 4096
_BLIND_BYTES: Final = 32
#: Octets of the nodes of a path, by hash function.
_NODE_BYTES: Final = (32, 48)


@dataclass(frozen=True, slots=True)
class Inclusion:
    """
    The place of a receipt in its batch.

    Attributes:
        index: from 0.
        size: the number of receipts in the batch.
        blind: 32 random octets in front of the payload, which keep a neighbour from guessing it by its hash.
        path: the hashes on the way to the root, the lowest first.
    """

    index: int
    size: int
    blind: bytes = field(repr=False)
    path: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def from_object(cls, value: object) -> Inclusion:
        """
        Read the member ``inclusion`` of an artifact.

        Raises:
            Malformed: for another shape, a size that no batch has, and a path or node that no batch of any size has.
        """
        if not isinstance(value, dict):
            raise Malformed(where="inclusion", defect="not an object")
        index, size, path = value.get("index"), value.get("size"), value.get("path")
        if type(index) is not int or index < 0:
            raise Malformed(where="inclusion.index", defect="not an integer of at least 0")
        if type(size) is not int or not MIN_BATCH <= size <= MAX_BATCH:
            raise Malformed(where="inclusion.size", defect=f"not an integer from {MIN_BATCH} to {MAX_BATCH}")
        blind = _octets(value.get("blind"), "inclusion.blind", (_BLIND_BYTES,))
        if not isinstance(path, list) or len(path) > MAX_PATH:
            raise Malformed(where="inclusion.path", defect=f"not an array of at most {MAX_PATH} hashes")
        nodes = tuple(_octets(node, f"inclusion.path[{number}]", _NODE_BYTES) for number, node in enumerate(path))
        return cls(index, size, blind, nodes)

    def to_object(self) -> dict[str, object]:
        """Return the member ``inclusion`` of an artifact."""
        path = [b64u_encode(node) for node in self.path]
        return {"index": self.index, "size": self.size, "blind": b64u_encode(self.blind), "path": path}

    @classmethod
    def from_octets(cls, data: bytes) -> Inclusion:
        """
        Read what :meth:`to_octets` wrote.

        Raises:
            Malformed: for any other octets.
        """
        if len(data) <= 2 + _BLIND_BYTES or data[0] > data[1] or data[1] < MIN_BATCH - 1:
            raise Malformed(where="stored inclusion", defect="no index, size and blind")
        index, size, path = data[0], data[1] + 1, data[2 + _BLIND_BYTES :]
        each, rest = divmod(len(path), path_length(index, size))
        if rest or each not in _NODE_BYTES:
            raise Malformed(where="stored inclusion", defect=f"a path of {len(path)} octets for {index} of {size}")
        nodes = tuple(path[start : start + each] for start in range(0, len(path), each))
        return cls(index, size, data[2 : 2 + _BLIND_BYTES], nodes)

    def to_octets(self) -> bytes:
        """Write the compact form for a database: index, size - 1, blind and path, at most 418 octets."""
        return b"".join((bytes((self.index, self.size - 1)), self.blind, *self.path))


@dataclass(frozen=True, slots=True)
class SignedBatch:
    """
    A signed batch.

    ``envelope`` is the serialized envelope that all receipts of the batch share; ``inclusions`` are in the order of the
    receipts.
    """

    envelope: bytes
    inclusions: tuple[Inclusion, ...]


def sign_batch(
    drafts: Sequence[ReceiptDraft],
    issuer: SpiffeID,
    signers: Sequence[Signer],
    issued_at: int,
    random: Callable[[int], bytes],
) -> SignedBatch:
    """
    Sign receipts of one credential set together.

    Args:
        drafts: 2 to 256 receipts, none issued more than ``MAX_DELAY`` seconds before ``issued_at``; older ones can only
            be signed alone.
        issuer: the statement's subject.
        signers: the keys that sign each of them.
        issued_at: the time as a NumericDate; where a receipt is later, since the clock was set back, the batch is
            issued at the time of that receipt.
        random: returns that many secure random octets.

    Raises:
        ValueError: for another number of receipts, and for one that is too old.
        EnvelopeError: where the signers cannot make one envelope.
    """
    size = len(drafts)
    if not MIN_BATCH <= size <= MAX_BATCH:
        raise ValueError(f"a batch has {MIN_BATCH} to {MAX_BATCH} receipts, not {size}")
    issued_at = max(issued_at, *(draft.issued_at for draft in drafts))
    oldest = min(draft.issued_at for draft in drafts)
    if issued_at - oldest > MAX_DELAY:
        raise ValueError(f"a receipt is {issued_at - oldest} s old, at most {MAX_DELAY} s can be in a batch")
    octets = random(NONCE_BYTES + _BLIND_BYTES * size)
    blinds = [octets[start : start + _BLIND_BYTES] for start in range(NONCE_BYTES, len(octets), _BLIND_BYTES)]
    alg = batch_hash(signer.alg for signer in signers)
    new_hash = HASH_FUNCTIONS[alg]
    leaves = [receipt_leaf(blind, draft.payload, new_hash) for blind, draft in zip(blinds, drafts, strict=True)]
    root, paths = build_tree(leaves, new_hash)
    claims = {
        "iss": str(issuer),
        "aud": naming.AUDIENCE_BATCH,
        "iat": issued_at,
        "jti": new_nonce(octets[:NONCE_BYTES]),
        "svc": {"v": 1, "alg": alg, "size": size, "root": b64u_encode(root)},
    }
    envelope = sign_envelope(dumps(claims), naming.TYPE_BATCH, signers).serialize()
    inclusions = tuple(
        Inclusion(index, size, blind, path) for index, (blind, path) in enumerate(zip(blinds, paths, strict=True))
    )
    return SignedBatch(envelope, inclusions)


def batch_hash(algorithms: Iterable[str]) -> str:
    """Return the hash of a batch by the algorithms of its signatures: SHA-384 exactly where ML-DSA-87 is among them."""
    return "sha-384" if "ML-DSA-87" in algorithms else "sha-256"


def receipt_leaf(blind: bytes, payload: bytes, new_hash: HashFunction) -> bytes:
    """Compute the leaf of a receipt from its blind and its payload."""
    return leaf_hash(blind + RECEIPT_PREFIX + payload, new_hash)


def batch_artifact(
    payload: bytes, inclusion: Inclusion, batch_envelope: bytes, disclosures: Disclosures | None
) -> bytes:
    """
    Write a receipt of a batch as it is served; the envelope is copied as it is.

    Args:
        payload: of the receipt.
        inclusion: of the receipt.
        batch_envelope: the serialized envelope of the batch.
        disclosures: the salts, None where there are none or where they may not be sent.

    Raises:
        EnvelopeError: for more octets than a verifier reads.
    """
    salts = b',"disclosures":' + dumps(disclosures) if disclosures else b""
    data = b'{"payload":"%b","inclusion":%b,"batch":%b%b}' % (
        b64u_encode(payload).encode("ascii"),
        dumps(inclusion.to_object()),
        batch_envelope,
        salts,
    )
    if len(data) > MAX_ENVELOPE:
        raise EnvelopeError("too_large", size=len(data), limit=MAX_ENVELOPE)
    return data


def _octets(value: object, where: str, lengths: Sequence[int]) -> bytes:
    octets = required_octets(value, where)
    if len(octets) not in lengths:
        raise Malformed(where=where, defect=f"{len(octets)} octets")
    return octets
