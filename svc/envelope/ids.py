"""
The identifiers of statements and receipts, and the nonces that clients choose.

Owns how an identifier follows from the payload octets and which spellings of it are read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from svc.envelope.errors import EnvelopeError
from svc.strictjson import Base64Refused, b64u_decode, b64u_encode

_STATEMENT_PREFIX: Final = b"svc-statement/1\0"
#: Hashed before the payload of a receipt, in its identifier and in the tree of a batch.
RECEIPT_PREFIX: Final = b"svc-receipt/1\0"
_RECORD_PREFIX: Final = b"svc-record/1\0"
#: The octets of a nonce and of a ``jti``; as text 22 characters.
NONCE_BYTES: Final = 16
_DIGEST_BYTES: Final = 32
#: Of the time in the identifier of an unsigned record.
_TIME_BYTES: Final = 6


class IdMalformed(EnvelopeError):
    """the artifact identifier is malformed: {defect}"""

    reason = "id_malformed"
    http_status = 404
    hint = "an identifier is the base64url text of a SHA-256 digest, 43 characters without padding"
    defect: str


class NonceMalformed(EnvelopeError):
    """the notary nonce is malformed: {defect}"""

    reason = "nonce_malformed"
    http_status = 400
    hint = "a nonce is 16 random octets in canonical base64url, exactly 22 characters"
    defect: str


def statement_id(payload: bytes) -> str:
    """Compute the identifier of a statement from its payload: 43 characters of base64url."""
    return b64u_encode(hashlib.sha256(_STATEMENT_PREFIX + payload).digest())


def receipt_id(payload: bytes) -> str:
    """Compute the identifier of a receipt from its payload: 43 characters of base64url."""
    return b64u_encode(hashlib.sha256(RECEIPT_PREFIX + payload).digest())


def record_id(payload: bytes, milliseconds: int) -> str:
    """
    Compute the identifier of an unsigned record: 43 characters of base64url that begin with a time, in milliseconds
    since 1970, so that an index has those of one time side by side.
    """
    digest = hashlib.sha256(_RECORD_PREFIX + payload).digest()
    return b64u_encode(milliseconds.to_bytes(_TIME_BYTES, "big") + digest[: _DIGEST_BYTES - _TIME_BYTES])


def identifies(name: str, payload: bytes) -> bool:
    """Whether an identifier is that of a payload, as a receipt or as an unsigned record of any time."""
    if name == receipt_id(payload):
        return True
    try:
        octets = b64u_decode(parse_artifact_id(name))
    except IdMalformed:
        return False
    return name == record_id(payload, int.from_bytes(octets[:_TIME_BYTES], "big"))


def parse_artifact_id(text: object) -> str:
    """
    Read the one canonical spelling of an identifier, as in headers, paths and payloads.

    Raises:
        IdMalformed: for padding, the standard alphabet, another length or spare bits.
    """
    try:
        octets = b64u_decode(text)
    except Base64Refused as error:
        raise IdMalformed(defect=error.defect) from error
    if len(octets) != _DIGEST_BYTES:
        raise IdMalformed(defect=f"{len(octets)} octets instead of {_DIGEST_BYTES}")
    return b64u_encode(octets)


def parse_typed_id(text: str) -> str:
    """Read any base64 spelling of an identifier that a person typed or pasted, also the one that reports print."""
    unpadded = text.strip().rstrip("=")
    return parse_artifact_id(unpadded.replace("+", "-").replace("/", "_"))


def printed_id(identifier: str) -> str:
    """Write an identifier as reports show it, in padded standard base64; any other text is returned unchanged."""
    try:
        return base64.b64encode(b64u_decode(identifier)).decode("ascii")
    except (Base64Refused, binascii.Error):
        return identifier


def parse_nonce(text: object) -> str:
    """
    Read a nonce or ``jti``.

    Raises:
        NonceMalformed: where it is not the canonical base64url of 16 octets.
    """
    try:
        octets = b64u_decode(text)
    except Base64Refused as error:
        raise NonceMalformed(defect=error.defect) from error
    if len(octets) != NONCE_BYTES:
        raise NonceMalformed(defect=f"{len(octets)} octets instead of {NONCE_BYTES}")
    return b64u_encode(octets)


def new_nonce(octets: bytes) -> str:
    """Write 16 octets of a secure source as a nonce or ``jti``, 22 characters."""
    if len(octets) != NONCE_BYTES:
        raise NonceMalformed(defect=f"{len(octets)} octets instead of {NONCE_BYTES}")
    return b64u_encode(octets)
