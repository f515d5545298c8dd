"""
Requests to a registry and to where it redirects, and which answers mean that trying again may help.

Owns what may be sent where: credentials go to the registry alone, and nothing goes in the clear where the registry does
not. Who asks is decided in ``exchanges``.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from treq import collect
from treq.client import HTTPClient
from twisted.internet.error import ConnectionAborted
from twisted.web.client import FileBodyProducer
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer, IResponse

import svc
from svc import strictjson
from svc.install.registry.connections import Connections
from svc.install.registry.errors import RegistryError, RegistryInterrupted
from svc.install.registry.references import Host
from svc.install.registry.resuming import seconds_to_wait

USER_AGENT: Final = f"svc/{svc.__version__}"
_MAX_REDIRECTS: Final = 5
_MAX_ERROR: Final = 64 * 1024
_CODE: Final = re.compile(r"[A-Z][A-Z_]{0,63}\Z")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Answer:
    """A response whose body was read."""

    code: int
    headers: Headers
    data: bytes

    def field(self, name: str) -> str:
        """Return the first value of a field; empty where there is none."""
        return field_of(self.headers, name)


def field_of(headers: Headers, name: str) -> str:
    """Return the first value of a field; empty where there is none."""
    return (headers.getRawHeaders(name) or [""])[0]


class Requests:
    """
    Requests of one registry, without authentication.

    Args:
        reactor: the reactor.
        host: of the registry.
        connections: to it.
        plain: whether it is asked by HTTP.
        now: gives the time, aware.

    Attributes:
        base: the URL of its API.
    """

    def __init__(
        self, reactor: Any, host: Host, connections: Connections, *, plain: bool, now: Callable[[], datetime]
    ) -> None:
        self._reactor, self._host, self._connections, self._now = reactor, host, connections, now
        self._schemes = ("https", "http") if plain else ("https",)
        self.base = f"{'http' if plain else 'https'}://{host.served_by}/v2/"
        self._client = HTTPClient(connections)

    async def follow(
        self,
        method: str,
        url: str,
        authorization: str,
        headers: Mapping[str, str],
        body: Callable[[], IBodyProducer] | None,
    ) -> IResponse:
        """
        Send a request, and follow redirects.

        Args:
            method: the method.
            url: where to.
            authorization: the value of ``Authorization``, for the registry alone; empty for none.
            headers: beside those.
            body: makes the body.

        Raises:
            RegistryInterrupted: there is no answer, or one that asks to try again.
            RegistryError: a redirect is not followed.
        """
        at = url
        for _ in range(_MAX_REDIRECTS + 1):
            response = await self.send(method, at, self._fields(at, authorization, headers), body)
            elsewhere = not self._is_own(at)
            if response.code in _REDIRECTS and method in ("GET", "HEAD"):
                location = field_of(response.headers, "location")
                await self.drop(response)
                at = self.checked(urljoin(at, location))
                continue
            if elsewhere and 400 <= response.code < 500 and response.code not in (416, 429):
                # The signature in a URL has ended: the registry gives a new one.
                await self.drop(response)
                host = urlsplit(at).hostname
                defect = f"{host}, to which it redirects, answers {response.code}"
                raise RegistryInterrupted("registry_cut_off", registry=self._host, defect=defect)
            if response.code == 429 or response.code >= 500:
                await self.drop(response)
                raise self.busy(response)
            return response
        raise RegistryError("registry_redirect_refused", registry=self._host, defect="it redirects again and again")

    def busy(self, response: IResponse) -> RegistryInterrupted:
        """Return what 429 and 5xx mean."""
        after = seconds_to_wait(field_of(response.headers, "retry-after"), self._now())
        if response.code == 429:
            return RegistryInterrupted("registry_busy", registry=self._host, seconds=f"{after:g}", after=after)
        return RegistryInterrupted("registry_failing", registry=self._host, answer=response.code, after=after)

    def _fields(self, url: str, authorization: str, headers: Mapping[str, str]) -> Headers:
        fields = Headers({name: [value] for name, value in headers.items()})
        fields.setRawHeaders("user-agent", [USER_AGENT])
        if authorization and self._is_own(url):
            fields.setRawHeaders("authorization", [authorization])
        return fields

    def _is_own(self, url: str) -> bool:
        return _origin(url) == _origin(self.base)

    async def send(self, method: str, url: str, fields: Headers, body: Callable[[], IBodyProducer] | None) -> IResponse:
        """Send a request as it is, and follow nothing."""
        try:
            response: IResponse = await self._client.request(
                method,
                url,
                headers=fields,
                data=None if body is None else body(),
                allow_redirects=False,
                unbuffered=True,
                reactor=self._reactor,
            )
        except Exception as error:
            raise self._connections.failed(error) from error
        return response

    async def read(self, response: IResponse, limit: int, repository: str) -> bytes:
        """Read a body, up to a limit in octets."""
        data = bytearray()

        def add(part: bytes) -> None:
            data.extend(part)
            if len(data) > limit:
                raise RegistryError(
                    "registry_content_too_large", registry=self._host, repository=repository, limit=limit
                )

        await self.collect(response, add)
        return bytes(data)

    async def drop(self, response: IResponse) -> None:
        """Read a body that says nothing new, so that its connection can be used again."""
        try:
            await self.read(response, _MAX_ERROR, "")
        except RegistryError:
            return

    async def answer(self, response: IResponse, limit: int, repository: str) -> Answer:
        """Read the body of a response, up to a limit in octets."""
        return Answer(response.code, response.headers, await self.read(response, limit, repository))

    async def collect(self, response: IResponse, take: Callable[[bytes], None]) -> None:
        """
        Read a body.

        Args:
            response: the response.
            take: gets its octets; what it raises ends the connection, and is raised here.

        Raises:
            RegistryInterrupted: the connection ended before the body.
        """
        try:
            await collect(response, take)
        except (RegistryError, OSError):
            raise
        except Exception as error:
            raise self._connections.failed(error) from error

    async def abandon(self, response: IResponse) -> None:
        """End the connection of a response whose body nobody reads; its length may be wrong."""

        def stop(_data: bytes) -> None:
            raise ConnectionAborted

        with contextlib.suppress(Exception):
            await collect(response, stop)

    def checked(self, url: str) -> str:
        """Return a URL that the registry names, or raise: it must not be in the clear where the registry is not."""
        parts = urlsplit(url)
        if parts.scheme not in self._schemes or not parts.hostname or parts.username is not None:
            shown = f"{parts.scheme}://{parts.hostname or ''}"
            raise RegistryError("registry_redirect_refused", registry=self._host, defect=shown)
        return url


def error_code(data: bytes) -> str:
    """Return the code of the first error in a body; empty for none. The rest of a body is never shown."""
    document = json_in(data)
    errors = document.get("errors") if isinstance(document, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else None
    code = first.get("code") if isinstance(first, dict) else None
    return code if isinstance(code, str) and _CODE.match(code) else ""


def octets(data: bytes) -> IBodyProducer:
    """Return the body of a request."""
    return FileBodyProducer(io.BytesIO(data))


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def json_in(data: bytes) -> object:
    """Return the document in a body; None where there is none."""
    try:
        return strictjson.loads(data, fractions=True)
    except strictjson.JsonRefused:
        return None
