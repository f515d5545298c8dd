"""
The protected header of a signature, and the rules that bind all headers of an envelope together.

Owns the members ``alg``, ``typ``, ``crit``, ``svc-set``, ``x5t#S256`` and ``kid`` and the names that must not appear
(RFC 7515, section 4). Knows nothing of certificates and keys: that a thumbprint fits is checked where the key is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from svc.notary.errors import AlgNotAllowed, CriticalUnknown, Malformed, SetMismatch, WrongType
from svc.notary.profile import CLASSICAL_ALGORITHMS, POST_QUANTUM_ALGORITHMS
from svc.strictjson import Base64Refused, JsonRefused, b64u_decode, b64u_encode, dumps, loads_object

#: A protected header of ours has about 150 octets; the rest is room for unknown members.
MAX_PROTECTED: Final = 4096
#: One classical and one ML-DSA signature.
MAX_SIGNATURES: Final = 2

_THUMBPRINT: Final = "x5t#S256"
_SET: Final = "svc-set"
#: Members that point at keys or change the payload's encoding; the format has one way for each (RFC 7515, RFC 7797).
_FORBIDDEN: Final = ("jku", "x5u", "jwk", "b64", "x5t")
_FORBIDDEN_PROTECTED: Final = (*_FORBIDDEN, "x5c")
#: What must be signed may not stand unsigned, and no member may stand in both headers (RFC 7515, 7.2.1).
_FORBIDDEN_UNPROTECTED: Final = (*_FORBIDDEN, "alg", "typ", "crit", _SET, _THUMBPRINT, "kid")


@dataclass(frozen=True)
class ProtectedHeader:
    """
    A protected header whose members have the right types.

    Attributes:
        text: base64url as it was received, over which the signature runs.
        alg: the algorithm.
        typ: the kind of artefact.
        crit: the critical members.
        algorithms: ``svc-set``, the algorithms of all signatures.
        thumbprint: ``x5t#S256``, or None.
        kid: the thumbprint of a pinned raw key, or None.
    """

    text: str = field(repr=False)
    alg: str
    typ: str
    crit: tuple[str, ...]
    algorithms: tuple[str, ...]
    thumbprint: str | None
    kid: str | None

    @classmethod
    def parse(cls, text: object, where: str) -> ProtectedHeader:
        """
        Read a protected header.

        Args:
            text: base64url of a JSON object.
            where: its place, for the error.

        Returns:
            The header; whether its values are acceptable is checked by :func:`check_headers`.

        Raises:
            Malformed: for a missing, mistyped or forbidden member.
        """
        try:
            members = loads_object(b64u_decode(text), max_bytes=MAX_PROTECTED)
        except (Base64Refused, JsonRefused) as error:
            raise Malformed(where=where, defect=error.defect) from error
        refuse_members(members, _FORBIDDEN_PROTECTED, where)
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
    def create(cls, *, alg: str, typ: str, algorithms: Sequence[str], thumbprint: str, pinned: bool) -> ProtectedHeader:
        """
        Make the header of a signature.

        Args:
            alg: the algorithm of the key.
            typ: the kind of artefact.
            algorithms: the algorithms of all signatures, in any order.
            thumbprint: of the leaf certificate, or of the raw key.
            pinned: whether the key is a pinned raw key.

        Returns:
            The header with its text.
        """
        name = "kid" if pinned else _THUMBPRINT
        ordered = sorted(algorithms)
        members = {"alg": alg, "typ": typ, name: thumbprint, _SET: ordered, "crit": [_SET]}
        return cls(
            b64u_encode(dumps(members)),
            alg,
            typ,
            (_SET,),
            tuple(ordered),
            None if pinned else thumbprint,
            thumbprint if pinned else None,
        )


def check_unprotected(members: Mapping[str, object], where: str) -> None:
    """
    Refuse an unprotected header that carries what must be signed.

    Args:
        members: the members of the header.
        where: its place, for the error.

    Raises:
        Malformed: with the first forbidden name.
    """
    refuse_members(members, _FORBIDDEN_UNPROTECTED, where)


def refuse_members(members: Mapping[str, object], forbidden: Sequence[str], where: str) -> None:
    """
    Refuse an object that has one of the named members.

    Args:
        members: the object.
        forbidden: names that must be absent.
        where: its place, for the error.

    Raises:
        Malformed: with the first such name in ``defect``.
    """
    for name in forbidden:
        if name in members:
            raise Malformed(where=where, defect=f"the member {name} is forbidden")


def check_headers(headers: Sequence[ProtectedHeader], typ: str) -> None:
    """
    Check type, critical members and algorithm of each header, header by header (RFC 8725, 3.1 and 3.11).

    Args:
        headers: the protected headers in the order of the signatures.
        typ: the one type that is accepted, compared exactly.

    Raises:
        WrongType: for another type.
        CriticalUnknown: where the critical members are not exactly ``svc-set``.
        AlgNotAllowed: for an algorithm that the format does not have, ``none`` and HMAC among them.
    """
    for header in headers:
        if header.typ != typ:
            raise WrongType(found=header.typ, expected=typ)
        if header.crit != (_SET,):
            raise CriticalUnknown(found=", ".join(header.crit) or "none")
        if header.alg not in CLASSICAL_ALGORITHMS and header.alg not in POST_QUANTUM_ALGORITHMS:
            raise AlgNotAllowed(alg=header.alg, detail="the format does not know it")


def check_set(headers: Sequence[ProtectedHeader]) -> None:
    """
    Check that no signature was added, removed or taken from another envelope.

    Args:
        headers: the protected headers in the order of the signatures.

    Raises:
        SetMismatch: where a header announces anything but the algorithms present in ASCII order, or two signatures are
            of one kind.
    """
    present = tuple(sorted(header.alg for header in headers))
    for header in headers:
        if header.algorithms != present:
            announced = ", ".join(header.algorithms)
            raise SetMismatch(detail=f"{header.alg} announces {announced}, present are {', '.join(present)}")
    for kind in (CLASSICAL_ALGORITHMS, POST_QUANTUM_ALGORITHMS):
        if sum(alg in kind for alg in present) > 1:
            raise SetMismatch(detail=f"two signatures are of one kind: {', '.join(present)}")


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
