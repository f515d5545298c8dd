"""
Requests of one client connection.

Owns what makes a request head acceptable beyond llhttp's strict grammar (RFC 9112 sections 3 and 6, RFC 9110, 7).
"""

from __future__ import annotations

import re
from typing import Final

import httptools

from svc.wire.errors import (
    FieldRefused,
    HeadTooLarge,
    HostInvalid,
    MethodRefused,
    RemoteProtocolError,
    TargetInvalid,
    TransferCodingRefused,
    UpgradeWithBody,
    VersionRefused,
)
from svc.wire.fields import Field, classify, connection_options
from svc.wire.http1.messages import VERSIONS, End, Event, Limits, RequestHead
from svc.wire.http1.parser import Parser

_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~!$&'()*+,;=%-]{1,255})(?::[0-9]{0,5})?\Z")
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?#]*)([/?#].*)?\Z", re.DOTALL)


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

    @property
    def in_head(self) -> bool:
        """Whether a head has begun and not ended."""
        return self._trailers is None and self._unaccounted > 0

    def feed(self, data: bytes) -> list[Event]:
        """
        Read more octets.

        Args:
            data: what came from the client.

        Returns:
            The events they complete, possibly of several requests.
        """
        if self.closed:
            return []
        if self._rest is not None:
            self._rest += data
            return []
        stopped_at = self._feed(self._parser, data)
        if stopped_at is not None and not self.closed:
            self._rest = data[stopped_at:]
        return self._taken()

    def resume(self) -> list[Event]:
        """
        Go on with HTTP after a request whose upgrade was not granted.

        Returns:
            The events of what was held back.
        """
        rest, self._rest = self._rest, None
        if rest is None or self.closed:
            return []
        self._parser = httptools.HttpRequestParser(self)
        return self.feed(rest) if rest else []

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
        self._start_head()
        self._target = b""

    def on_url(self, data: bytes) -> None:
        """A piece of the target."""
        self._target += data
        self._head_size += len(data)
        if self._head_size > self._limits.head:
            self._refuse(HeadTooLarge(limit=self._limits.head))

    def on_headers_complete(self) -> None:
        """The head is whole; judge it."""
        parser = self._parser
        self._last = None
        try:
            head = _request_head(
                parser.get_method(), self._target, parser.get_http_version(), self._fields, parser.should_keep_alive()
            )
        except RemoteProtocolError as error:
            self._refuse(error)
        self._finish_head()
        self._last = head
        self._events.append(head)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._unaccounted = 0
        self._events.append(End(self._trailers or []))

    def _close(self, error: RemoteProtocolError) -> None:
        # What follows a request that said "close" is not read (RFC 9112 section 9.6): no defect, just the end.
        if self._last is not None and not self._last.keep_alive and self._events and type(self._events[-1]) is End:
            self.closed = True
            return
        super()._close(error)


def _request_head(method: bytes, target: bytes, version: str, fields: list[Field], keep_alive: bool) -> RequestHead:
    if version not in VERSIONS:
        raise VersionRefused(version=version)
    if method == b"CONNECT":
        raise MethodRefused(method="CONNECT")
    host: bytes | None = None
    length: int | None = None
    connection: list[bytes] = []
    chunked = upgrade = False
    reserved: dict[bytes, bytes] = {}
    for name, value in fields:
        lower, special = classify(name)
        if lower == b"host":
            if host is not None:
                raise HostInvalid(defect="it stands twice")
            host = value
        elif lower == b"content-length":
            length = int(value)
        elif special:
            if lower == b"connection":
                connection.append(value)
            elif lower == b"transfer-encoding":
                if value.lower() != b"chunked" or chunked or version == "1.0":
                    raise TransferCodingRefused()
                chunked = True
            elif lower == b"upgrade":
                upgrade = True
            elif lower.replace(b"_", b"-").startswith(b"svc-"):
                canonical = lower.replace(b"_", b"-")
                if canonical in reserved:
                    raise FieldRefused(field=name.decode("latin-1"), defect="it stands twice")
                reserved[canonical] = value
    options = connection_options(connection) if connection else frozenset()
    upgrade = upgrade and b"upgrade" in options
    if upgrade and (chunked or length):
        raise UpgradeWithBody()
    if upgrade and version == "1.0":
        raise FieldRefused(field="Upgrade", defect="HTTP/1.0 has no upgrade")
    if host is None:
        raise HostInvalid(defect="it is missing")
    if not _HOST.match(host):
        raise HostInvalid(defect="its value is no host and port")
    _judge_target(method, target, host)
    return RequestHead(
        version=version,
        fields=fields,
        options=options,
        keep_alive=keep_alive,
        length=length,
        chunked=chunked,
        upgrade=upgrade,
        method=method,
        target=target,
        host=host,
        reserved=reserved,
    )


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
