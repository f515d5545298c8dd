"""
The text of a license file: base64 between two lines, so that it survives e-mail.

Owns the lines, the headers, which nobody signs, and what is undone of what mail programs do to text: line ends,
quoting, indentation, byte order marks, wrapped or doubled lines, quoted-printable, and text before and behind the
license. Whatever else is wrong is named; what the base64 holds is the concern of :mod:`svc.license.verification`.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from svc.errors import printable
from svc.license.errors import LicenseRefused

#: A license has about 12 KiB; the rest is for the message around it.
MAX_FILE: Final = 256 * 1024
#: Headers that are kept; we write two.
MAX_HEADERS: Final = 16
_COLUMNS: Final = 64
_BEGIN: Final = "-----BEGIN SVC LICENSE-----"
_END: Final = "-----END SVC LICENSE-----"
#: The two lines with whatever a mail program made of their dashes and blanks, and wrote around them.
_MARK: Final = re.compile(r"[\W_]*(BEGIN|END)\s+SVC\s+LICENSE[\W_]*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
#: What quoting and indentation write before a line, and what nobody sees.
_AROUND: Final = " \t>|\u00a0\u00ad\u200b\u2060\ufeff"
_INVISIBLE: Final = re.compile("[\\s\u00ad\u200b\u2060\ufeff]+")
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=]")


@dataclass(frozen=True, slots=True)
class ArmouredText:
    """What is between the two lines: headers, which nobody signs, and the octets of the envelope."""

    headers: tuple[tuple[str, str], ...]
    content: bytes = field(repr=False)


def armoured(text: ArmouredText) -> str:
    """Write a license file; a header's value is made printable and is one line."""
    headers = [f"{name}: {printable(value)}" for name, value in text.headers]
    encoded = base64.b64encode(text.content).decode("ascii")
    lines = [encoded[at : at + _COLUMNS] for at in range(0, len(encoded), _COLUMNS)]
    return "\n".join([_BEGIN, *headers, "", *lines, _END]) + "\n"


def read_armour(data: bytes) -> ArmouredText:
    """
    Find the license in the octets of a file.

    Raises:
        LicenseRefused: for more octets than :data:`MAX_FILE`, no license or several, and text that is not base64.
    """
    if len(data) > MAX_FILE:
        raise LicenseRefused("license_too_large", size=len(data), limit=MAX_FILE)
    inside = _inside([line.strip(_AROUND) for line in _LINE_END.split(_decoded(data))])
    headers, body = _headers_and_body(inside)
    return ArmouredText(headers, _octets(body))


def _decoded(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 with its mark; octets of another encoding can only be outside the base64."""
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if utf16 else "utf-8", "replace")


def _inside(lines: Sequence[str]) -> Sequence[str]:
    marks = [(found[1], at) for at, line in enumerate(lines) if (found := _MARK.fullmatch(line))]
    begins = [at for word, at in marks if word == "BEGIN"]
    if not begins:
        if any("BEGIN SVC LICENSE" in line for line in lines):
            raise LicenseRefused("license_damaged", defect=f"{_BEGIN} is not alone on its line, line ends were lost")
        raise LicenseRefused("license_not_found")
    if len(begins) > 1:
        raise LicenseRefused("license_several", count=len(begins))
    end = next((at for word, at in marks if word == "END" and at > begins[0]), None)
    if end is None:
        raise LicenseRefused("license_cut")
    return lines[begins[0] + 1 : end]


def _headers_and_body(lines: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], Sequence[str]]:
    """
    Separate headers and base64, in which no colon occurs.

    A blank line is between them, unless a mail program removed it; a wrapped header goes on up to that line.
    """
    last = max((at for at, line in enumerate(lines) if ":" in line), default=-1)
    head, body = lines[: last + 1], lines[last + 1 :]
    behind = list(itertools.dropwhile(bool, body))
    if any(behind):
        body = behind
    parts = [line.partition(":") for line in head if ":" in line]
    return tuple((name.strip(), value.strip()) for name, _colon, value in parts[:MAX_HEADERS]), body


def _octets(lines: Sequence[str]) -> bytes:
    text = "\n".join(lines).strip()
    if "=3D" in text or "=\n" in text:
        # Quoted-printable (RFC 2045, 6.7): base64 has "=" at its end only.
        text = binascii.a2b_qp(text.encode("utf-8")).decode("utf-8", "replace")
    text = _INVISIBLE.sub("", text)
    if not text:
        raise LicenseRefused("license_damaged", defect="there is nothing between its two lines")
    if stray := _NOT_BASE64.search(text):
        raise LicenseRefused("license_damaged", defect=f"{printable(stray[0])} is no character of base64")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise LicenseRefused("license_damaged", defect="a part of the base64 is missing") from error
