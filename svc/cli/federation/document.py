"""
A bootstrap package as a document for people: what it says about itself, and what was verified.

Pure: a package and the time in, values out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from svc.envelope.claims import utc_seconds
from svc.envelope.envelope import SignatureEntry
from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.x5c import decode_certificate
from svc.federation.errors import PackageRefused
from svc.federation.package import BootstrapPackage, VerifiedPackage
from svc.identity.algorithms import certificate_sha256
from svc.identity.certificate import subject_text
from svc.strictjson import b64u_encode, loads_object

#: Characters of the longest key that is not elided: P-384 as base64 of its SubjectPublicKeyInfo has 160.
_MAX_KEY: Final = 160
#: Members with a key: of roots, of post-quantum keys, of RSA keys.
_KEYS: Final = ("spki", "pub", "n")
_CERTIFICATES: Final = "x5c"
_STATES: Final[Mapping[str, str]] = {"package_expired": "expired", "package_not_yet_valid": "notYetValid"}


def package_document(package: BootstrapPackage, now: datetime, *, full: bool) -> dict[str, object]:
    """Return the document of a package; ``full`` leaves nothing out."""
    content = package.content
    signatures = [_signature(package, entry, full) for entry in package.envelope.signatures]
    valid = all(each["valid"] for each in signatures)
    payload = loads_object(package.envelope.payload)
    return {
        "trustDomain": content.trust_domain.name,
        "fingerprint": content.fingerprint.to_members(),
        "reference": str(package.reference) if valid else None,
        "signaturesValid": valid,
        "state": _state(package, now),
        "issuedAt": utc_seconds(content.issued),
        "expiresAt": utc_seconds(content.expires),
        "unsignedHints": {"m2mEndpoint": None if package.endpoint is None else str(package.endpoint)},
        "payload": payload if full else _elided(payload),
        "signatures": signatures,
        "previousSignatures": [_entry(entry, full) for entry in package.previous_signatures],
    }


def _state(package: BootstrapPackage, now: datetime) -> str:
    try:
        VerifiedPackage(package).check_time(now)
    except PackageRefused as error:
        return _STATES[error.reason]
    return "valid"


def _signature(package: BootstrapPackage, entry: SignatureEntry, full: bool) -> dict[str, object]:
    try:
        package.check_signatures([entry], package.content.roots)
    except EnvelopeError as error:
        return {**_entry(entry, full), "valid": False, "reason": error.detail_reason}
    return {**_entry(entry, full), "valid": True}


def _entry(entry: SignatureEntry, full: bool) -> dict[str, object]:
    signature = b64u_encode(entry.signature) if full else f"elided, {len(entry.signature)} octets"
    return {"alg": entry.alg, "kid": entry.protected.kid, "signature": signature}


def _elided(value: object) -> object:
    """Return a value of the payload with a description in place of each certificate and each long key."""
    if isinstance(value, Mapping):
        return {name: _member(name, each) for name, each in value.items()}
    if isinstance(value, list):
        return [_elided(each) for each in value]
    return value


def _member(name: str, value: object) -> object:
    if name == _CERTIFICATES and isinstance(value, list):
        return list(_described(value))
    if name in _KEYS and isinstance(value, str) and len(value) > _MAX_KEY:
        return f"elided, {len(value)} characters"
    return _elided(value)


def _described(texts: Sequence[object]) -> Iterator[str]:
    for text in texts:
        try:
            certificate = decode_certificate(str(text), _CERTIFICATES)
        except Malformed:
            yield "elided, no certificate"
            continue
        end, digest = utc_seconds(certificate.not_valid_after_utc), certificate_sha256(certificate).hex()
        yield f"elided, {subject_text(certificate)}, valid until {end}, SHA-256 {digest}"
