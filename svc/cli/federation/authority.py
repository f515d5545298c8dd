"""The trust domain of an authority, over its federation socket: HTTP on a Unix socket of this machine."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, IncompleteRead
from typing import Final
from urllib.parse import urlencode

from svc.cli.errors import AuthorityRefused, AuthorityUnreachable
from svc.cli.federation.side import Exported, ImportRequest
from svc.federation.package import BootstrapPackage
from svc.strictjson import JsonRefused, dumps, loads_object
from svc.workload.address import socket_path

#: Much longer than an authority needs, even on a slow disk.
SECONDS: Final = 30.0
#: A package in JSON, or the state of all peers.
MAX_ANSWER: Final = 1024 * 1024


class AuthoritySide:
    """
    An authority.

    Args:
        address: its ``federation.socket``, as ``unix:///path``.

    Raises:
        SocketAddressInvalid: it is no such address.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._path = socket_path(address)

    def export(self) -> Exported:
        """See :class:`svc.cli.federation.side.Side`."""
        answer = self._ask("GET", "/v1/bootstrap-package")
        package = BootstrapPackage.parse(dumps(answer.pop("package", None)))
        package.verify()
        return Exported(package, answer)

    def import_package(self, request: ImportRequest) -> Mapping[str, object]:
        """See :class:`svc.cli.federation.side.Side`."""
        flags = {"rebootstrap": request.rebootstrap, "force": request.force}
        query = urlencode({"expect": request.expected, **{name: "1" for name, given in flags.items() if given}})
        body = request.package.package.serialize()
        return self._ask("POST", f"/v1/import?{query}", body)

    def info(self) -> Mapping[str, object]:
        """See :class:`svc.cli.federation.side.Side`."""
        found = self._ask("GET", "/v1/federation")
        if "reference" not in found:
            raise AuthorityUnreachable("authority_foreign", address=self._address, status=200)
        return found

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, object]:
        connection = _UnixConnection(self._path)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            status, data = response.status, response.read(MAX_ANSWER + 1)
            if response.length and len(data) <= MAX_ANSWER:
                raise IncompleteRead(data, response.length)
        except (OSError, HTTPException) as error:
            ended = "the connection ended within the answer" if isinstance(error, IncompleteRead) else ""
            detail = ended or getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise AuthorityUnreachable(address=self._address, detail=detail.lower()) from error
        finally:
            connection.close()
        try:
            answer = loads_object(data, max_bytes=MAX_ANSWER)
        except JsonRefused as error:
            raise AuthorityUnreachable("authority_foreign", address=self._address, status=status) from error
        if status == 200:
            return answer
        message, advice, reason = (str(answer.get(name, "")) for name in ("message", "hint", "reason"))
        if not message:
            raise AuthorityUnreachable("authority_foreign", address=self._address, status=status)
        raise AuthorityRefused(message=message, advice=advice, detail_reason=reason)


class _UnixConnection(HTTPConnection):
    """HTTP/1.1 over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the path in place of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
