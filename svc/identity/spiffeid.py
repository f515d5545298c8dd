"""
SPIFFE IDs and trust domain names as values that cannot be invalid (SPIFFE-ID standard).

Identities are compared as these values, never as text. Nothing is normalised: IDs that differ by one octet are
different identities.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from svc.errors import SvcError

SCHEME: Final = "spiffe://"
#: SPIFFE-ID 2.3: the host of a URI has at most 255 octets.
MAX_TRUST_DOMAIN: Final = 255
#: SPIFFE-ID 2.3: implementations must support 2048 octets; longer IDs are refused.
MAX_SPIFFE_ID: Final = 2048

_TRUST_DOMAIN: Final = re.compile(r"[a-z0-9._-]+\Z")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._-]+)*\Z")


class TrustDomainMalformed(SvcError):
    """'{text}' is not a trust domain name: {defect}"""

    reason = "trust_domain_malformed"
    hint = "a trust domain name has 1 to 255 of the characters a-z 0-9 . - _ and no scheme, port or path"
    text: object
    defect: str


class SpiffeIdMalformed(SvcError):
    """'{text}' is not a SPIFFE ID: {defect}"""

    reason = "spiffe_id_malformed"
    hint = "a SPIFFE ID looks like spiffe://example.org/ns/pay/sa/api"
    text: object
    defect: str


@dataclass(frozen=True, slots=True, order=True)
class TrustDomain:
    """The name of a trust domain (SPIFFE-ID 2.1). Made by :meth:`parse`."""

    name: str

    def __post_init__(self) -> None:
        defect = _trust_domain_defect(self.name)
        if defect:
            raise TrustDomainMalformed(text=self.name, defect=defect)

    @classmethod
    def parse(cls, text: str) -> TrustDomain:
        """
        Read the name of a trust domain, without scheme.

        Raises:
            TrustDomainMalformed: with ``defect`` naming what was found.
        """
        return cls(text)

    @property
    def id(self) -> SpiffeID:
        """The SPIFFE ID of the trust domain itself, without a path; only signing certificates carry it."""
        return SpiffeID(self, "")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, order=True)
class SpiffeID:
    """
    A SPIFFE ID (SPIFFE-ID 2). Made by :meth:`parse`, or of its parts.

    Args:
        trust_domain: the trust domain.
        path: empty, or a path that starts with a slash.

    Raises:
        SpiffeIdMalformed: the path is not valid (SPIFFE-ID 2.2).
    """

    trust_domain: TrustDomain
    path: str

    def __post_init__(self) -> None:
        defect = _path_defect(self.path)
        if not defect and len(SCHEME) + len(self.trust_domain.name) + len(self.path) > MAX_SPIFFE_ID:
            defect = f"longer than {MAX_SPIFFE_ID} octets"
        if defect:
            raise SpiffeIdMalformed(text=f"{SCHEME}{self.trust_domain}{self.path}", defect=defect)

    @classmethod
    def parse(cls, text: str) -> SpiffeID:
        """
        Read a SPIFFE ID by the exact grammar: lower-case scheme, no user, port, query, fragment or percent-encoding.

        Raises:
            SpiffeIdMalformed: with ``defect`` naming what was found.
        """
        if not isinstance(text, str):
            raise SpiffeIdMalformed(text=type(text).__name__, defect="not text")
        if len(text) > MAX_SPIFFE_ID:
            raise SpiffeIdMalformed(text=text, defect=f"longer than {MAX_SPIFFE_ID} octets")
        if not text.startswith(SCHEME):
            raise SpiffeIdMalformed(text=text, defect=f"it does not start with {SCHEME}")
        name, slash, rest = text[len(SCHEME) :].partition("/")
        defect = _trust_domain_defect(name)
        if defect:
            raise SpiffeIdMalformed(text=text, defect=f"trust domain: {defect}")
        return cls(TrustDomain(name), slash + rest)

    def __str__(self) -> str:
        return f"{SCHEME}{self.trust_domain.name}{self.path}"


def _trust_domain_defect(name: object) -> str:
    if not isinstance(name, str):
        return "not text"
    if not name:
        return "it is empty"
    if len(name) > MAX_TRUST_DOMAIN:
        return f"longer than {MAX_TRUST_DOMAIN} octets"
    if not _TRUST_DOMAIN.match(name):
        return "a character other than a-z 0-9 . - _"
    return ""


def _path_defect(path: object) -> str:
    if not isinstance(path, str):
        return "the path is not text"
    if not path:
        return ""
    if not path.startswith("/"):
        return "the path does not start with a slash"
    segments = path[1:].split("/")
    if "" in segments:
        return "an empty path segment or a trailing slash"
    if "." in segments or ".." in segments:
        return "a path segment that is a dot segment"
    if not _PATH.match(path):
        return "a path character other than A-Z a-z 0-9 . - _"
    return ""
