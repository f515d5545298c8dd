"""
The signature of a release: an envelope of the type ``svc-release+jws`` with an Ed25519 and an ML-DSA-87 signature.

Its payload names the digest of ``svc-release.json``; the file itself is not in it, so that people can read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from svc import naming
from svc.envelope.envelope import Envelope, check_headers, check_set, sign_envelope
from svc.envelope.errors import EnvelopeError
from svc.envelope.keys import Signer, verify_signature
from svc.errors import printable
from svc.install.release.document import DOCUMENT, Release
from svc.install.release.errors import ReleaseRefused
from svc.license.vendors import CLASSICAL, POST_QUANTUM, VendorKey
from svc.strictjson import dumps

SIGNATURE: Final = f"{DOCUMENT}.sig"
MAX_SIGNATURE: Final = 64 * 1024
_VERSION: Final = 1


@dataclass(frozen=True)
class SignedRelease:
    """A release whose two signatures are valid, with the octets of both files. :func:`verify_release` makes it."""

    release: Release
    key: VendorKey
    document: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def sign_release(document: bytes, issuer: str, signers: Sequence[Signer]) -> bytes:
    """
    Sign ``svc-release.json``; returns the file with the signature, of which the ML-DSA part is new each time.

    Args:
        document: the octets of the file.
        issuer: the vendor, as its public key names it.
        signers: both keys of a vendor.

    Raises:
        EnvelopeError: for signers that do not fit.
    """
    envelope = sign_envelope(_payload(document, issuer), naming.TYPE_RELEASE, signers)
    return envelope.serialize(max_bytes=MAX_SIGNATURE)


def verify_release(document: bytes, signature: bytes, keys: Sequence[VendorKey]) -> SignedRelease:
    """
    Verify the signature of a release, then read it.

    Args:
        document: the octets of ``svc-release.json``.
        signature: the octets of ``svc-release.json.sig``.
        keys: the keys that are accepted, normally :func:`svc.install.release.keys.release_keys`.

    Raises:
        ReleaseRefused: for a signature that is not one of the keys, or not of this document, and for a document that is
            not as it should be.
    """
    if len(signature) > MAX_SIGNATURE:
        raise ReleaseRefused("release_too_large", what=SIGNATURE, size=len(signature), limit=MAX_SIGNATURE)
    try:
        envelope = Envelope.parse(signature, max_bytes=MAX_SIGNATURE)
        check_headers(envelope.headers, naming.TYPE_RELEASE)
        check_set(envelope.headers)
        if envelope.serialize(max_bytes=MAX_SIGNATURE) != signature:
            raise ReleaseRefused("release_signature_invalid", defect="it is not written as svc writes it")
        key = _signing_key(envelope, keys)
        for entry in envelope.signatures:
            public_key = key.classical if entry.alg == CLASSICAL else key.post_quantum
            verify_signature(entry.alg, public_key, envelope.signing_input(entry), entry.signature)
    except EnvelopeError as error:
        raise ReleaseRefused("release_signature_invalid", defect=str(error)) from error
    expected = _payload(document, key.issuer)
    if envelope.payload != expected:
        found = printable(envelope.payload.decode("utf-8", "replace"))
        raise ReleaseRefused("release_signature_other", found=found, expected=expected.decode("utf-8"))
    release = Release.parse(document)
    if release.signing_keys != key.kids:
        raise ReleaseRefused(
            "release_malformed", where=f"{DOCUMENT}.signingKeys", defect="other keys than those that signed it"
        )
    return SignedRelease(release, key, document, signature)


def _signing_key(envelope: Envelope, keys: Sequence[VendorKey]) -> VendorKey:
    """Return the key whose two halves the headers name."""
    found = {header.alg: header.kid or "" for header in envelope.headers}
    if sorted(found) != [CLASSICAL, POST_QUANTUM] or envelope.extra or any(each.x5c for each in envelope.signatures):
        raise ReleaseRefused("release_signatures", found=" and ".join(sorted(found)))
    for key in keys:
        if key.kids == found:
            return key
    raise ReleaseRefused("release_key_unknown", kid=found[CLASSICAL], count=len(keys))


def _payload(document: bytes, issuer: str) -> bytes:
    digest = f"sha256:{hashlib.sha256(document).hexdigest()}"
    return dumps({"v": _VERSION, "iss": issuer, "file": DOCUMENT, "size": len(document), "digest": digest})
