"""
Envelopes without what they share.

All receipts of a generation carry the same certificates, and each carries its payload a second time in base64. This
module cuts both out of an envelope and puts them back, octet for octet; what cannot be cut that way is left whole.
Knows the places of certificates in JSON (``signatures[*].header.x5c``, RFC 7515, section 4.1.6) and nothing of their
meaning.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from svc import strictjson

#: Stands in a cut for the payload; other numbers are positions in the list of certificates.
PAYLOAD: Final = -1


@dataclass(frozen=True)
class Skeleton:
    """
    An envelope with holes.

    Args:
        octets: what is left of it.
        cuts: the holes in ascending order: (offset in ``octets``, what was there).
        certificates: DER of the certificates that were cut out, each once.
    """

    octets: bytes
    cuts: tuple[tuple[int, int], ...]
    certificates: tuple[bytes, ...]

    @classmethod
    def of(cls, envelope: bytes, payload: bytes | None = None) -> Skeleton:
        """
        Cut an envelope.

        Args:
            envelope: its JSON octets.
            payload: what the envelope's payload decodes to, where that is kept elsewhere too.

        Returns:
            A skeleton whose :meth:`filled` is ``envelope``.
        """
        skeleton = _without(envelope, payload, _certificates(envelope))
        return skeleton if skeleton.filled(payload or b"") == envelope else cls(envelope, (), ())

    def filled(self, payload: bytes) -> bytes:
        """
        Put back what was cut out.

        Args:
            payload: as it was given to :meth:`of`.

        Returns:
            The envelope's octets.
        """
        return filled(self.octets, self.cuts, self.certificates, payload)

    def cuts_text(self) -> str:
        """
        Write the cuts.

        Returns:
            Text that :func:`read_cuts` reads.
        """
        return json.dumps(self.cuts, separators=(",", ":"))


def read_cuts(text: str) -> tuple[tuple[int, int], ...]:
    """
    Read cuts.

    Args:
        text: as :meth:`Skeleton.cuts_text` wrote it.

    Returns:
        The cuts.
    """
    return tuple((offset, what) for offset, what in json.loads(text))


def filled(octets: bytes, cuts: Sequence[tuple[int, int]], certificates: Sequence[bytes], payload: bytes) -> bytes:
    """
    Fill a skeleton.

    Args:
        octets: what is left of the envelope.
        cuts: its holes.
        certificates: DER, by position.
        payload: the payload.

    Returns:
        The envelope's octets.
    """
    parts: list[bytes] = []
    end = 0
    for offset, what in cuts:
        parts.append(octets[end:offset])
        parts.append(_payload_text(payload) if what == PAYLOAD else base64.b64encode(certificates[what]))
        end = offset
    parts.append(octets[end:])
    return b"".join(parts)


class Cutter:
    """
    Cuts one envelope after another.

    Envelopes of one generation carry the same certificates, so those of the envelope before are looked for first, which
    takes no reading of JSON. What is found that way is what stands there, whatever else the envelope says.
    """

    def __init__(self) -> None:
        self._before: list[Certificate] = []

    def cut(self, envelope: bytes, payload: bytes | None = None) -> Skeleton:
        """
        Cut an envelope.

        Args:
            envelope: as :meth:`Skeleton.of` takes it.
            payload: as there.

        Returns:
            A skeleton whose :meth:`Skeleton.filled` is ``envelope``.
        """
        if self._before and _all_there(self._before, envelope):
            return _without(envelope, payload, self._before)
        skeleton = Skeleton.of(envelope, payload)
        self._before = _certificates(envelope) if skeleton.certificates else []
        return skeleton


#: The text of a certificate in an envelope, and its DER.
Certificate = tuple[bytes, bytes]


def _without(envelope: bytes, payload: bytes | None, certificates: Sequence[Certificate]) -> Skeleton:
    """Cut out a payload, and certificates in the order in which they stand."""
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
    return Skeleton(b"".join(parts), tuple(cuts), tuple(numbers))


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


def _all_there(certificates: Sequence[Certificate], envelope: bytes) -> bool:
    position = 0
    for text, _der in certificates:
        position = envelope.find(b'"' + text + b'"', position) + 1
        if not position:
            return False
    return True


def _certificates(envelope: bytes) -> list[Certificate]:
    """The certificates in the one spelling that can be restored; others stay where they are."""
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
        # Envelopes come from this program; one that is not strict JSON is kept as it is and judged by who reads it.
        return
    for signature in signatures if isinstance(signatures, list) else ():
        header = signature.get("header") if isinstance(signature, dict) else None
        chain = header.get("x5c") if isinstance(header, dict) else None
        yield from (text for text in (chain if isinstance(chain, list) else ()) if isinstance(text, str))


def _payload_text(payload: bytes) -> bytes:
    return base64.urlsafe_b64encode(payload).rstrip(b"=")
