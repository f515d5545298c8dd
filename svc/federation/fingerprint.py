"""
The fingerprint of federation roots: 32 octets, and the three spellings in which people compare them.

The octets are SHA-256 over trust domain and roots (:meth:`svc.federation.roots.FederationRoots.fingerprint`), so that a
fingerprint can only ever be of one trust domain.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from svc.federation.errors import ReferenceRefused

#: SHA-256.
OCTETS: Final = 32
#: What SSH puts before base64 of SHA-256.
SSH_PREFIX: Final = "SHA256:"
_BASE32: Final = re.compile(r"[a-z2-7]{52}\Z")
_DIGITS: Final = re.compile(r"[0-9]{60}\Z")
#: Of the spelling for reading aloud; 10^60 is 199 bits.
_GROUPS, _GROUP = 12, 5
#: What people and programs put between groups.
_SEPARATORS: Final = re.compile(r"[\s-]+")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A fingerprint; equal ones are of the same roots and the same trust domain."""

    octets: bytes

    def __post_init__(self) -> None:
        if len(self.octets) != OCTETS:
            raise ValueError(f"{len(self.octets)} octets instead of {OCTETS}")

    @classmethod
    def from_base32(cls, text: str) -> Fingerprint:
        """
        Read the 52 characters as a reference has them: lower case, without separators.

        Raises:
            ReferenceRefused: for any other text (``bad_fingerprint``).
        """
        if not _BASE32.match(text):
            raise ReferenceRefused("bad_fingerprint", defect="it is not 52 of the characters a-z and 2-7")
        octets = base64.b32decode(text.upper() + "====")
        if _base32(octets) != text:
            raise ReferenceRefused("bad_fingerprint", defect="its last character has spare bits that are not zero")
        return cls(octets)

    @property
    def base32(self) -> str:
        """52 characters (RFC 4648, section 6, in lower case and without padding)."""
        return _base32(self.octets)

    @property
    def grouped(self) -> str:
        """The 52 characters in 13 groups of 4: ``k7q4-…``."""
        return "-".join(self.base32[start : start + 4] for start in range(0, 52, 4))

    @property
    def ssh(self) -> str:
        """``SHA256:`` and unpadded base64, as SSH shows keys."""
        return SSH_PREFIX + base64.b64encode(self.octets).decode("ascii").rstrip("=")

    @property
    def digits(self) -> str:
        """The last 60 decimal digits of the octets as a number (big-endian), in 12 groups of 5, for reading aloud."""
        number = f"{int.from_bytes(self.octets, 'big') % 10 ** (_GROUPS * _GROUP):0{_GROUPS * _GROUP}}"
        return " ".join(number[start : start + _GROUP] for start in range(0, len(number), _GROUP))

    def to_members(self) -> dict[str, object]:
        """Write the three spellings as members of a document for people."""
        return {"base32": self.grouped, "sha256": self.ssh, "digits": self.digits}

    def __str__(self) -> str:
        return self.grouped


@dataclass(frozen=True, slots=True)
class ExpectedFingerprint:
    """
    What a person was told: one spelling, of which digits alone do not give the octets.

    ``text`` is exactly as :class:`Fingerprint` writes it.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> ExpectedFingerprint:
        """
        Read any of the three spellings; blanks and dashes between groups, and upper case in base32, do not matter.

        Raises:
            ReferenceRefused: for any other text (``bad_fingerprint``).
        """
        found = text.strip()
        if found.upper().startswith(SSH_PREFIX):
            return cls(_from_ssh(found[len(SSH_PREFIX) :]).ssh)
        plain = _SEPARATORS.sub("", found)
        if _DIGITS.match(plain):
            return cls(" ".join(plain[start : start + _GROUP] for start in range(0, len(plain), _GROUP)))
        return cls(Fingerprint.from_base32(plain.lower()).grouped)

    def matches(self, found: Fingerprint) -> bool:
        """Whether a fingerprint is the expected one."""
        return self.spelled(found) == self.text

    def spelled(self, found: Fingerprint) -> str:
        """Write a fingerprint in the spelling of the expected one, so that a person can compare them."""
        if self.text.startswith(SSH_PREFIX):
            return found.ssh
        return found.digits if " " in self.text else found.grouped

    def __str__(self) -> str:
        return self.text


def _base32(octets: bytes) -> str:
    return base64.b32encode(octets).decode("ascii").rstrip("=").lower()


def _from_ssh(text: str) -> Fingerprint:
    unpadded = text.removesuffix("=")
    try:
        octets = base64.b64decode(unpadded + "=", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ReferenceRefused("bad_fingerprint", defect="behind SHA256: is no base64") from error
    if len(octets) != OCTETS or base64.b64encode(octets).decode("ascii") != unpadded + "=":
        raise ReferenceRefused("bad_fingerprint", defect="behind SHA256: is no base64 of 32 octets")
    return Fingerprint(octets)
