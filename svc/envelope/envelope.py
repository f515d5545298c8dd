"""
The signature envelope ``svc-jws/1``: a JWS in General JSON Serialization with one or two signatures.

Owns the octets (RFC 7515, section 7.2.1): parse, serialize, sign, and the rules that bind all protected headers
together. The payload is carried verbatim, so there is no canonical form of it. A parsed envelope has the right shape
and nothing more; :mod:`svc.notary.verification` verifies it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.keys import Signer
from svc.envelope.profile import CLASSICAL_ALGORITHMS, POST_QUANTUM_ALGORITHMS
from svc.envelope.x5c import texts_of_x5c
from svc.errors import printable
from svc.strictjson import Base64Refused, JsonRefused, b64u_decode, b64u_encode, dumps, loads_object

#: Our protected headers have about 150 octets; the rest is for unknown members.
MAX_PROTECTED: Final = 4096
#: One classical and one ML-DSA signature.
MAX_SIGNATURES: Final = 2

_THUMBPRINT: Final = "x5t#S256"
_SET: Final = "svc-set"
#: Members that point at keys or change the payload's encoding; the format has one way for each (RFC 7515, RFC 7797).
_FORBIDDEN: Final = ("jku", "x5u", "jwk", "b64", "x5t")
_FORBIDDEN_PROTECTED: Final = (*_FORBIDDEN, "x5c")
#: Members that must be in the protected header.
_FORBIDDEN_UNPROTECTED: Final = (*_FORBIDDEN, "alg", "typ", "crit", _SET, _THUMBPRINT, "kid")


@dataclass(frozen=True)
class ProtectedHeader:
    """
    A protected header whose members have the right types.

    ``text`` is base64url as it was received, over which the signature runs; ``algorithms`` is ``svc-set``, the
    algorithms of all signatures; ``thumbprint`` is ``x5t#S256`` and ``kid`` the thumbprint of a raw key, each None
    where absent.
    """

    text: str = field(repr=False)
    alg: str
    typ: str
    crit: tuple[str, ...]
    algorithms: tuple[str, ...]
    thumbprint: str | None
    kid: str | None

    @classmethod
    def parse(cls, text: object, where: str, *, unprotected: Collection[str] = ()) -> ProtectedHeader:
        """
        Read a protected header; :func:`check_headers` checks whether its values are acceptable.

        Args:
            text: base64url of a JSON object.
            where: its position, for the error.
            unprotected: the names in the unprotected header of the same signature; none may be in both, whatever it
                means (RFC 7515, section 5.2 step 4 and 7.2.1).

        Raises:
            Malformed: for a missing, mistyped or forbidden member, and for one that is in both headers.
        """
        try:
            members = loads_object(b64u_decode(text), max_bytes=MAX_PROTECTED)
        except (Base64Refused, JsonRefused) as error:
            raise Malformed(where=where, defect=error.defect) from error
        refuse_members(members, _FORBIDDEN_PROTECTED, where)
        for name in unprotected:
            if name in members:
                raise Malformed(
                    where=where, defect=f"the member {printable(name, 80)} is in the unprotected header too"
                )
        return cls(
            str(text),
            _text(members, "alg", where),
            _text(members, "typ", where),
            _texts(members, "crit", where),
            _texts(members, _SET, where),
            _digest(members, _THUMBPRINT, where),
            _digest(members, "kid", where),
        )

    @classmethod
    def create(
        cls, *, alg: str, typ: str, algorithms: Sequence[str], thumbprint: str, raw_key: bool
    ) -> ProtectedHeader:
        """
        Make the header of a signature; ``thumbprint`` is that of the leaf certificate, or of a raw key where
        ``raw_key``.
        """
        name = "kid" if raw_key else _THUMBPRINT
        ordered = sorted(algorithms)
        members = {"alg": alg, "typ": typ, name: thumbprint, _SET: ordered, "crit": [_SET]}
        return cls(
            b64u_encode(dumps(members)),
            alg,
            typ,
            (_SET,),
            tuple(ordered),
            None if raw_key else thumbprint,
            thumbprint if raw_key else None,
        )


def refuse_members(members: Mapping[str, object], forbidden: Sequence[str], where: str) -> None:
    """Refuse an object that has one of the forbidden members."""
    for name in forbidden:
        if name in members:
            raise Malformed(where=where, defect=f"the member {name} is forbidden")


def check_headers(headers: Sequence[ProtectedHeader], typ: str) -> None:
    """
    Check type, critical members and algorithm of each header, header by header (RFC 8725, 3.1 and 3.11).

    Raises:
        EnvelopeError: for another type, critical members other than ``svc-set``, or an algorithm that the format does
            not have, ``none`` and HMAC among them.
    """
    for header in headers:
        if header.typ != typ:
            raise EnvelopeError("wrong_type", found=header.typ, expected=typ)
        if header.crit != (_SET,):
            raise EnvelopeError("critical_unknown", found=", ".join(header.crit) or "none")
        if header.alg not in CLASSICAL_ALGORITHMS and header.alg not in POST_QUANTUM_ALGORITHMS:
            raise EnvelopeError("alg_not_allowed", alg=header.alg, detail="the format does not define it")


def check_set(headers: Sequence[ProtectedHeader]) -> None:
    """
    Check that no signature was added, removed or taken from another envelope.

    Raises:
        EnvelopeError: where a header announces anything but the algorithms present in ASCII order, or two signatures
            are of one kind.
    """
    present = tuple(sorted(header.alg for header in headers))
    for header in headers:
        if header.algorithms != present:
            announced = ", ".join(header.algorithms)
            raise EnvelopeError(
                "set_mismatch", detail=f"{header.alg} announces {announced}, present are {', '.join(present)}"
            )
    for kind in (CLASSICAL_ALGORITHMS, POST_QUANTUM_ALGORITHMS):
        if sum(alg in kind for alg in present) > 1:
            raise EnvelopeError("set_mismatch", detail=f"two signatures are of one kind: {', '.join(present)}")


def _text(members: Mapping[str, object], name: str, where: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise Malformed(where=where, defect=f"the member {name} is missing or not text")
    return value


def _texts(members: Mapping[str, object], name: str, where: str) -> tuple[str, ...]:
    value = members.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise Malformed(where=where, defect=f"the member {name} is missing or not an array of texts")
    return tuple(value)


def _digest(members: Mapping[str, object], name: str, where: str) -> str | None:
    if name not in members:
        return None
    try:
        digest = b64u_decode(members[name])
    except Base64Refused as error:
        raise Malformed(where=where, defect=f"the member {name}: {error.defect}") from error
    if len(digest) != 32:
        raise Malformed(where=where, defect=f"the member {name} is no SHA-256 digest")
    return b64u_encode(digest)


#: The largest envelope: an ML-DSA-87 chain of eight, a head of 64 KiB and its salts still fit.
MAX_ENVELOPE: Final = 256 * 1024

#: Members of the flattened serialization (RFC 7515, 7.2.2), which must not be beside ``signatures``.
FLATTENED: Final = ("protected", "header", "signature")
_RESERVED: Final = frozenset({"payload", "signatures", *FLATTENED})


@dataclass(frozen=True)
class SignatureEntry:
    """One signature of an envelope; ``x5c`` holds the certificates as text and is empty for a raw key."""

    protected: ProtectedHeader
    x5c: tuple[str, ...] = field(repr=False)
    signature: bytes = field(repr=False)

    @property
    def alg(self) -> str:
        """The algorithm that the protected header names."""
        return self.protected.alg

    @classmethod
    def from_object(cls, value: object, where: str) -> SignatureEntry:
        """Read one element of ``signatures``; ``where`` is its position, for the error."""
        if not isinstance(value, dict):
            raise Malformed(where=where, defect="not an object")
        header = value.get("header", {})
        if not isinstance(header, dict):
            raise Malformed(where=f"{where}.header", defect="not an object")
        refuse_members(header, _FORBIDDEN_UNPROTECTED, f"{where}.header")
        protected = ProtectedHeader.parse(value.get("protected"), f"{where}.protected", unprotected=header)
        x5c = texts_of_x5c(header["x5c"], f"{where}.header.x5c") if "x5c" in header else ()
        return cls(protected, x5c, required_octets(value.get("signature"), f"{where}.signature"))

    def to_object(self) -> dict[str, object]:
        """Return the element of ``signatures``, without ``header`` for a raw key."""
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
        payload: the octets that were signed.
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

        Raises:
            EnvelopeError: for more than ``max_bytes`` octets.
            Malformed: for JSON that is not strict, the flattened or compact serialization, and a missing, mistyped or
                forbidden member.
        """
        return cls.from_object(read_document(data, max_bytes))

    @classmethod
    def from_object(cls, document: Mapping[str, object]) -> Envelope:
        """
        Read an envelope that is a member of another JSON document, which a strict parser with limits has read.

        Raises:
            Malformed: as in :meth:`parse`.
        """
        refuse_members(document, FLATTENED, "the document")
        payload = required_octets(document.get("payload"), "payload")
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
        Return a copy with top-level members that no signature covers, such as ``disclosures``.

        Raises:
            ValueError: for a name that the serialization itself uses.
        """
        taken = sorted(_RESERVED & set(members))
        if taken:
            raise ValueError(f"{taken[0]} is a member of the envelope itself")
        return replace(self, extra={**self.extra, **members})

    def signing_input(self, entry: SignatureEntry) -> bytes:
        """Return the octets that a signature runs over (RFC 7515, 5.1 step 8)."""
        return f"{entry.protected.text}.{b64u_encode(self.payload)}".encode("ascii")

    def to_object(self) -> dict[str, object]:
        """Return the members ``payload`` and ``signatures``, then the extra ones."""
        signatures = [entry.to_object() for entry in self.signatures]
        return {"payload": b64u_encode(self.payload), "signatures": signatures, **self.extra}

    def serialize(self, *, max_bytes: int = MAX_ENVELOPE) -> bytes:
        """
        Write compact JSON that :meth:`parse` reads back to an equal envelope.

        Raises:
            EnvelopeError: for more than ``max_bytes`` octets, which no verifier would read.
        """
        data = dumps(self.to_object())
        if len(data) > max_bytes:
            raise EnvelopeError("too_large", size=len(data), limit=max_bytes)
        return data


def sign_envelope(payload: bytes, typ: str, signers: Sequence[Signer]) -> Envelope:
    """
    Sign a payload with every signer, each header naming the whole set, in the order of the set.

    Args:
        payload: the octets, normally JSON.
        typ: the type of the artifact.
        signers: one, or one classical and one ML-DSA.

    Raises:
        EnvelopeError: for no signers, more than two, or two of one kind.
    """
    ordered = sorted(signers, key=lambda signer: signer.alg)
    if not 1 <= len(ordered) <= MAX_SIGNATURES:
        raise EnvelopeError("signers_unsuitable", detail=f"{len(ordered)} signers")
    if len({signer.post_quantum for signer in ordered}) != len(ordered):
        raise EnvelopeError(
            "signers_unsuitable", detail=f"two keys of one kind: {', '.join(signer.alg for signer in ordered)}"
        )
    algorithms = [signer.alg for signer in ordered]
    encoded = b64u_encode(payload)
    entries = []
    for signer in ordered:
        header = ProtectedHeader.create(
            alg=signer.alg,
            typ=typ,
            algorithms=algorithms,
            thumbprint=signer.thumbprint,
            raw_key=not signer.chain,
        )
        signature = signer.sign(f"{header.text}.{encoded}".encode("ascii"))
        entries.append(SignatureEntry(header, signer.x5c, signature))
    return Envelope(payload, tuple(entries))


def read_document(data: bytes, max_bytes: int) -> dict[str, object]:
    """
    Read the JSON object of an artifact that is not longer than ``max_bytes``.

    Raises:
        EnvelopeError: for more octets.
        Malformed: for JSON that is not strict, or no object.
    """
    if len(data) > max_bytes:
        raise EnvelopeError("too_large", size=len(data), limit=max_bytes)
    try:
        return loads_object(data, max_bytes=max_bytes)
    except JsonRefused as error:
        raise Malformed(where="the document", defect=error.defect) from error


def required_octets(value: object, where: str) -> bytes:
    """Read base64url of a member, whose name is for the error."""
    try:
        return b64u_decode(value)
    except Base64Refused as error:
        raise Malformed(where=where, defect=error.defect) from error
