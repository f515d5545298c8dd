"""
The keys of vendors, which alone may sign licenses: pairs of an Ed25519 and an ML-DSA-87 key.

Owns the text of a key: a line with the issuer, then both keys as PEM; :mod:`svc.pinned` has those of a distribution. A
key is replaced by adding the new one a release or more before the old one is removed; licenses of both are accepted in
between.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ed25519, mldsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from svc.envelope.keys import jwk_thumbprint
from svc.errors import SvcError
from svc.license.payload import MAX_TEXT
from svc.pinned import VENDOR_KEYS

CLASSICAL: Final = "Ed25519"
POST_QUANTUM: Final = "ML-DSA-87"
#: By these a program without the test vendor's keys says whose they are.
TEST_VENDOR_KIDS: Final = frozenset(
    {"rG_s0pFSVN7cE_KJo41qv2UCXwJlHLEWIdBseti3XcQ", "EY4c41Y3PNxIQAMiDjDwwhcojaT3XjBpo3pmpgnDdxM"}
)
_ISSUER: Final = re.compile(r"^Issuer: (\S.*)$", re.MULTILINE)
_PEM: Final = re.compile(r"-----BEGIN ([A-Z ]+)-----\n.*?-----END \1-----\n?", re.DOTALL)


class VendorKeyMalformed(SvcError):
    """the text is no key of a vendor: {defect}"""

    reason = "vendor_key_malformed"
    hint = (
        "it has a line Issuer: NAME, an Ed25519 and an ML-DSA-87 key as PEM; bin/license-sign new-key writes such files"
    )


@dataclass(frozen=True)
class VendorKey:
    """
    Both public keys of a vendor.

    Attributes:
        issuer: what its licenses have as ``iss``.
        test: whether it is the test vendor, whose private keys are public.
    """

    issuer: str
    classical: ed25519.Ed25519PublicKey = field(repr=False)
    post_quantum: mldsa.MLDSA87PublicKey = field(repr=False)
    test: bool = False

    @classmethod
    def parse(cls, text: str, *, test: bool = False) -> VendorKey:
        """
        Read the text of a key.

        Raises:
            VendorKeyMalformed: where a part is missing, or a key is of another kind.
        """
        try:
            classical, post_quantum = (load_pem_public_key(each.encode("ascii")) for each in pem_parts(text))
        except (ValueError, UnsupportedAlgorithm) as error:
            raise VendorKeyMalformed(defect="a key cannot be read") from error
        if not isinstance(classical, ed25519.Ed25519PublicKey) or not isinstance(post_quantum, mldsa.MLDSA87PublicKey):
            raise VendorKeyMalformed(defect="the keys are not Ed25519 and ML-DSA-87, in this order")
        return cls(issuer_of(text), classical, post_quantum, test)

    def render(self) -> str:
        """Write the text; :meth:`parse` reads it back to an equal key."""
        keys = (self.classical, self.post_quantum)
        pem = (key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii") for key in keys)
        return f"Issuer: {self.issuer}\n{''.join(pem)}"

    @cached_property
    def kids(self) -> Mapping[str, str]:
        """The thumbprint of each key by its algorithm (RFC 7638)."""
        return {CLASSICAL: jwk_thumbprint(self.classical), POST_QUANTUM: jwk_thumbprint(self.post_quantum)}


def pem_parts(text: str) -> tuple[str, str]:
    """
    Return the two keys in the text of a public or private key of a vendor.

    Raises:
        VendorKeyMalformed: where there are fewer or more.
    """
    found = [match[0] for match in _PEM.finditer(text)]
    if len(found) != 2:
        raise VendorKeyMalformed(defect=f"it has {len(found)} keys as PEM, not two")
    return found[0], found[1]


def issuer_of(text: str) -> str:
    """
    Return the issuer that the text of a public or private key of a vendor names.

    Raises:
        VendorKeyMalformed: where it names none, or one with more characters than a license can have.
    """
    found = _ISSUER.findall(text)
    if len(found) != 1 or len(found[0]) > MAX_TEXT:
        raise VendorKeyMalformed(defect=f"it has no line Issuer: NAME, or one of more than {MAX_TEXT} characters")
    return str(found[0])


@cache
def pinned_keys() -> tuple[VendorKey, ...]:
    """
    Return the keys that sign licenses for this program: those with which the distribution was built, and in a checkout
    of the source those of the test vendor.
    """
    keys = tuple(VendorKey.parse(text) for text in VENDOR_KEYS)
    try:
        # Wheels and images do not contain this package.
        from svc.license.testvendor import TEST_VENDOR_KEY
    except ModuleNotFoundError:
        return keys
    return (*keys, VendorKey.parse(TEST_VENDOR_KEY, test=True))
