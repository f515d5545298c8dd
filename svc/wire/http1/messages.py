"""The values that HTTP/1.1 parsers produce: heads, pieces of bodies (plain ``bytes``), ends and defects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from svc.wire.errors import RemoteProtocolError
from svc.wire.fields import CLASSES, Field, joined, passed_on

#: Above the 8 KiB of most servers, because tokens of today fill that; a quarter of what one read can bring.
DEFAULT_MAX_HEAD: Final = 32 * 1024
DEFAULT_MAX_FIELDS: Final = 100
MAX_INTERIM: Final = 16


@dataclass(slots=True)
class Limits:
    """
    What one message may use.

    Args:
        head: octets of the start line and fields with one space in front of each value; also of the last chunk with
            its trailers, of what an upgrade holds back, and of what is skipped without an event (chunk lines, white
            space). What is skipped may exceed it by one read.
        fields: number of fields in the head, and again in the trailers.
    """

    head: int = DEFAULT_MAX_HEAD
    fields: int = DEFAULT_MAX_FIELDS


@dataclass(slots=True)
class Head:
    """
    What requests and responses share.

    Args:
        version: ``1.0`` or ``1.1``.
        fields: name as spelled and value without surrounding white space, in order.
        options: what ``Connection`` names, in lower case.
        keep_alive: whether the sender leaves the connection open after this message.
        length: the value of Content-Length, or None.
        chunked: whether the body comes in chunks.
        upgrade: whether a request asks for another protocol that the proxy can hand on, or a response grants it (101).
        travels_whole: whether it is known that all fields are forwarded.
        onward: the lines of the fields that are forwarded, where they are known already.
    """

    version: str
    fields: list[Field]
    options: frozenset[bytes]
    keep_alive: bool
    length: int | None
    chunked: bool
    upgrade: bool
    travels_whole: bool = field(default=False, kw_only=True)
    onward: bytes | None = field(default=None, kw_only=True, compare=False, repr=False)

    @property
    def end_to_end(self) -> list[Field]:
        """The fields that are forwarded, in order."""
        return self.fields if self.travels_whole else passed_on(self.fields, self.options)

    @property
    def end_to_end_lines(self) -> bytes:
        """The lines of the fields that are forwarded, each with CRLF."""
        return joined(self.end_to_end) if self.onward is None else self.onward

    def values(self, lower_name: bytes) -> list[bytes]:
        """
        Find a field.

        Args:
            lower_name: its name in lower case.

        Returns:
            All its values, in order.
        """
        return [value for name, value in self.fields if CLASSES[name][0] == lower_name]


@dataclass(slots=True)
class RequestHead(Head):
    """
    The head of a request.

    Args:
        method: such as ``GET``.
        target: as sent.
        host: the octets of its Host field.
        reserved: the values of its ``svc-*`` fields by lower-case name, ``_`` read as ``-``.
    """

    method: bytes
    target: bytes
    host: bytes
    reserved: dict[bytes, bytes]

    @property
    def path(self) -> bytes:
        """The raw path of the target, without authority and query."""
        path = self.target.partition(b"?")[0]
        if path.startswith(b"/") or b"://" not in path:
            return path
        slash = path.find(b"/", path.index(b"://") + 3)
        return path[slash:] if slash >= 0 else b"/"

    @property
    def has_body(self) -> bool:
        """Whether octets of a body follow."""
        return self.chunked or bool(self.length)


@dataclass(slots=True)
class ResponseHead(Head):
    """The head of a response: ``status``, ``phrase``; ``until_close`` where only the connection's end ends the body."""

    status: int
    phrase: bytes
    until_close: bool


@dataclass(slots=True)
class Interim:
    """A 1xx response other than 101."""

    head: ResponseHead


@dataclass(slots=True)
class End:
    """The end of a message, with its trailer fields."""

    trailers: list[Field] = field(default_factory=list)


@dataclass(slots=True)
class Excess:
    """Bytes after the end of a response: the connection cannot be used again."""


@dataclass(slots=True)
class Refused:
    """The message is not acceptable and the parser is closed."""

    error: RemoteProtocolError


Event = RequestHead | ResponseHead | Interim | bytes | End | Excess | Refused


#: The versions spoken; anything else is refused.
VERSIONS: Final = frozenset({"1.0", "1.1"})
