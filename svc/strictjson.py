"""
Strict JSON and base64url, so that two readers cannot interpret a document differently.

Refuses what RFC 8259 leaves to implementations: duplicate member names (SPIFFE Trust Domain and Bundle, section 4), a
byte order mark, NaN and Infinity, fractions and exponents, integers beyond 2^53-1, lone surrogates, deep nesting, and
too many values.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from typing import Final, NoReturn

from svc.errors import SvcError

MAX_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 32
#: Values and member names; a receipt of 1,000 redacted fields in each of its four lists has 28,000. The size alone does
#: not limit the cost: a value has two or three octets (``[],``) and takes a microsecond and up to 100 octets of memory.
MAX_NODES: Final = 32 * 1024
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_B64U: Final = re.compile(r"[A-Za-z0-9_-]*\Z")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class JsonRefused(SvcError):
    """the JSON document is not acceptable: {defect}"""

    reason = "malformed"
    http_status = 400
    defect: str


class Base64Refused(SvcError):
    """the text is not canonical base64url: {defect}"""

    reason = "malformed"
    http_status = 400
    defect: str


def loads(
    data: bytes,
    *,
    max_bytes: int = 256 * 1024,
    max_depth: int = MAX_DEPTH,
    max_nodes: int = MAX_NODES,
    fractions: bool = False,
) -> object:
    """
    Parse one UTF-8 JSON document into dict, list, str, int, bool or None.

    Args:
        data: the document.
        max_bytes: the maximum size in octets.
        max_depth: the maximum nesting of arrays and objects.
        max_nodes: the maximum number of values and member names, counted before any of them is built.
        fractions: whether numbers with a fraction or an exponent are accepted, as finite floats; for measurements,
            never for what is signed.

    Raises:
        JsonRefused: with ``defect`` naming what was found.
    """
    if len(data) > max_bytes:
        raise JsonRefused(defect=f"{len(data)} octets, at most {max_bytes} are accepted")
    if data.startswith(b"\xef\xbb\xbf"):
        raise JsonRefused(defect="a byte order mark")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonRefused(defect=f"invalid UTF-8 at octet {error.start}") from error
    _check_size(text, max_depth, max_nodes)
    try:
        value = (_MEASURING_DECODER if fractions else _DECODER).decode(text)
    except json.JSONDecodeError as error:
        raise JsonRefused(defect=f"{error.msg.removesuffix(' at')} at character {error.pos}") from error
    except RecursionError as error:
        raise JsonRefused(defect="nested too deeply") from error
    if "\\u" in text:
        _refuse_surrogates(value)
    return value


def loads_object(
    data: bytes,
    *,
    max_bytes: int = 256 * 1024,
    max_depth: int = MAX_DEPTH,
    max_nodes: int = MAX_NODES,
    fractions: bool = False,
) -> dict[str, object]:
    """Parse one JSON document that must be an object; see :func:`loads`."""
    value = loads(data, max_bytes=max_bytes, max_depth=max_depth, max_nodes=max_nodes, fractions=fractions)
    if not isinstance(value, dict):
        raise JsonRefused(defect="the document is not an object")
    return value


#: Created once: ``json.dumps`` creates an encoder for each call.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dumps(value: object) -> bytes:
    """
    Serialize as compact UTF-8 JSON, members in insertion order.

    Raises:
        ValueError: for NaN or an infinity.
        UnicodeEncodeError: for a lone surrogate.
    """
    return _ENCODER.encode(value).encode("utf-8")


#: Writes a text with its quotes, as :func:`dumps` does.
quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring


def b64u_encode(data: bytes) -> str:
    """Encode as base64url without padding (RFC 4648, section 5)."""
    text: bytes = binascii.b2a_base64(data, newline=False)
    return text.translate(_TO_URL).rstrip(b"=").decode("ascii")


def b64u_decode(text: object) -> bytes:
    """
    Decode canonical base64url without padding: unused bits must be zero, so each octet string has one encoding.

    Raises:
        Base64Refused: with ``defect`` naming what was found.
    """
    if not isinstance(text, str):
        raise Base64Refused(defect=f"a {type(text).__name__} instead of text")
    if not _B64U.match(text):
        raise Base64Refused(defect="a character outside the base64url alphabet")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise Base64Refused(defect="a length that no octet string has") from error
    if b64u_encode(data) != text:
        raise Base64Refused(defect="spare bits that are not zero")
    return data


def _check_size(text: str, max_depth: int, max_nodes: int) -> None:
    """Refuse a text that is nested too deeply or has too many nodes, before the decoder builds any of them."""
    depth = nodes = 0
    for token in _TOKENS.finditer(text):
        mark = token.group()
        if mark in "]}":
            depth -= 1
            if depth < 0:
                return  # Not JSON: the decoder reports the position.
            continue
        nodes += 1
        if nodes > max_nodes:
            raise JsonRefused(defect=f"more than {max_nodes} values and member names")
        if mark in "[{":
            depth += 1
            if depth > max_depth:
                raise JsonRefused(defect=f"nested deeper than {max_depth}")


#: A string, a bracket, or a number or word. Strings are matched whole, so that brackets inside them are not counted. An
#: unterminated string is matched to the end of the text without backtracking: the scan takes linear time.
_TOKENS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]|[^"\[\]{}:,\s]++', re.DOTALL)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _value in pairs:
            if name in seen:
                raise JsonRefused(defect=f"duplicate member {name!r}")
            seen.add(name)
    return members


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        raise JsonRefused(defect="an integer beyond 2^53-1")
    return int(text)


def _refuse_float(text: str) -> NoReturn:
    raise JsonRefused(defect="a number that is not an integer")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonRefused(defect="a number beyond the range of a double")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise JsonRefused(defect=f"the constant {text}")


def _refuse_surrogates(value: object) -> None:
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise JsonRefused(defect="a lone surrogate")
    elif isinstance(value, list):
        for item in value:
            _refuse_surrogates(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            _refuse_surrogates(name)
            _refuse_surrogates(item)


def _decoder(parse_float: Callable[[str], float]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_int=_integer,
        parse_float=parse_float,
        parse_constant=_refuse_constant,
        strict=True,
    )


_DECODER: Final = _decoder(_refuse_float)
_MEASURING_DECODER: Final = _decoder(_finite)
