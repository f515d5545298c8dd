"""
The signature envelope ``svc-jws/1``: a JWS in General JSON Serialization with one or two signatures.

Owns the octets (RFC 7515, section 7.2.1): parse, serialise, sign. The payload is carried verbatim, so there is no
canonical form of it. Knows nothing of trust; a parsed envelope has the right shape and nothing more, and only
:mod:`svc.notary.verification` says whether it may be believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from svc.notary.errors import Malformed, SignersUnsuitable, TooLarge
from svc.notary.headers import MAX_SIGNATURES, ProtectedHeader, check_unprotected, refuse_members
from svc.notary.keys import Signer
from svc.notary.x5c import texts_of_x5c
from svc.strictjson import Base64Refused, JsonRefused, b64u_decode, b64u_encode, dumps, loads_object

#: The largest envelope: an ML-DSA-87 chain of eight, a head of 64 KiB and its salts still fit.
MAX_ENVELOPE: Final = 256 * 1024

#: Members of the flattened serialization (RFC 7515, 7.2.2), which must not stand beside ``signatures``.
_FLATTENED: Final = ("protected", "header", "signature")
_RESERVED: Final = frozenset({"payload", "signatures", *_FLATTENED})


@dataclass(frozen=True)
class SignatureEntry:
    """
    One signature of an envelope.

    Attributes:
        protected: the header under the signature.
        x5c: the certificates of the unprotected header as text; empty for a raw key.
        signature: the raw signature.
    """

    protected: ProtectedHeader
    x5c: tuple[str, ...] = field(repr=False)
    signature: bytes = field(repr=False)

    @property
    def alg(self) -> str:
        """The algorithm that the protected header names."""
        return self.protected.alg

    @classmethod
    def from_object(cls, value: object, where: str) -> SignatureEntry:
        """
        Read one element of ``signatures``.

        Args:
            value: the element.
            where: its place, for the error.

        Returns:
            The entry.

        Raises:
            Malformed: for a missing, mistyped or forbidden member.
        """
        if not isinstance(value, dict):
            raise Malformed(where=where, defect="not an object")
        protected = ProtectedHeader.parse(value.get("protected"), f"{where}.protected")
        header = value.get("header", {})
        if not isinstance(header, dict):
            raise Malformed(where=f"{where}.header", defect="not an object")
        check_unprotected(header, f"{where}.header")
        x5c = texts_of_x5c(header["x5c"], f"{where}.header.x5c") if "x5c" in header else ()
        return cls(protected, x5c, _octets(value.get("signature"), f"{where}.signature"))

    def to_object(self) -> dict[str, object]:
        """
        Give the element of ``signatures``.

        Returns:
            A JSON object; without ``header`` for a raw key.
        """
        members: dict[str, object] = {"protected": self.protected.text}
        if self.x5c:
            members["header"] = {"x5c": list(self.x5c)}
        members["signature"] = b64u_encode(self.signature)
        return members


@dataclass(frozen=True)
class Envelope:
    """
    A payload with its signatures, not verified.

    Attributes:
        payload: the octets that were signed over.
        signatures: one or two, in the order of the document.
        extra: other top-level members, which no signature covers.
    """

    payload: bytes = field(repr=False)
    signatures: tuple[SignatureEntry, ...]
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, data: bytes, *, max_bytes: int = MAX_ENVELOPE) -> Envelope:
        """
        Read an envelope: its size, its JSON and its shape, in this order.

        Args:
            data: the document.
            max_bytes: the largest accepted size.

        Returns:
            The envelope.

        Raises:
            TooLarge: beyond ``max_bytes``.
            Malformed: for JSON that is not strict, the flattened or compact serialization, and a missing, mistyped or
                forbidden member.
        """
        if len(data) > max_bytes:
            raise TooLarge(size=len(data), limit=max_bytes)
        try:
            document = loads_object(data, max_bytes=max_bytes)
        except JsonRefused as error:
            raise Malformed(where="the document", defect=error.defect) from error
        return cls.from_object(document)

    @classmethod
    def from_object(cls, document: Mapping[str, object]) -> Envelope:
        """
        Read an envelope that is a member of another JSON document.

        Args:
            document: the object, out of a strict parser that has bounded it.

        Returns:
            The envelope.

        Raises:
            Malformed: as in :meth:`parse`.
        """
        refuse_members(document, _FLATTENED, "the document")
        payload = _octets(document.get("payload"), "payload")
        entries = document.get("signatures")
        if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_SIGNATURES:
            raise Malformed(where="signatures", defect=f"not an array of 1 to {MAX_SIGNATURES} signatures")
        signatures = tuple(
            SignatureEntry.from_object(entry, f"signatures[{index}]") for index, entry in enumerate(entries)
        )
        return cls(payload, signatures, {name: value for name, value in document.items() if name not in _RESERVED})

    @property
    def headers(self) -> tuple[ProtectedHeader, ...]:
        """The protected headers in the order of the signatures."""
        return tuple(entry.protected for entry in self.signatures)

    def with_extra(self, **members: object) -> Envelope:
        """
        Add top-level members that no signature covers, as ``disclosures``.

        Args:
            members: JSON values by name.

        Returns:
            A new envelope.

        Raises:
            ValueError: for a name that the serialization itself uses.
        """
        taken = sorted(_RESERVED & set(members))
        if taken:
            raise ValueError(f"{taken[0]} is a member of the envelope itself")
        return replace(self, extra={**self.extra, **members})

    def signing_input(self, entry: SignatureEntry) -> bytes:
        """
        Give the octets that a signature runs over (RFC 7515, 5.1 step 8).

        Args:
            entry: one of the signatures.

        Returns:
            ASCII octets.
        """
        return f"{entry.protected.text}.{b64u_encode(self.payload)}".encode("ascii")

    def to_object(self) -> dict[str, object]:
        """
        Give the envelope as a JSON object.

        Returns:
            The members ``payload`` and ``signatures``, then the extra ones.
        """
        signatures = [entry.to_object() for entry in self.signatures]
        return {"payload": b64u_encode(self.payload), "signatures": signatures, **self.extra}

    def serialize(self, *, max_bytes: int = MAX_ENVELOPE) -> bytes:
        """
        Write the envelope.

        Args:
            max_bytes: the largest document that a verifier accepts.

        Returns:
            Compact JSON that :meth:`parse` reads back to an equal envelope.

        Raises:
            TooLarge: where no verifier would read it.
        """
        data = dumps(self.to_object())
        if len(data) > max_bytes:
            raise TooLarge(size=len(data), limit=max_bytes)
        return data


def sign_envelope(payload: bytes, typ: str, signers: Sequence[Signer]) -> Envelope:
    """
    Sign a payload with every signer, each header naming the whole set.

    Args:
        payload: the octets, normally JSON.
        typ: the kind of artefact.
        signers: one, or one classical and one ML-DSA.

    Returns:
        The envelope with its signatures in the order of the set.

    Raises:
        SignersUnsuitable: for no signers, more than two, or two of one kind.
    """
    ordered = sorted(signers, key=lambda signer: signer.alg)
    if not 1 <= len(ordered) <= MAX_SIGNATURES:
        raise SignersUnsuitable(detail=f"{len(ordered)} signers")
    if len({signer.post_quantum for signer in ordered}) != len(ordered):
        raise SignersUnsuitable(detail=f"two keys of one kind: {', '.join(signer.alg for signer in ordered)}")
    algorithms = [signer.alg for signer in ordered]
    encoded = b64u_encode(payload)
    entries = []
    for signer in ordered:
        header = ProtectedHeader.create(
            alg=signer.alg,
            typ=typ,
            algorithms=algorithms,
            thumbprint=signer.thumbprint,
            pinned=not signer.chain,
        )
        signature = signer.sign(f"{header.text}.{encoded}".encode("ascii"))
        entries.append(SignatureEntry(header, signer.x5c, signature))
    return Envelope(payload, tuple(entries))


def _octets(value: object, where: str) -> bytes:
    try:
        return b64u_decode(value)
    except Base64Refused as error:
        raise Malformed(where=where, defect=error.defect) from error
