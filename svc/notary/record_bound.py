"""
The largest size of a record, computed from the limits of the one or two messages that it describes.

Owns the arithmetic of the payload's encoding: what is counted on the wire, and what the same octets take in JSON and in
base64. A receipt that no verifier would read is useless, so an exchange that could need one is not begun.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from svc.envelope.envelope import MAX_ENVELOPE
from svc.notary.batch import BATCH_ROOM
from svc.notary.receipt import REDACTED_ALWAYS, Redaction
from svc.strictjson import dumps

#: Octets of both signatures with headers and chains: ML-DSA-87 with two certificates, and a classical chain of four.
SIGNATURES_ROOM: Final = 40 * 1024
#: The same without the certificates, which a store keeps once.
_BARE_SIGNATURES: Final = 8 * 1024
#: The other octets of a payload: three SPIFFE IDs of 2048 octets, identifiers, TLS, sizes, times, names.
_FIXED: Final = 3 * 2048 + 2048
#: The other octets of a stored row: identifiers, references, indexes, unused space of its pages.
_ROW: Final = 1024
#: An octet of a message takes at most two in JSON: ``"`` and ``\`` are escaped, octets beyond ASCII are two in UTF-8.
_PER_OCTET: Final = 2
#: What a parser counts for a field besides name and value (colon, space, line end).
_FIELD: Final = 4
#: ``{"redacted":"sha-256","digest":"…"}`` with 43 characters, and the brackets, quotes and commas of its field.
_DIGEST: Final = 77
_DIGEST_FIELD: Final = _DIGEST + 6
#: What a parser counts for a user property besides name and value, and what it takes in JSON beyond
#: :data:`_PER_OCTET` for each of these: ``["user-property",["…","…"]],``.
_PAIR: Final = 5
_LONGER_PAIR: Final = 26 - 2 * _PAIR
#: Names and punctuation of the other properties, which occur once each, and their numbers.
_PROPERTIES: Final = 256
#: ``"trailer:":"…",`` with 22 characters and without the digits of the number.
_SALT: Final = 36


@dataclass(frozen=True)
class RecordBound:
    """
    The largest record of a listener.

    Attributes:
        head: octets of the head and the trailers of one message.
        fields: fields of both.
        redaction: what is replaced by digests, which can be longer.
        payload: the most octets of a payload.
        salts: the most octets of the disclosures.
    """

    head: int
    fields: int
    redaction: Redaction = field(default_factory=Redaction)
    payload: int = field(init=False)
    salts: int = field(init=False)

    def __post_init__(self) -> None:
        shortest = min(len(name) for name in REDACTED_ALWAYS | self.redaction.headers)
        redacted = min(self.fields, self.head // (shortest + _FIELD))
        # What a digest takes beyond the octets that a field with an empty value has on the wire.
        longer = max(0, _DIGEST_FIELD + shortest - _PER_OCTET * (shortest + _FIELD))
        message = _PER_OCTET * self.head + redacted * longer
        query = self.redaction.query
        object.__setattr__(self, "payload", _FIXED + 2 * message + (_DIGEST if query else 0))
        salts = (2 * redacted + query) * (_SALT + len(str(self.fields)))
        object.__setattr__(self, "salts", salts + len('{"disclosures":{"request":{},"response":{}}}'))

    def envelope(self, signatures: int = SIGNATURES_ROOM, *, spared: int = 0) -> int:
        """
        Compute the largest document that a verifier gets: the receipt with its disclosures, alone or of a batch.

        Args:
            signatures: octets of the signatures with their headers and chains.
            spared: octets by which the request is smaller than the limit.
        """
        payload = self.payload - _PER_OCTET * spared
        return -(-payload * 4 // 3) + self.salts + signatures + BATCH_ROOM

    @property
    def fits(self) -> bool:
        """Whether every record fits, with signatures of the usual size."""
        return self.envelope() <= MAX_ENVELOPE

    def admits(self, request: int, signatures: int) -> bool:
        """
        Return whether the record of an exchange fits whatever its response is; ``request`` bounds head and trailers of
        the request.
        """
        return self.envelope(signatures, spared=max(0, self.head - request)) <= MAX_ENVELOPE

    @property
    def stored(self) -> int:
        """The most octets that a record takes in a store, see :func:`stored_octets`."""
        return self.payload + self.salts + _BARE_SIGNATURES + _ROW


@dataclass(frozen=True)
class PublishBound:
    """
    The largest record of a PUBLISH.

    Attributes:
        head: octets that the topic and the recorded properties take on the wire, as
            :func:`svc.notary.publish.publish_octets` counts them.
        properties: recorded properties.
        client_id: octets of the client identifier.
        redaction: what is replaced by digests, which can be longer.
        payload: the most octets of a payload.
        salts: the most octets of the disclosures.
    """

    head: int
    properties: int
    client_id: int
    redaction: Redaction = field(default_factory=Redaction)
    payload: int = field(init=False)
    salts: int = field(init=False)

    def __post_init__(self) -> None:
        shortest = min(len(name) for name in REDACTED_ALWAYS | self.redaction.headers)
        pairs = min(self.properties, self.head // _PAIR)
        redacted = min(pairs, self.head // (_PAIR + shortest))
        message = _PER_OCTET * (self.head + self.client_id) + pairs * _LONGER_PAIR + redacted * _DIGEST
        object.__setattr__(self, "payload", _FIXED + _PROPERTIES + message)
        salts = redacted * (_SALT + len(str(self.properties)))
        object.__setattr__(self, "salts", salts + len('{"disclosures":{"request":{}}}'))

    def envelope(self, signatures: int = SIGNATURES_ROOM) -> int:
        """Compute the largest document that a verifier gets, as :meth:`RecordBound.envelope`."""
        return -(-self.payload * 4 // 3) + self.salts + signatures + BATCH_ROOM

    @property
    def fits(self) -> bool:
        """Whether every record fits, with signatures of the usual size."""
        return self.envelope() <= MAX_ENVELOPE

    def of(self, head: int, properties: int) -> PublishBound:
        """Bound the record of one message, which is known before it is forwarded."""
        return PublishBound(head, properties, self.client_id, self.redaction)

    @property
    def stored(self) -> int:
        """The most octets that a record takes in a store, see :func:`stored_octets`."""
        return self.payload + self.salts + _BARE_SIGNATURES + _ROW


def largest_publish(bound: PublishBound) -> int:
    """Find the largest ``head`` with which every record of a PUBLISH fits, 0 where none does."""
    return bisect_right(range(1, bound.head + 1), False, key=lambda head: not replace(bound, head=head).fits)


def largest_limit(key: str, bound: RecordBound) -> int:
    """Find the largest value of one limit (``head`` or ``fields``) with which every record fits, 0 where none does."""
    low, high = 0, getattr(bound, key)
    while low < high:
        middle = (low + high + 1) // 2
        values = {"head": bound.head, "fields": bound.fields, key: middle}
        if RecordBound(**values, redaction=bound.redaction).fits:
            low = middle
        else:
            high = middle - 1
    return low


def stored_octets(payload: bytes, disclosures: Mapping[str, object] | None) -> int:
    """Compute what a record takes in a store without its signatures: a row, its payload and its salts."""
    return _ROW + len(payload) + (len(dumps(disclosures)) if disclosures else 0)
