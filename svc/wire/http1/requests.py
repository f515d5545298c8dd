"""
Requests of one client connection.

Owns what makes a request head acceptable beyond llhttp's strict grammar (RFC 9112 sections 3 and 6, RFC 9110, 7).
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

import httptools

from svc.wire.errors import (
    FieldRefused,
    HeadTooLarge,
    HostInvalid,
    MalformedMessage,
    MethodRefused,
    MethodUnknown,
    RemoteProtocolError,
    TargetInvalid,
    TooMuchHeldBack,
    UpgradeWithBody,
    VersionRefused,
)
from svc.wire.fields import CLASSES, Field, is_token
from svc.wire.http1.framing import Telling, read_framing
from svc.wire.http1.messages import VERSIONS, End, Event, Limits, RequestHead
from svc.wire.http1.parser import LAST_CHUNK, Parser
from svc.wire.http1.quick import FieldLines, read_lines, split_request

#: RFC 3986 section 3.2: a name or IPv4 address, or something in brackets, and a port that may be empty.
_HOST: Final = re.compile(
    rb"(?:(?:[A-Za-z0-9._~!$&'()*+,;=-]++|%[0-9A-Fa-f]{2})+|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{0,5}))?\Z"
)
_HOST_LIMIT: Final = 255 + len(":65535")
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?#]*)([/?#].*)?\Z", re.DOTALL)

#: What llhttp knows from RTSP and Icecast; it accepts these protocols in the place of HTTP.
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

#: Other names of HTTP itself. Requests inside such a connection would pass every decision by, so the wish is not heard,
#: as RFC 9110 section 7.8 allows.
_AGAIN_HTTP: Final = frozenset({b"h2", b"h2c", b"h3", b"http", b"tls"})


class RequestParser(Parser):
    """
    Reads the requests of one connection.

    After a head with ``upgrade`` the parser holds what follows its End back: either :meth:`resume` reads it as the next
    request, or :meth:`take_rest` hands it over as octets of the other protocol.

    Args:
        limits: what one request may use.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits or Limits())
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._last: RequestHead | None = None
        self._rest: bytes | None = None
        #: Whether a head has begun and not ended.
        self.in_head = False
        self._ended = False
        #: Whether llhttp stands in front of a message, where it takes line ends for nothing.
        self._between = True
        self._lines: FieldLines | None = None

    def feed(self, data: bytes) -> list[Event]:
        """
        Read more octets.

        Args:
            data: what came from the client.

        Returns:
            The events they complete, possibly of several requests.
        """
        if self.closed or not data:
            return []
        if self._rest is not None:
            self._hold(self._rest + data)
        else:
            if self._between:
                head = self._at_a_glance(data)
                if head is not None:
                    self._last = head
                    self._ended = True
                    return [head, End()]
            self._read(data)
            self._between = self._ended
        events, self._events = self._events, []
        return events

    def _at_a_glance(self, data: bytes) -> RequestHead | None:
        """Read one whole request in the usual form without llhttp, which stands between two messages."""
        parts = split_request(data)
        last = self._last
        # In that form the size of a head is the number of its octets.
        if parts is None or len(data) > self._head_limit or not (last is None or last.keep_alive):
            return None
        method, target, octets = parts
        lines = self._lines
        if lines is None or lines.octets != octets:
            lines = read_lines(octets, self._fields_limit)
            if lines is None or lines.host is None or lines.length is not None or not _good_host(lines.host):
                return None
            self._lines = lines
        # By position, because each request makes one: in the order of Head and RequestHead.
        head = RequestHead(
            "1.1", lines.fields, lines.options, True, None, False, False, method, target, lines.host or b"", {}
        )
        head.travels_whole = lines.whole
        head.onward = lines.onward
        return head

    def resume(self) -> list[Event]:
        """
        Go on with HTTP after a request whose upgrade was not granted.

        Returns:
            The events of what was held back.
        """
        rest, self._rest = self._rest, None
        if rest is None or self.closed:
            return []
        if self._go_on() and rest:
            self._read(rest)
        return self._taken()

    def take_rest(self) -> bytes:
        """
        Give up parsing after a granted upgrade.

        Returns:
            The octets that came behind the request.
        """
        rest, self._rest = self._rest or b"", b""
        self.closed = True
        return rest

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._ended and self._last is not None and not self._last.keep_alive:
            self._refuse(MalformedMessage(defect="a request follows the last one"))
        self._start_head()
        self.in_head = True
        self._ended = False
        self._target = b""

    def on_url(self, data: bytes) -> None:
        """A piece of the target."""
        self._target += data
        self._head_size += len(data)
        if self._head_size > self._head_limit:
            self._refuse(HeadTooLarge(limit=self._head_limit))

    def on_headers_complete(self) -> None:
        """The head is whole; judge it."""
        parser = self._parser
        method = parser.get_method()
        self._last = None
        # The rest of "GET / HTTP/1.1" and the line ends of that and of the empty line.
        self._judge_size(len(method) + 14)
        try:
            head = _request_head(
                method,
                self._target,
                parser.get_http_version(),
                self._fields,
                self._telling,
                keep_alive=parser.should_keep_alive(),
                stops=parser.should_upgrade(),
            )
        except RemoteProtocolError as error:
            self._refuse(error)
        self._finish_head()
        self.in_head = False
        self._last = head
        self._events.append(head)

    def on_message_complete(self) -> None:
        """The request is whole."""
        trailers = self._gathered
        if trailers:
            self._judge_size(LAST_CHUNK)
            # llhttp would follow such a trailer, who reads the head only would not.
            if any(CLASSES[name][0] in _CONNECTION for name, _ in trailers):
                self._refuse(FieldRefused(field="Connection", defect="it stands in the trailers"))
        self._unaccounted = 0
        self._ended = True
        self._events.append(End(trailers))

    def _read(self, data: bytes) -> None:
        while True:
            stopped_at = self._feed(self._parser, data)
            if stopped_at is None or self.closed:
                return
            data = data[stopped_at:]
            if self._last is not None and self._last.upgrade:
                self._hold(data)
                return
            # llhttp stops for each upgrade, also for one that is not heard.
            if not self._go_on() or not data:
                return

    def _hold(self, rest: bytes) -> None:
        self._rest = rest
        if len(rest) > self._limits.head:
            self._rest = b""
            super()._close(TooMuchHeldBack(limit=self._limits.head))

    def _go_on(self) -> bool:
        self._parser = httptools.HttpRequestParser(self)
        if self._last is not None and not self._last.keep_alive:
            self.closed = True
        return not self.closed

    def _close(self, error: RemoteProtocolError) -> None:
        # What follows a request that said "close" is not read (RFC 9112 section 9.6): no defect, just the end.
        if self._ended and self._last is not None and not self._last.keep_alive:
            self.closed = True
            return
        super()._close(error)


_CONNECTION: Final = frozenset({b"connection", b"proxy-connection"})


def _request_head(
    method: bytes,
    target: bytes,
    version: str,
    fields: list[Field],
    telling: list[Telling],
    *,
    keep_alive: bool,
    stops: bool,
) -> RequestHead:
    if version not in VERSIONS:
        raise VersionRefused(version=version)
    if method == b"CONNECT":
        raise MethodRefused(method="CONNECT")
    if method in _FOREIGN_METHODS:
        raise MethodUnknown()
    length, chunked, options, upgrades, hosts, reserved, whole = read_framing(telling, version)
    # llhttp reads no body where it stops for another protocol.
    if stops and (chunked or length):
        raise UpgradeWithBody()
    upgrade = bool(upgrades) and b"upgrade" in options and _judge_upgrade(upgrades, version, stops=stops)
    if len(hosts) != 1:
        raise HostInvalid(defect="it stands twice" if hosts else "it is missing")
    host = hosts[0]
    _judge_host(host)
    _judge_target(method, target, host)
    keep_alive = keep_alive and b"close" not in options
    # By position, because each request makes one: in the order of Head and RequestHead.
    head = RequestHead(
        version, fields, options, keep_alive, length, chunked, upgrade, method, target, host, reserved or {}
    )
    if whole:
        head.travels_whole = True
    return head


def _judge_upgrade(upgrades: tuple[bytes, ...], version: str, *, stops: bool) -> bool:
    """Judge a wish for another protocol; ``stops`` is what llhttp made of it, and both readings must agree."""
    if version == "1.0":
        raise FieldRefused(field="Upgrade", defect="HTTP/1.0 has no upgrade")
    heard = True
    for protocol in b",".join(upgrades).split(b","):
        name, slash, number = protocol.strip(b" \t").partition(b"/")
        if not stops or not is_token(name) or (slash and not is_token(number)):
            raise FieldRefused(field="Upgrade", defect="it is no list of protocols")
        heard = heard and name.lower() not in _AGAIN_HTTP
    return heard


@lru_cache(maxsize=256)
def _judge_host(host: bytes) -> None:
    """Judge the value of Host; what passes is remembered, because most requests name one of few hosts."""
    match = _HOST.match(host)
    if match is None or len(host) > _HOST_LIMIT or ((port := match[1]) and int(port) > 65535):
        raise HostInvalid(defect="its value is no host and port")
    if host.startswith(b"["):
        try:
            ipaddress.IPv6Address(host[1 : host.index(b"]")].decode("ascii"))
        except ValueError as error:
            raise HostInvalid(defect="its value is no IPv6 address") from error


def _good_host(host: bytes) -> bool:
    try:
        _judge_host(host)
    except HostInvalid:
        return False
    return True


def _judge_target(method: bytes, target: bytes, host: bytes) -> None:
    if b"#" in target:
        raise TargetInvalid(defect="it has a fragment")
    if target.startswith(b"/"):
        return
    if target == b"*":
        if method != b"OPTIONS":
            raise TargetInvalid(defect="* goes with OPTIONS only")
        return
    absolute = _ABSOLUTE.match(target)
    if absolute is None:
        raise TargetInvalid(defect="it is neither a path nor an http or https address")
    if absolute[1].lower() != host.lower():
        raise TargetInvalid(defect="its authority is not that of the Host field")
