"""
The requests of one client connection.

Contains the checks of a request head beyond llhttp's strict grammar (RFC 9112 sections 3 and 6, RFC 9110 section 7).
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

import httptools

from svc.wire.errors import RemoteProtocolError
from svc.wire.fields import FIELD_CLASSES, Field, encode_fields, is_token
from svc.wire.http1.extent import MessageExtent
from svc.wire.http1.fast_path import FieldLines, parse_lines
from svc.wire.http1.framing import InterpretedField, read_framing
from svc.wire.http1.messages import MAX_FORWARDS, VERSIONS, End, Event, MessageLimits, RequestHead
from svc.wire.http1.parser import LAST_CHUNK_SIZE, Parser, end_of_lines

#: RFC 3986 section 3.2: a name or IPv4 address, or an address in brackets, and a port that may be empty.
_HOST: Final = re.compile(
    rb"(?:(?:[A-Za-z0-9._~!$&'()*+,;=-]++|%[0-9A-Fa-f]{2})+|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{0,5}))?\Z"
)
_HOST_LIMIT: Final = 255 + len(":65535")
_ABSOLUTE: Final = re.compile(rb"([Hh][Tt][Tt][Pp][Ss]?)://([^/?#]*)([/?#].*)?\Z", re.DOTALL)
#: The ports that an authority need not name (RFC 9110 section 4.2).
_DEFAULT_PORTS: Final = {b"http": b":80", b"https": b":443"}

#: Methods of RTSP and Icecast, which llhttp accepts.
_FOREIGN_METHODS: Final = frozenset(
    {
        b"ANNOUNCE",
        b"DESCRIBE",
        b"FLUSH",
        b"GET_PARAMETER",
        b"PAUSE",
        b"PLAY",
        b"RECORD",
        b"REDIRECT",
        b"SETUP",
        b"SET_PARAMETER",
        b"SOURCE",
        b"TEARDOWN",
    }
)

#: Methods that Max-Forwards limits (RFC 9110 section 7.6.2).
_WITH_MAX_FORWARDS: Final = frozenset({b"OPTIONS", b"TRACE"})
_MAX_FORWARDS: Final = b"max-forwards"
_CONNECTION: Final = frozenset({b"connection", b"proxy-connection"})

#: Other names of HTTP itself and TLS. Requests inside such a connection would bypass every policy decision, so these
#: upgrades are ignored, as RFC 9110 section 7.8 allows.
_IGNORED_UPGRADES: Final = frozenset({b"h2", b"h2c", b"h3", b"http", b"tls"})


#: Methods without a body, and the characters of a path and a query in RFC 3986.
_REQUEST: Final = re.compile(rb"(GET|HEAD|DELETE|OPTIONS) (/[A-Za-z0-9/?:@\-._~!$&'()*+,;=%]*+) HTTP/1\.1\r\n")
_EMPTY_LINE: Final = b"\r\n\r\n"


def _split_request(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Split a read that is exactly one request without a body into method, target and field lines; else None."""
    end = data.find(_EMPTY_LINE)
    if end < 0 or end + 4 != len(data):
        return None
    line = _REQUEST.match(data)
    if line is None:
        return None
    return line[1], line[2], data[line.end() : end + 2]


class RequestParser(Parser):
    """
    Reads the requests of one connection.

    After a head with ``upgrade`` the parser holds back what follows its End: either :meth:`resume` reads it as the next
    request, or :meth:`take_rest` returns it as bytes of the other protocol.

    Args:
        limits: what one request may use.
        drop_forwarding: whether forwarding fields are not forwarded, see :func:`svc.wire.fields.is_forwarding`.
    """

    def __init__(self, limits: MessageLimits | None = None, *, drop_forwarding: bool = False) -> None:
        super().__init__(limits or MessageLimits(), drop_forwarding=drop_forwarding)
        self._drop_forwarding = drop_forwarding
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._last_head: RequestHead | None = None
        self._rest: bytes | None = None
        #: Whether llhttp takes the head for the end of a request that has a body.
        self._stops_before_body = False
        #: Whether it is the llhttp of :func:`_parser_of_body` that reads.
        self._reads_body = False
        #: Whether a head has started and not ended.
        self.in_head = False
        self._ended = False
        #: Whether llhttp is between two messages, and no octet of a request or line end was read since the last one.
        self._between_messages = True
        self._last_lines: FieldLines | None = None
        self._extent = MessageExtent()

    def feed(self, data: bytes) -> list[Event]:
        """
        Read more bytes.

        Args:
            data: what the client sent.

        Returns:
            The events they complete, possibly of several requests.
        """
        if self.closed or not data:
            return []
        if self._rest is not None:
            self._hold(self._rest + data)
        else:
            if self._between_messages:
                head = self._read_fast(data)
                if head is not None:
                    self._last_head = head
                    self._ended = True
                    return [head, End()]
            self._read(data)
            self._between_messages = self._ended and self._extent.at_start
        events, self._events = self._events, []
        return events

    def _end_of_slice(self, data: bytes, begin: int) -> int:
        return end_of_lines(data, begin + self._extent.body_left)

    def _read_fast(self, data: bytes) -> RequestHead | None:
        """Read one whole request in the common form without llhttp, which must be between two messages."""
        parts = _split_request(data)
        last = self._last_head
        # In that form the size of a head is the number of its octets.
        if parts is None or len(data) > self._head_limit or not (last is None or last.keep_alive):
            return None
        method, target, octets = parts
        lines = self._last_lines
        if lines is None or lines.octets != octets:
            lines = parse_lines(octets, self._fields_limit, drop_forwarding=self._drop_forwarding)
            if lines is None or lines.host is None or lines.length is not None or not _is_valid_host(lines.host):
                return None
            self._last_lines = lines
        # By position, because each request makes one: in the order of Head and RequestHead.
        head = RequestHead(
            "1.1",
            lines.fields,
            lines.options,
            True,
            None,
            False,
            False,
            method,
            target,
            lines.host or b"",
            lines.reserved,
        )
        head.all_end_to_end = lines.all_end_to_end
        head.cached_lines = lines.end_to_end_lines
        head.drop_forwarding = self._drop_forwarding
        return head

    def resume(self) -> list[Event]:
        """
        Continue with HTTP after a request whose upgrade was not granted.

        Returns:
            The events of what was held back.
        """
        rest, self._rest = self._rest, None
        if rest is None or self.closed:
            return []
        if self._reset_llhttp() and rest:
            self._read(rest)
            self._between_messages = self._ended and self._extent.at_start
        return self._take_events()

    def take_rest(self) -> bytes:
        """
        Close the parser after a granted upgrade.

        Returns:
            The bytes that followed the request.
        """
        rest, self._rest = self._rest or b"", b""
        self.closed = True
        return rest

    def on_message_begin(self) -> None:
        """Start a request."""
        if self._ended and self._last_head is not None and not self._last_head.keep_alive:
            self._refuse(RemoteProtocolError("malformed_message", defect="a request follows the last one"))
        self._start_head()
        self.in_head = True
        self._ended = False
        self._target = b""

    def on_url(self, data: bytes) -> None:
        """Take a piece of the target."""
        self._target += data
        self._head_size += len(data)
        if self._head_size > self._head_limit:
            self._refuse(RemoteProtocolError("head_too_large", limit=self._head_limit))

    def on_headers_complete(self) -> None:
        """Check the complete head."""
        parser = self._parser
        method = parser.get_method()
        self._last_head = None
        # The rest of "GET / HTTP/1.1" and the line ends of that and of the empty line.
        self._check_size(len(method) + 14)
        llhttp_stops = parser.should_upgrade()
        try:
            head = _request_head(
                method,
                self._target,
                parser.get_http_version(),
                self._fields,
                self._interpreted,
                keep_alive=parser.should_keep_alive(),
                llhttp_stops=llhttp_stops,
                drop_forwarding=self._drop_forwarding,
            )
        except RemoteProtocolError as error:
            self._refuse(error)
        if self._extent.irregular:
            defect = "its request line is not method, target and version with one space between"
            self._refuse(RemoteProtocolError("malformed_message", defect=defect))
        self._finish_head()
        self.in_head = False
        self._last_head = head
        self._stops_before_body = llhttp_stops and head.has_body
        self._extent.head_ended(head.length, chunked=head.chunked)
        self._events.append(head)

    def on_message_complete(self) -> None:
        """End the request."""
        if self._stops_before_body:
            return
        trailers = self._collecting
        if trailers:
            self._check_size(LAST_CHUNK_SIZE)
            # llhttp would obey such a trailer; a reader that evaluates heads only would not.
            if any(FIELD_CLASSES[name][0] in _CONNECTION for name, _ in trailers):
                self._refuse(_field_refused("Connection", "it is in the trailers"))
        self._octets_since_event = 0
        self._ended = True
        self._extent.restart()
        self._events.append(End(trailers))

    def _read(self, data: bytes) -> None:
        """Feed llhttp in pieces that never reach from one request into the next."""
        begin, size = 0, len(data)
        while begin < size:
            end = self._extent.end(data, begin)
            stopped_at = self._feed(self._parser, data if end - begin == size else data[begin:end])
            if self.closed:
                return
            head = self._last_head
            if stopped_at is None:
                begin = end
                if not self._reads_body or not self._ended:
                    continue
            else:
                begin += stopped_at
                if head is not None and head.upgrade:
                    self._hold(data[begin:])
                    return
                if head is not None and self._stops_before_body:
                    self._stops_before_body, self._reads_body = False, True
                    self._parser = _parser_of_body(self, head)
                    continue
            # llhttp stops for each upgrade, also for one that is ignored, and is not the one that began the request
            # where that has a body.
            if not self._reset_llhttp():
                return

    def _hold(self, rest: bytes) -> None:
        self._rest = rest
        if len(rest) > self._limits.head:
            self._rest = b""
            super()._close(RemoteProtocolError("too_much_held_back", limit=self._limits.head))

    def _reset_llhttp(self) -> bool:
        self._parser = httptools.HttpRequestParser(self)
        self._reads_body = False
        if self._last_head is not None and not self._last_head.keep_alive:
            self.closed = True
        return not self.closed

    def _close(self, error: RemoteProtocolError) -> None:
        # What follows a request with "close" is not read (RFC 9112 section 9.6): this is the end and not a defect.
        if self._ended and self._last_head is not None and not self._last_head.keep_alive:
            self.closed = True
            return
        super()._close(error)


class _BodyCallbacks:
    """Passes on to a parser what llhttp reads of a request behind its head."""

    def __init__(self, parser: RequestParser) -> None:
        self._parser = parser
        self._in_body = False
        self.on_body = parser.on_body
        self.on_message_complete = parser.on_message_complete

    def on_headers_complete(self) -> None:
        """The trailers follow."""
        self._in_body = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one field of the trailers."""
        if self._in_body:
            self._parser.on_header(name, value)


def _parser_of_body(parser: RequestParser, head: RequestHead) -> httptools.HttpRequestParser:
    """
    Return an llhttp that reads the body of a request whose upgrade is ignored.

    It has read a head with the same framing: at a request for another protocol llhttp ends with the head.
    """
    llhttp = httptools.HttpRequestParser(_BodyCallbacks(parser))
    framing = b"Transfer-Encoding: chunked" if head.chunked else b"Content-Length: %d" % (head.length or 0)
    llhttp.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
    return llhttp


def _request_head(
    method: bytes,
    target: bytes,
    version: str,
    fields: list[Field],
    interpreted: list[InterpretedField],
    *,
    keep_alive: bool,
    llhttp_stops: bool,
    drop_forwarding: bool,
) -> RequestHead:
    if version not in VERSIONS:
        raise RemoteProtocolError("version_refused", version=version)
    if method == b"CONNECT":
        raise RemoteProtocolError("method_refused", method="CONNECT")
    if method in _FOREIGN_METHODS:
        raise RemoteProtocolError("method_unknown")
    length, chunked, options, upgrades, hosts, reserved, all_end_to_end = read_framing(interpreted, version)
    upgrade = bool(upgrades) and b"upgrade" in options and _check_upgrade(upgrades, llhttp_stops=llhttp_stops)
    if upgrade and (chunked or length or version == "1.0"):
        # RFC 9110 section 7.8: any upgrade may be ignored, one of HTTP/1.0 must be.
        upgrade = False
    if len(hosts) != 1 and (hosts or version != "1.0"):
        raise RemoteProtocolError("host_invalid", defect="it occurs twice" if hosts else "it is missing")
    # HTTP/1.0 has no Host (RFC 9112 section 3.2); the authority of a target in absolute form is one all the same.
    host = hosts[0] if hosts else _authority(target)
    if host is not None:
        _check_host(host)
    host = host or b""
    _check_target(method, target, host)
    keep_alive = keep_alive and b"close" not in options
    # By position, because each request makes one: in the order of Head and RequestHead.
    head = RequestHead(
        version, fields, options, keep_alive, length, chunked, upgrade, method, target, host, reserved or {}
    )
    head.drop_forwarding = drop_forwarding
    if all_end_to_end:
        head.all_end_to_end = True
    if method in _WITH_MAX_FORWARDS:
        _decrement_max_forwards(head)
    return head


def _decrement_max_forwards(head: RequestHead) -> None:
    """Read Max-Forwards and forward one less (RFC 9110 section 7.6.2)."""
    values = head.values(_MAX_FORWARDS)
    if not values:
        return
    if len(values) > 1 or not (values[0].isascii() and values[0].isdigit()):
        raise _field_refused("Max-Forwards", "it is not one whole number")
    digits = values[0].lstrip(b"0")
    head.max_forwards = received = min(int(digits[:11] or b"0"), MAX_FORWARDS)
    forwarded = b"%d" % max(received - 1, 0)
    head.cached_lines = encode_fields(
        (name, forwarded if FIELD_CLASSES[name][0] == _MAX_FORWARDS else value) for name, value in head.end_to_end
    )


def _check_upgrade(upgrades: tuple[bytes, ...], *, llhttp_stops: bool) -> bool:
    """Return whether a requested upgrade can be forwarded; refuse one on which llhttp does not stop."""
    accepted = True
    for protocol in b",".join(upgrades).split(b","):
        name, slash, number = protocol.strip(b" \t").partition(b"/")
        if not llhttp_stops or not is_token(name) or (slash and not is_token(number)):
            raise _field_refused("Upgrade", "it is not a list of protocols")
        accepted = accepted and name.lower() not in _IGNORED_UPGRADES
    return accepted


@lru_cache(maxsize=256)
def _check_host(host: bytes) -> None:
    """Check the value of Host; valid ones are cached, because most requests name one of few hosts."""
    match = _HOST.match(host)
    if match is None or len(host) > _HOST_LIMIT or ((port := match[1]) and int(port) > 65535):
        raise RemoteProtocolError("host_invalid", defect="its value is not a host and port")
    if host.startswith(b"["):
        try:
            ipaddress.IPv6Address(host[1 : host.index(b"]")].decode("ascii"))
        except ValueError as error:
            raise RemoteProtocolError("host_invalid", defect="its value is not an IPv6 address") from error


def _is_valid_host(host: bytes) -> bool:
    try:
        _check_host(host)
    except RemoteProtocolError:
        return False
    return True


def _check_target(method: bytes, target: bytes, host: bytes) -> None:
    if b"#" in target:
        raise RemoteProtocolError("target_invalid", defect="it has a fragment")
    if target.startswith(b"/"):
        return
    if target == b"*":
        if method != b"OPTIONS":
            raise RemoteProtocolError("target_invalid", defect="* requires OPTIONS")
        return
    absolute = _ABSOLUTE.match(target)
    if absolute is None:
        raise RemoteProtocolError("target_invalid", defect="it is neither a path nor an http or https address")
    port = _DEFAULT_PORTS[absolute[1].lower()]
    if _without_port(absolute[2], port) != _without_port(host, port):
        raise RemoteProtocolError("target_invalid", defect="its authority differs from the Host field")


def _authority(target: bytes) -> bytes | None:
    """The authority of a target in absolute form; None for another one."""
    absolute = _ABSOLUTE.match(target)
    return None if absolute is None else absolute[2]


def _without_port(authority: bytes, default: bytes) -> bytes:
    """Return an authority in lower case, without a port that is the default or empty (RFC 9110 section 4.2.3)."""
    lower = authority.lower()
    return lower.removesuffix(default) if lower.endswith(default) else lower.removesuffix(b":")


def _field_refused(field: str, defect: str) -> RemoteProtocolError:
    return RemoteProtocolError("field_refused", field=field, defect=defect)
