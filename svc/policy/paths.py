"""
Paths and hosts as rules name them, and the one reading of those of a request.

A decision is made on the path that the application will see. A path that applications read differently (encoded or
doubled slashes, dot segments, parameters, backslashes) is not decided on but refused. So is a host that is neither a
plain name nor an address in its usual form.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final
from urllib.parse import unquote_to_bytes

from svc.errors import Reason, SvcError

#: The most characters of a pattern.
MAX_PATTERN: Final = 2048
_PLAIN: Final = re.compile(rb"(?:/[A-Za-z0-9!$&'()*+,=:@._~-]+)*/?\Z")
_INCOMPLETE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
#: A name, or IPv4 address, of which no reader makes another.
_PLAIN_HOST: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\Z")
_IPV4: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.?\b){4}\Z")
#: The last label of what some readers take for an IPv4 address, whatever is before it (WHATWG URL, section 3.5).
_NUMBER: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")
_HOST: Final = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?\Z|\[[0-9a-f:.]+\]\Z")
_TEMPLATE_SEGMENT: Final = re.compile(r"\{[A-Za-z0-9_]{1,63}\}\Z")
#: Octets that no path may hold once decoded, each with its name.
_REFUSED: Final = (
    (b"\\", "a backslash"),
    (b";", "a parameter (;)"),
    (b"?", "an encoded question mark"),
    (b"#", "a number sign"),
    (b"//", "a doubled slash"),
)


class RequestAmbiguous(SvcError):
    """the request can be read in more than one way: {defect}"""

    http_status = 400
    reasons: ClassVar[Mapping[str, Reason]] = {
        "path_ambiguous": Reason(
            "the path of the request can be read in more than one way: {defect}",
            "send the path without encoded or doubled slashes, dot segments, backslashes and parameters (;)",
        ),
        "host_ambiguous": Reason(
            "the host of the request can be read in more than one way: {defect}",
            "send a name of letters, digits, '-' and '_', an IPv4 address of four decimal numbers, or an IPv6 address",
        ),
    }
    defect: str


class PatternMalformed(SvcError):
    """'{text}' is not {expected}"""

    reason = "pattern_malformed"
    hint = "correct the pattern in the policy file"
    text: object
    expected: str


def plain_path(raw: bytes) -> str:
    """
    Return the path that every application reads, percent-decoded (RFC 3986, section 6.2.2).

    Raises:
        RequestAmbiguous: ``defect`` names what could be read in more than one way.
    """
    # "." and ".." are the only segments of the plain alphabet that are not names.
    if _PLAIN.match(raw) and b"/." not in raw:
        return raw.decode("ascii") or "/"
    if raw == b"*":
        # OPTIONS of the server as a whole (RFC 9112, section 3.2.4).
        return "*"
    if not raw.startswith(b"/"):
        raise RequestAmbiguous("path_ambiguous", defect="it does not begin with a slash")
    if _INCOMPLETE.search(raw):
        raise RequestAmbiguous("path_ambiguous", defect="an incomplete percent-encoding")
    lowered = raw.lower()
    if b"%2f" in lowered:
        raise RequestAmbiguous("path_ambiguous", defect="an encoded slash")
    if b"%25" in lowered:
        raise RequestAmbiguous("path_ambiguous", defect="an encoded percent sign")
    decoded = unquote_to_bytes(raw)
    for octets, name in _REFUSED:
        if octets in decoded:
            raise RequestAmbiguous("path_ambiguous", defect=name)
    if any(octet < 0x20 or octet == 0x7F for octet in decoded):
        raise RequestAmbiguous("path_ambiguous", defect="a control character")
    if any(segment in (b".", b"..") for segment in decoded.split(b"/")):
        raise RequestAmbiguous("path_ambiguous", defect="a dot segment")
    try:
        return decoded.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestAmbiguous("path_ambiguous", defect="octets that are not UTF-8") from error


@dataclass(frozen=True, slots=True)
class PathPattern:
    """
    Paths that a rule names: one path, all below one (``/a/*``), or a template (``/users/{id}``).

    A placeholder of a template stands for exactly one segment that is not empty; paths are case-sensitive.
    """

    text: str
    #: Segments of a template, None for placeholders; empty for other patterns.
    template: tuple[str | None, ...] = ()
    #: What all paths of a pattern ``/a/*`` start with, else empty.
    below: str = ""

    @classmethod
    def parse(cls, text: str) -> PathPattern:
        """Read a pattern; raises PatternMalformed."""
        body = text.removesuffix("*") if text.endswith("/*") else text
        segments = tuple(None if _TEMPLATE_SEGMENT.match(part) else part for part in body.split("/")[1:])
        bare = "/" + "/".join("x" if part is None else part for part in segments)
        template = segments if None in segments else ()
        malformed = (
            len(text) > MAX_PATTERN
            or not body.startswith("/")
            or any(sign in bare for sign in "*{}%?#")
            or (template and body != text)
        )
        if malformed:
            raise PatternMalformed(
                text=text, expected="a path such as /a/b, /a/* for all below it, or /users/{id}/orders"
            )
        try:
            plain_path(bare.encode("utf-8"))
        except (RequestAmbiguous, UnicodeEncodeError) as error:
            raise PatternMalformed(text=text, expected="a path that has one reading") from error
        return cls(text, template, body if body != text else "")

    def matches(self, path: str) -> bool:
        """Whether a path, as :func:`plain_path` returns it, is one of these."""
        if self.template:
            parts = path.split("/")[1:]
            return len(parts) == len(self.template) and all(
                part == wanted if wanted is not None else part != ""
                for part, wanted in zip(parts, self.template, strict=True)
            )
        below = self.below
        return path.startswith(below) if below else path == self.text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class HostPattern:
    """A host, or all names below one (``*.example.org``), without port, in the form of :func:`plain_host`."""

    text: str

    @classmethod
    def parse(cls, text: str) -> HostPattern:
        """Read a pattern; raises PatternMalformed."""
        expected = "a host in lower case without port, or *.example.org"
        if len(text) > 255 or not _HOST.match(text):
            raise PatternMalformed(text=text, expected=expected)
        name = text.removeprefix("*.")
        try:
            return cls(text.removesuffix(name) + plain_host(name))
        except RequestAmbiguous as error:
            raise PatternMalformed(text=text, expected=expected) from error

    def matches(self, host: str) -> bool:
        """Whether a host, as :func:`plain_host` returns it, is one of these."""
        if self.text.startswith("*."):
            return host.endswith(self.text[1:]) and len(host) > len(self.text) - 1
        return host == self.text

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=256)
def plain_host(authority: str) -> str:
    """
    Return the host of an authority in lower case, without port and without the dot of the root.

    An IPv6 address is in its shortest form.

    Raises:
        RequestAmbiguous: ``defect`` names what could be read in more than one way.
    """
    host = authority.lower()
    if not host:
        raise RequestAmbiguous("host_ambiguous", defect="it is missing")
    if "%" in host:
        raise RequestAmbiguous("host_ambiguous", defect="a percent-encoding")
    if host.startswith("["):
        try:
            return f"[{ipaddress.IPv6Address(host[1:].partition(']')[0]).compressed}]"
        except ValueError as error:
            raise RequestAmbiguous("host_ambiguous", defect="an IPv6 address that is none") from error
    host = host.partition(":")[0].removesuffix(".")
    if not _PLAIN_HOST.match(host):
        raise RequestAmbiguous("host_ambiguous", defect="an empty label, or a character that is in no name")
    if _NUMBER.match(host.rpartition(".")[2]) and not _IPV4.match(host):
        raise RequestAmbiguous("host_ambiguous", defect="a number that is no IPv4 address of four decimal numbers")
    return host
