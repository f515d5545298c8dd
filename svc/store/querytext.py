"""
Queries as text: the parameters of the notary's URL, which the command line writes and the notary reads, strictly.

Owns the spelling of each parameter. Contains no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed
from svc.store.errors import StoreError
from svc.store.records import MAX_FOUND, ReceiptQuery, RecordPosition

#: The longest query that is read, and the longest path or topic in one.
MAX_QUERY: Final = 8192
MAX_PATH: Final = 1024

_ESCAPED: Final = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*\Z")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})\Z"
)
_STATUS: Final = re.compile(r"([1-5])(?:([0-9]{2})|xx)\Z")
_POSITION: Final = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{0,64})\Z")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,5}\Z")


class QueryMalformed(StoreError):
    """the parameter {name} of the search is {value}; expected: {expected}"""

    reason = "query_malformed"
    hint = "docs/receipts.md, Lists, has the parameters and their values"
    http_status = 400
    name: str
    value: str
    expected: str


def parse_time(text: str) -> int:
    """Read a time (RFC 3339, section 5.6) as NumericDate; fractions of a second are cut off."""
    match = _TIME.match(text)
    try:
        if match is not None:
            return int(datetime.fromisoformat(text.replace(match[1] or ".", "")).timestamp())
    except (ValueError, OverflowError):
        pass
    raise ValueError("a time such as 2026-11-22T20:00:00Z")


def time_text(seconds: int) -> str:
    """Write a NumericDate, as :func:`parse_time` reads it."""
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix('+00:00')}Z"


def parse_status(text: str) -> range:
    """Read a status code, or a class of them such as ``5xx``."""
    match = _STATUS.match(text)
    if match is None:
        raise ValueError("a status from 100 to 599, or a class of them such as 5xx")
    first = int(match[1]) * 100 + int(match[2] or 0)
    return range(first, first + (1 if match[2] else 100))


def status_text(status: range) -> str:
    """Write a range that :func:`parse_status` made."""
    return str(status.start) if len(status) == 1 else f"{status.start // 100}xx"


def parse_client(text: str) -> str:
    """Read the SPIFFE ID of a client."""
    try:
        return str(SpiffeID.parse(text))
    except SpiffeIdMalformed as error:
        raise ValueError("a SPIFFE ID such as spiffe://example.org/ns/web/sa/fe") from error


def parse_path(octets: bytes) -> str:
    """Read the beginning or the pattern of a path, one character for each octet."""
    if not 1 <= len(octets) <= MAX_PATH or octets[:1] not in (b"/", b"*"):
        raise ValueError(f"a path from its / on, or a pattern with *, up to {MAX_PATH} octets")
    return octets.decode("latin-1")


def parse_topic(octets: bytes) -> str:
    """Read the beginning or the pattern of a topic, which is UTF-8."""
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not 1 <= len(octets) <= MAX_PATH or not text:
        raise ValueError(f"the beginning of a topic, or a pattern with *, up to {MAX_PATH} octets of UTF-8")
    return text


def parse_limit(text: str) -> int:
    """Read the most records that are to be found."""
    if _NUMBER.match(text) is None or int(text) > MAX_FOUND:
        raise ValueError(f"a number from 1 to {MAX_FOUND}")
    return int(text)


def parse_position(text: str) -> RecordPosition:
    """Read where an earlier search ended."""
    match = _POSITION.match(text)
    if match is None:
        raise ValueError("the value of next in the result of an earlier search")
    return RecordPosition(int(match[1]), match[2])


def position_text(position: RecordPosition) -> str:
    """Write a position, as :func:`parse_position` reads it."""
    return f"{position.issued_at}.{position.id}"


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "since": parse_time,
    "until": parse_time,
    "client": parse_client,
    "status": parse_status,
    "limit": parse_limit,
    "before": parse_position,
}
_WRITERS: Final[Mapping[str, Callable[[object], str]]] = {
    "since": time_text,  # type: ignore[dict-item]
    "until": time_text,  # type: ignore[dict-item]
    "status": status_text,  # type: ignore[dict-item]
    "before": position_text,  # type: ignore[dict-item]
}
_NAMES: Final = ("since", "until", "client", "status", "outcome", "path", "topic", "limit", "before")


def read_query(text: str, outcomes: Collection[str]) -> ReceiptQuery:
    """
    Read the query of a URL, without its question mark: parameters with a value, each at most once.

    Args:
        text: percent-encoded; ``+`` means itself.
        outcomes: the words of the parameter ``outcome``.

    Raises:
        QueryMalformed: a parameter that is unknown, repeated or malformed.
    """
    if len(text) > MAX_QUERY or _ESCAPED.match(text) is None:
        raise QueryMalformed(
            name="string", value="malformed", expected=f"at most {MAX_QUERY} octets, % before two digits"
        )
    members: dict[str, object] = {}
    for pair in text.split("&") if text else ():
        name, equals, value = pair.partition("=")
        if name not in _NAMES:
            raise QueryMalformed(name=name, value="unknown", expected=f"one of {', '.join(_NAMES)}")
        if name in members or not equals:
            raise QueryMalformed(name=name, value="repeated" if equals else "without a value", expected="one value")
        members[name] = _read(name, unquote_to_bytes(value), outcomes)
    return ReceiptQuery(**members)  # type: ignore[arg-type]


def write_query(query: ReceiptQuery) -> str:
    """Write the parameters of a query for a URL, without a question mark; ``party`` and ``level`` are the notary's."""
    given = {name: getattr(query, name) for name in _NAMES}
    texts = {name: _WRITERS.get(name, str)(value) for name, value in given.items() if value is not None}
    encodings = {"topic": "utf-8"}
    return "&".join(
        f"{name}={quote(text, safe='', encoding=encodings.get(name, 'latin-1'))}" for name, text in texts.items()
    )


def _read(name: str, value: bytes, outcomes: Collection[str]) -> object:
    text = value.decode("latin-1")
    try:
        if name == "path":
            return parse_path(value)
        if name == "topic":
            return parse_topic(value)
        if name == "outcome":
            if text not in outcomes:
                raise ValueError(f"one of {', '.join(outcomes)}")
            return text
        return _READERS[name](text)
    except ValueError as error:
        raise QueryMalformed(name=name, value=f'"{text[:200]}"', expected=str(error)) from error
