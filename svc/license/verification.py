"""
Verifies licenses: the one verifier of command line and manager.

Owns the order of checks, in which the first failure wins: size, text, JSON, shape, each protected header, set, both
signatures present, keys, payload and version, issuer, signatures, then the claims of a license. The time is no part of
it: a verified license is in some state at each instant (:mod:`svc.license.states`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from svc import naming
from svc.envelope.claims import Claims
from svc.envelope.envelope import Envelope, check_headers, check_set
from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.keys import verify_signature
from svc.license.armour import ArmouredText, read_armour
from svc.license.errors import LicenseRefused
from svc.license.payload import VERSION, License
from svc.license.vendors import CLASSICAL, POST_QUANTUM, TEST_VENDOR_KIDS, VendorKey
from svc.strictjson import JsonRefused, loads_object

#: Octets of an envelope: both signatures have 7 KiB, and hundreds of features and trust domains fit beside them.
MAX_ENVELOPE: Final = 64 * 1024


@dataclass(frozen=True)
class VerifiedLicense:
    """A license whose two signatures are valid. :func:`verify_license` makes it."""

    license: License
    key: VendorKey
    envelope: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the envelope in hexadecimal: the same for each text in which the license was sent."""
        return hashlib.sha256(self.envelope).hexdigest()


def verify_license(data: bytes, keys: Sequence[VendorKey]) -> VerifiedLicense:
    """
    Verify the license in a file.

    Args:
        data: the octets of the file.
        keys: the keys that are accepted, normally :func:`svc.license.vendors.pinned_keys`.

    Raises:
        EnvelopeError: with the reason of the first failed check.
    """
    content = read_armour(data).content
    envelope = Envelope.parse(content, max_bytes=MAX_ENVELOPE)
    check_headers(envelope.headers, naming.TYPE_LICENSE)
    check_set(envelope.headers)
    found = sorted(header.alg for header in envelope.headers)
    if found != [CLASSICAL, POST_QUANTUM]:
        raise LicenseRefused("license_signatures", found=" and ".join(found))
    key = _signing_key(envelope, keys)
    issuer = Claims.of_version(envelope.payload, VERSION).text("iss")
    if issuer != key.issuer:
        raise LicenseRefused("issuer_mismatch", found=issuer, expected=key.issuer)
    for entry in envelope.signatures:
        public_key = key.classical if entry.alg == CLASSICAL else key.post_quantum
        verify_signature(entry.alg, public_key, envelope.signing_input(entry), entry.signature)
    return VerifiedLicense(License.from_payload(envelope.payload), key, content)


@dataclass(frozen=True)
class UnverifiedLicense:
    """
    What could be read of a license that was refused: nothing of it is proved.

    Attributes:
        text: headers and content of the file, None where there is no license in it.
        algorithms: those that the signatures name, each with its ``kid`` or an empty text.
        claims: the payload as JSON, None where it is none.
        license: the payload as a license, None where it is none.
    """

    text: ArmouredText | None = None
    algorithms: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, object] | None = None
    license: License | None = None


def read_unverified(data: bytes) -> UnverifiedLicense:
    """Read as much of a refused license as possible, for people who look for what is wrong with it."""
    text = claims = found = None
    algorithms: dict[str, str] = {}
    try:
        text = read_armour(data)
        envelope = Envelope.parse(text.content, max_bytes=MAX_ENVELOPE)
        algorithms = {header.alg: header.kid or "" for header in envelope.headers}
        claims = Claims(loads_object(envelope.payload)).members
        found = License.from_payload(envelope.payload)
    except (EnvelopeError, JsonRefused):
        # What refuses it is reported by verify_license; this only ends the reading.
        return UnverifiedLicense(text, algorithms, claims)
    return UnverifiedLicense(text, algorithms, claims, found)


def _signing_key(envelope: Envelope, keys: Sequence[VendorKey]) -> VendorKey:
    """Return the one key of a vendor that both headers name."""
    found: list[VendorKey] = []
    for index, entry in enumerate(envelope.signatures):
        kid = entry.protected.kid
        if entry.x5c or entry.protected.thumbprint is not None or kid is None:
            raise Malformed(
                where=f"signatures[{index}]", defect="a license has kid in its headers, and no certificates"
            )
        key = next((each for each in keys if each.kids[entry.alg] == kid), None)
        if key is None:
            if kid in TEST_VENDOR_KIDS and not any(each.test for each in keys):
                raise LicenseRefused("license_key_of_tests")
            if all(each.test for each in keys):
                raise LicenseRefused("license_keys_none", kid=kid)
            raise LicenseRefused("license_key_unknown", kid=kid)
        found.append(key)
    first, second = found
    if first is not second:
        raise LicenseRefused("license_keys_mixed", first=first.issuer, second=second.issuer)
    return first
