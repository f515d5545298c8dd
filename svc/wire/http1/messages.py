"""The values that HTTP/1.1 parsers produce: heads, pieces of bodies (plain ``bytes``), ends and defects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from svc.wire.errors import RemoteProtocolError
from svc.wire.fields import FIELD_CLASSES, Field, encode_fields, end_to_end_fields

#: Above the 8 KiB of most servers, which current tokens can fill; a quarter of the largest read.
DEFAULT_MAX_HEAD: Final = 32 * 1024
DEFAULT_MAX_FIELDS: Final = 100
MAX_INTERIM: Final = 16
#: The largest Max-Forwards; a larger number is read and forwarded as this one (RFC 9110 section 7.6.2).
MAX_FORWARDS: Final = 2**31 - 1
#: The supported versions.
VERSIONS: Final = frozenset({"1.0", "1.1"})


@dataclass(slots=True)
class MessageLimits:
    """
    What one message may use.

    Args:
        head: octets of the start line, the fields with one space in front of each value, and the last chunk with its
            trailers; also of what an upgrade holds back, and of what is skipped without an event (chunk lines, white
            space). What is skipped may exceed it by one read.
        fields: number of fields in head and trailers.
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
        options: the options of ``Connection``, in lower case; also ``content-length`` where a response may not have it.
        keep_alive: whether the sender leaves the connection open after this message.
        length: the value of Content-Length, or None.
        chunked: whether the body is chunked.
        upgrade: whether a request asks for another protocol that the proxy can forward, or a response grants it (101).
        all_end_to_end: whether all fields are forwarded; False also where that was not determined.
        cached_lines: the lines of the forwarded fields; None where they are to be written from ``fields``.
        drop_forwarding: whether forwarding fields are not forwarded (:func:`svc.wire.fields.is_forwarding`).
    """

    version: str
    fields: list[Field]
    options: frozenset[bytes]
    keep_alive: bool
    length: int | None
    chunked: bool
    upgrade: bool
    all_end_to_end: bool = field(default=False, kw_only=True)
    cached_lines: bytes | None = field(default=None, kw_only=True, compare=False, repr=False)
    drop_forwarding: bool = field(default=False, kw_only=True, compare=False, repr=False)

    @property
    def end_to_end(self) -> list[Field]:
        """The fields that are forwarded, in order."""
        if self.all_end_to_end:
            return self.fields
        return end_to_end_fields(self.fields, self.options, drop_forwarding=self.drop_forwarding)

    @property
    def end_to_end_lines(self) -> bytes:
        """The lines of the fields that are forwarded, each with CRLF."""
        return encode_fields(self.end_to_end) if self.cached_lines is None else self.cached_lines

    def values(self, lower_name: bytes) -> list[bytes]:
        """
        Return all values of a field, in order.

        Args:
            lower_name: its name in lower case.

        Returns:
            An empty list where the field is absent.
        """
        return [value for name, value in self.fields if FIELD_CLASSES[name][0] == lower_name]


@dataclass(slots=True)
class RequestHead(Head):
    """
    The head of a request.

    Args:
        method: such as ``GET``.
        target: as sent.
        host: the value of its Host field; of HTTP/1.0 without one the authority of its target, or nothing.
        reserved: the values of its ``svc-*`` fields by lower-case name, ``_`` read as ``-``.
        max_forwards: Max-Forwards of TRACE and OPTIONS as received, at most :data:`MAX_FORWARDS`; None where absent and
            for other methods. A request with 0 must not be forwarded; ``end_to_end_lines`` have the next lower number.
    """

    method: bytes
    target: bytes
    host: bytes
    reserved: dict[bytes, bytes]
    max_forwards: int | None = field(default=None, kw_only=True)

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
        """Whether a body follows; False for a length of 0."""
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
class MessageRefused:
    """The message is not acceptable and the parser is closed."""

    error: RemoteProtocolError


Event = RequestHead | ResponseHead | Interim | bytes | End | Excess | MessageRefused
