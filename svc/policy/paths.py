"""
Paths and hosts as rules name them, and the one reading of a request path.

A decision is made on the path that the application will see. A path that applications read differently (encoded or
doubled slashes, dot segments, parameters, backslashes) is not decided on but refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from svc.errors import SvcError

#: The most characters of a pattern.
MAX_PATTERN: Final = 2048
_PLAIN: Final = re.compile(rb"(?:/[A-Za-z0-9!$&'()*+,=:@._~-]+)*/?\Z")
_INCOMPLETE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
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


class PathAmbiguous(SvcError):
    """the path of the request can be read in more than one way: {defect}"""

    reason = "path_ambiguous"
    http_status = 400
    hint = "send the path without encoded or doubled slashes, dot segments, backslashes and parameters (;)"
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
        PathAmbiguous: ``defect`` names what could be read in more than one way.
    """
    # "." and ".." are the only segments of the plain alphabet that are not names.
    if _PLAIN.match(raw) and b"/." not in raw:
        return raw.decode("ascii") or "/"
    if raw == b"*":
        # OPTIONS of the server as a whole (RFC 9112, section 3.2.4).
        return "*"
    if not raw.startswith(b"/"):
        raise PathAmbiguous(defect="it does not begin with a slash")
    if _INCOMPLETE.search(raw):
        raise PathAmbiguous(defect="an incomplete percent-encoding")
    lowered = raw.lower()
    if b"%2f" in lowered:
        raise PathAmbiguous(defect="an encoded slash")
    if b"%25" in lowered:
        raise PathAmbiguous(defect="an encoded percent sign")
    decoded = unquote_to_bytes(raw)
    for octets, name in _REFUSED:
        if octets in decoded:
            raise PathAmbiguous(defect=name)
    if any(octet < 0x20 or octet == 0x7F for octet in decoded):
        raise PathAmbiguous(defect="a control character")
    if any(segment in (b".", b"..") for segment in decoded.split(b"/")):
        raise PathAmbiguous(defect="a dot segment")
    try:
        return decoded.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PathAmbiguous(defect="octets that are not UTF-8") from error


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
        except (PathAmbiguous, UnicodeEncodeError) as error:
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
    """A host, or all names below one (``*.example.org``), without port, in lower case."""

    text: str

    @classmethod
    def parse(cls, text: str) -> HostPattern:
        """Read a pattern; raises PatternMalformed."""
        if len(text) > 255 or not _HOST.match(text) or ".." in text:
            raise PatternMalformed(text=text, expected="a host in lower case without port, or *.example.org")
        return cls(text)

    def matches(self, host: str) -> bool:
        """Whether a host, as :func:`plain_host` returns it, is one of these."""
        if self.text.startswith("*."):
            return host.endswith(self.text[1:]) and len(host) > len(self.text) - 1
        return host == self.text

    def __str__(self) -> str:
        return self.text


def plain_host(authority: str) -> str:
    """The host of an authority in lower case, without port and without the dot of the root."""
    host = authority.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].removesuffix(".")
