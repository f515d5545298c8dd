"""
Envelopes without what they share.

All receipts of one set of credentials carry the same certificates, and each carries its payload a second time in
base64. Both are cut out of an envelope and put back, octet for octet; what cannot be cut that way is stored whole.
Finds certificates by their place in JSON (``signatures[*].header.x5c``, RFC 7515, section 4.1.6), not what they mean.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from svc import strictjson

#: In a cut, the payload; other numbers are positions in the list of certificates.
PAYLOAD: Final = -1


@dataclass(frozen=True)
class CompactEnvelope:
    """
    An envelope without its certificates and its payload.

    Args:
        octets: the rest of it.
        cuts: (offset in ``octets``, what was cut out there), in ascending order.
        certificates: DER of the certificates that were cut out, each once.
    """

    octets: bytes
    cuts: tuple[tuple[int, int], ...]
    certificates: tuple[bytes, ...]

    @classmethod
    def of(cls, envelope: bytes, payload: bytes | None = None) -> CompactEnvelope:
        """Compact an envelope; ``payload`` is what its payload decodes to, where that is stored elsewhere too."""
        compact = _without(envelope, payload, _certificates(envelope))
        return compact if compact.expand(payload or b"") == envelope else cls(envelope, (), ())

    def expand(self, payload: bytes) -> bytes:
        """The envelope's octets; ``payload`` is that of :meth:`of`."""
        return expand(self.octets, self.cuts, self.certificates, payload)

    def cuts_text(self) -> str:
        """The cuts as text, for :func:`read_cuts`."""
        return json.dumps(self.cuts, separators=(",", ":"))


def read_cuts(text: str) -> tuple[tuple[int, int], ...]:
    """Read what :meth:`CompactEnvelope.cuts_text` wrote."""
    return tuple((offset, what) for offset, what in json.loads(text))


def expand(octets: bytes, cuts: Sequence[tuple[int, int]], certificates: Sequence[bytes], payload: bytes) -> bytes:
    """Put certificates and payload back into an envelope's octets."""
    parts: list[bytes] = []
    end = 0
    for offset, what in cuts:
        parts.append(octets[end:offset])
        parts.append(_payload_text(payload) if what == PAYLOAD else base64.b64encode(certificates[what]))
        end = offset
    parts.append(octets[end:])
    return b"".join(parts)


class EnvelopeCompactor:
    """
    Compacts one envelope after another, each as :meth:`CompactEnvelope.of` would.

    The certificates of the previous envelope are searched for first, without parsing JSON: most envelopes carry the
    same ones.
    """

    def __init__(self) -> None:
        self._previous: list[Certificate] = []

    def compact(self, envelope: bytes, payload: bytes | None = None) -> CompactEnvelope:
        """Compact the next envelope; the arguments are those of :meth:`CompactEnvelope.of`."""
        if self._previous:
            compact = _without(envelope, payload, self._previous)
            if sum(what != PAYLOAD for _offset, what in compact.cuts) == len(self._previous):
                return compact
        compact = CompactEnvelope.of(envelope, payload)
        self._previous = _certificates(envelope) if compact.certificates else []
        return compact


#: The text of a certificate in an envelope, and its DER.
Certificate = tuple[bytes, bytes]


def _without(envelope: bytes, payload: bytes | None, certificates: Sequence[Certificate]) -> CompactEnvelope:
    """Cut out a payload, and certificates in their order."""
    found = dict(_found(envelope, payload, certificates))
    numbers: dict[bytes, int] = {}
    cuts: list[tuple[int, int]] = []
    parts: list[bytes] = []
    end = length = 0
    for start in sorted(found):
        text, der = found[start]
        if start < end:
            continue
        parts.append(envelope[end:start])
        length += start - end
        cuts.append((length, PAYLOAD if der is None else numbers.setdefault(der, len(numbers))))
        end = start + len(text)
    parts.append(envelope[end:])
    return CompactEnvelope(b"".join(parts), tuple(cuts), tuple(numbers))


def _found(
    envelope: bytes, payload: bytes | None, certificates: Sequence[Certificate]
) -> Iterator[tuple[int, tuple[bytes, bytes | None]]]:
    if payload:
        text = _payload_text(payload)
        start = envelope.find(b'"' + text + b'"')
        if start >= 0:
            yield start + 1, (text, None)
    position = 0
    for text, der in certificates:
        start = envelope.find(b'"' + text + b'"', position)
        if start >= 0:
            yield start + 1, (text, der)
            position = start + len(text)


def _certificates(envelope: bytes) -> list[Certificate]:
    """The certificates in the one encoding that can be restored; others stay in the envelope."""
    found = []
    for name in _certificate_texts(envelope):
        try:
            text = name.encode("ascii")
            der = base64.b64decode(text, validate=True)
        except (UnicodeEncodeError, binascii.Error):
            continue
        if der and base64.b64encode(der) == text:
            found.append((text, der))
    return found


def _certificate_texts(envelope: bytes) -> Iterator[str]:
    try:
        signatures = strictjson.loads_object(envelope).get("signatures")
    except strictjson.JsonRefused:
        # Envelopes come from this program; one that is not strict JSON is stored whole and verified by its reader.
        return
    for signature in signatures if isinstance(signatures, list) else ():
        header = signature.get("header") if isinstance(signature, dict) else None
        chain = header.get("x5c") if isinstance(header, dict) else None
        yield from (text for text in (chain if isinstance(chain, list) else ()) if isinstance(text, str))


def _payload_text(payload: bytes) -> bytes:
    return base64.urlsafe_b64encode(payload).rstrip(b"=")
