"""
The federation reference: one line that names a trust domain, the fingerprint of its federation roots, and where it is.

``svcfed1:<trust domain>:<fingerprint>[@host[:port]]~<checksum>``. Trust domain and fingerprint authenticate the peer;
the endpoint is a hint, and the checksum finds what was damaged on the way, before any connection is made.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from svc.federation.endpoint import Endpoint
from svc.federation.errors import ReferenceRefused
from svc.federation.fingerprint import ExpectedFingerprint, Fingerprint
from svc.identity import TrustDomain
from svc.identity.spiffeid import TrustDomainMalformed

VERSION: Final = 1
#: The longest trust domain, fingerprint and endpoint have 600 characters together.
MAX_REFERENCE: Final = 1024
_PREFIX: Final = re.compile(r"svcfed([0-9]{1,9}):")
#: How references of any version begin.
_SCHEME: Final = "svcfed"
_CHECKSUM: Final = 6


@dataclass(frozen=True, slots=True)
class FederationReference:
    """What a reference says; ``endpoint`` is a hint, None where there is none."""

    trust_domain: TrustDomain
    fingerprint: Fingerprint
    endpoint: Endpoint | None = None

    @classmethod
    def parse(cls, text: str) -> FederationReference:
        """
        Read a reference; white space around it does not matter.

        Raises:
            ReferenceRefused: ``bad_prefix``, ``unsupported_version``, ``bad_checksum``, ``bad_trust_domain``,
                ``bad_fingerprint`` or ``bad_endpoint``; the first that applies, in this order.
        """
        found = text.strip()
        prefix = _PREFIX.match(found)
        if prefix is None:
            raise ReferenceRefused("bad_prefix")
        if prefix[1] != str(VERSION):
            raise ReferenceRefused("unsupported_version", found=prefix[1], supported=VERSION)
        if len(found) > MAX_REFERENCE:
            raise ReferenceRefused("bad_checksum", defect=f"it has more than {MAX_REFERENCE} characters")
        body, tilde, checksum = found.rpartition("~")
        if not tilde:
            raise ReferenceRefused("bad_checksum", defect="its end, ~ and 6 characters, is missing")
        if checksum != checksum_of(body):
            raise ReferenceRefused("bad_checksum", defect="the checksum at its end does not fit the rest")
        names, at, hint = body[prefix.end() :].partition("@")
        name, _colon, fingerprint = names.partition(":")
        return cls(_trust_domain(name), Fingerprint.from_base32(fingerprint), _endpoint(hint) if at else None)

    def __str__(self) -> str:
        hint = "" if self.endpoint is None else f"@{self.endpoint}"
        body = f"{_SCHEME}{VERSION}:{self.trust_domain}:{self.fingerprint.base32}{hint}"
        return f"{body}~{checksum_of(body)}"


class ExpectedPeer(NamedTuple):
    """What a person was told about a peer; the trust domain is known from a reference alone."""

    fingerprint: ExpectedFingerprint
    trust_domain: TrustDomain | None = None

    @classmethod
    def parse(cls, text: str) -> ExpectedPeer:
        """
        Read a fingerprint in any spelling, or a whole reference.

        Raises:
            ReferenceRefused: as :meth:`FederationReference.parse` where the text begins as a reference does, else
                ``bad_fingerprint``.
        """
        if text.strip().startswith(_SCHEME):
            reference = FederationReference.parse(text)
            return cls(ExpectedFingerprint(reference.fingerprint.grouped), reference.trust_domain)
        return cls(ExpectedFingerprint.parse(text))


def checksum_of(body: str) -> str:
    """Compute the 6 characters for what stands before ``~``: base32 of SHA-256, its beginning, in lower case."""
    digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode("ascii").lower()[:_CHECKSUM]


def _trust_domain(name: str) -> TrustDomain:
    try:
        return TrustDomain.parse(name)
    except TrustDomainMalformed as error:
        raise ReferenceRefused("bad_trust_domain", defect=error.defect) from error


def _endpoint(text: str) -> Endpoint:
    try:
        return Endpoint.parse(text)
    except ValueError as error:
        raise ReferenceRefused("bad_endpoint", text=text, defect=str(error)) from error
