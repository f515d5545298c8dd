"""
Requests to one registry: authentication, redirects, and which answers mean that trying again may help.

Owns the tokens. A request that the registry answers with 401 is sent once more, with a new token.
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NoReturn
from urllib.parse import urlencode, urljoin, urlsplit

from treq import collect
from treq.client import HTTPClient
from twisted.internet.error import ConnectionAborted
from twisted.internet.task import deferLater
from twisted.web.client import FileBodyProducer
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer, IResponse

import svc
from svc import strictjson
from svc.install.registry.challenges import Challenge, choose_challenge, parse_challenges, scopes_for
from svc.install.registry.connections import Connections
from svc.install.registry.credentials import Credentials
from svc.install.registry.errors import ContentMissing, RegistryError, RegistryInterrupted
from svc.install.registry.references import Host
from svc.install.registry.resuming import seconds_to_wait
from svc.pacing.backoff import Backoff

#: Attempts in a row that bring nothing.
ATTEMPTS: Final = 6
#: Seconds; a registry that asks to wait longer is given up.
LONGEST_WAIT: Final = 120.0
_MAX_REDIRECTS: Final = 5
_MAX_ERROR: Final = 64 * 1024
_MAX_TOKEN: Final = 256 * 1024
#: Between attempts.
PACE: Final = Backoff(0.5, 10.0)
_CODE: Final = re.compile(r"[A-Z][A-Z_]{0,63}\Z")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+\Z")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CLIENT: Final = "svc"


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


class Retries:
    """
    The attempts of one transfer: those in a row that bring nothing are bounded, and wait longer each time.

    Args:
        reactor: for the pauses.
        random: gives a number from 0 to 1.
        pace: how long they are.
    """

    def __init__(self, reactor: Any, random: Callable[[], float], pace: Backoff) -> None:
        self._reactor, self._random, self._pace = reactor, random, pace
        self._failures = 0

    def moved(self) -> None:
        """Forget the attempts before: something new has come."""
        self._failures = 0

    async def pause(self, error: RegistryInterrupted) -> None:
        """
        Wait before the next attempt.

        Raises:
            RegistryInterrupted: there were enough, or the registry asks to wait too long.
        """
        self._failures += 1
        seconds = max(self._pace.pause(self._failures, self._random()), error.after)
        if self._failures >= ATTEMPTS or seconds > LONGEST_WAIT:
            raise error
        await deferLater(self._reactor, seconds)


class Exchanges:
    """
    Requests to one registry.

    Args:
        reactor: the reactor.
        host: of the registry.
        connections: to it.
        plain: whether it is asked by HTTP.
        credentials: None for none.
        now: gives the time, aware.
        random: gives a number from 0 to 1.
        pace: the pauses between attempts.
    """

    def __init__(
        self,
        reactor: Any,
        host: Host,
        connections: Connections,
        *,
        plain: bool,
        credentials: Credentials | None,
        now: Callable[[], datetime],
        random: Callable[[], float],
        pace: Backoff = PACE,
    ) -> None:
        self.host = host
        self._pace = pace
        self._reactor, self._connections, self._random, self._now = reactor, connections, random, now
        self._schemes = ("https", "http") if plain else ("https",)
        self.base = f"{'http' if plain else 'https'}://{host.served_by}/v2/"
        self._credentials = credentials
        self._client = HTTPClient(connections)
        self._authorizations: dict[tuple[str, ...], str] = {}

    def retries(self) -> Retries:
        """Begin to count the attempts of a transfer."""
        return Retries(self._reactor, self._random, self._pace)

    def account(self) -> str:
        """Say as whom the registry is asked."""
        return "without credentials" if self._credentials is None else str(self._credentials)

    async def ask(
        self,
        method: str,
        url: str,
        *,
        scopes: Sequence[str],
        limit: int,
        repository: str,
        headers: Mapping[str, str] | None = None,
        body: Callable[[], IBodyProducer] | None = None,
    ) -> Answer:
        """
        Send a request, again while it is interrupted, and read the body.

        Args:
            method: the method.
            url: absolute, or relative to ``/v2/``.
            scopes: what it needs, such as ``repository:acme/svc:pull``.
            limit: of the body, in octets.
            repository: for errors.
            headers: beside those for authentication.
            body: makes the body, anew for each attempt.

        Raises:
            RegistryError: there was no answer, or its body is too large.
        """
        retries = self.retries()
        while True:
            try:
                return await self.ask_once(
                    method, url, scopes=scopes, limit=limit, repository=repository, headers=headers, body=body
                )
            except RegistryInterrupted as error:
                await retries.pause(error)

    async def ask_once(
        self,
        method: str,
        url: str,
        *,
        scopes: Sequence[str],
        limit: int,
        repository: str,
        headers: Mapping[str, str] | None = None,
        body: Callable[[], IBodyProducer] | None = None,
    ) -> Answer:
        """Send a request once and read the body; see :meth:`ask`."""
        response = await self.send(method, url, scopes=scopes, headers=headers, body=body)
        return await self.answer(response, limit, repository)

    async def answer(self, response: IResponse, limit: int, repository: str) -> Answer:
        """Read the body of a response, up to a limit in octets."""
        return Answer(response.code, response.headers, await self._read(response, limit, repository))

    async def send(
        self,
        method: str,
        url: str,
        *,
        scopes: Sequence[str],
        headers: Mapping[str, str] | None = None,
        body: Callable[[], IBodyProducer] | None = None,
    ) -> IResponse:
        """
        Send a request once; its body is left to be read by :meth:`collect`.

        Returns:
            A response that is neither 401, 429, 5xx nor a redirect.

        Raises:
            RegistryInterrupted: there is none, and the next attempt may bring one.
            RegistryError: the registry does not accept the credentials, or redirects to where nobody follows.
        """
        url = self.checked(urljoin(self.base, url))
        key = tuple(sorted(scopes))
        for renewed in (False, True):
            response = await self._follow(method, url, key, headers or {}, body)
            if response.code != 401:
                return response
            fields = response.headers.getRawHeaders("www-authenticate") or []
            await self._drop(response)
            self._authorizations.pop(key, None)
            challenge = choose_challenge(parse_challenges(fields))
            if renewed or challenge is None:
                break
            self._authorizations[key] = await self._authorize(challenge, key)
        raise RegistryError("registry_unauthorized", registry=self.host, account=self.account())

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

    def refuse(self, answer: Answer, action: str, repository: str, reference: str) -> NoReturn:
        """
        Raise what an answer means that brings nothing.

        Args:
            answer: the answer.
            action: what was asked for: ``pull``, ``push``.
            repository: where.
            reference: of what.
        """
        if answer.code == 404:
            raise ContentMissing(registry=self.host, repository=repository, reference=reference)
        if answer.code == 403:
            raise RegistryError(
                "registry_forbidden",
                registry=self.host,
                action=action,
                repository=repository,
                account=self.account(),
            )
        code = error_code(answer.data)
        text = f"{answer.code} {code}".strip()
        raise RegistryError("registry_refused", registry=self.host, action=action, repository=repository, answer=text)

    def checked(self, url: str) -> str:
        """Return a URL that the registry names, or raise: it must not be in the clear where the registry is not."""
        parts = urlsplit(url)
        if parts.scheme not in self._schemes or not parts.hostname or parts.username is not None:
            shown = f"{parts.scheme}://{parts.hostname or ''}"
            raise RegistryError("registry_redirect_refused", registry=self.host, defect=shown)
        return url

    async def _follow(
        self,
        method: str,
        url: str,
        key: tuple[str, ...],
        headers: Mapping[str, str],
        body: Callable[[], IBodyProducer] | None,
    ) -> IResponse:
        at = url
        for _ in range(_MAX_REDIRECTS + 1):
            response = await self._request(method, at, self._fields(at, key, headers), body)
            elsewhere = not self._is_own(at)
            if response.code in _REDIRECTS and method in ("GET", "HEAD"):
                location = field_of(response.headers, "location")
                await self._drop(response)
                at = self.checked(urljoin(at, location))
                continue
            if elsewhere and 400 <= response.code < 500 and response.code not in (416, 429):
                # The signature in a URL has ended: the registry gives a new one.
                await self._drop(response)
                host = urlsplit(at).hostname
                defect = f"{host}, to which it redirects, answers {response.code}"
                raise RegistryInterrupted("registry_cut_off", registry=self.host, defect=defect)
            if response.code == 429 or response.code >= 500:
                await self._drop(response)
                raise self._busy(response)
            return response
        raise RegistryError("registry_redirect_refused", registry=self.host, defect="it redirects again and again")

    def _busy(self, response: IResponse) -> RegistryInterrupted:
        after = seconds_to_wait(field_of(response.headers, "retry-after"), self._now())
        if response.code == 429:
            return RegistryInterrupted("registry_busy", registry=self.host, seconds=f"{after:g}", after=after)
        return RegistryInterrupted("registry_failing", registry=self.host, answer=response.code, after=after)

    def _fields(self, url: str, key: tuple[str, ...], headers: Mapping[str, str]) -> Headers:
        fields = Headers({name: [value] for name, value in headers.items()})
        fields.setRawHeaders("user-agent", [f"svc/{svc.__version__}"])
        if key in self._authorizations and self._is_own(url):
            fields.setRawHeaders("authorization", [self._authorizations[key]])
        return fields

    def _is_own(self, url: str) -> bool:
        return _origin(url) == _origin(self.base)

    async def _request(
        self, method: str, url: str, fields: Headers, body: Callable[[], IBodyProducer] | None
    ) -> IResponse:
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

    async def _read(self, response: IResponse, limit: int, repository: str) -> bytes:
        data = bytearray()

        def add(part: bytes) -> None:
            data.extend(part)
            if len(data) > limit:
                raise RegistryError(
                    "registry_content_too_large", registry=self.host, repository=repository, limit=limit
                )

        await self.collect(response, add)
        return bytes(data)

    async def _drop(self, response: IResponse) -> None:
        """Read a body that says nothing new, so that its connection can be used again."""
        try:
            await self._read(response, _MAX_ERROR, "")
        except RegistryError:
            return

    # -- Authentication -----------------------------------------------------------------------------------------------

    async def _authorize(self, challenge: Challenge, key: tuple[str, ...]) -> str:
        known = self._credentials
        if known is not None and known.registry_token:
            return f"Bearer {known.registry_token}"
        if challenge.scheme == "basic":
            if known is None or not known.username:
                raise RegistryError("registry_unauthorized", registry=self.host, account=self.account())
            return _basic(known)
        return f"Bearer {await self._token(challenge, scopes_for(challenge, key))}"

    async def _token(self, challenge: Challenge, scopes: Sequence[str]) -> str:
        realm = self.checked(challenge.parameters["realm"])
        service = challenge.parameters.get("service", "")
        known = self._credentials
        fields = Headers({"user-agent": [f"svc/{svc.__version__}"], "accept": ["application/json"]})
        asked = {"service": service} if service else {}
        if known is not None and known.identity_token:
            form = {
                "grant_type": "refresh_token",
                "client_id": _CLIENT,
                "refresh_token": known.identity_token,
                "scope": " ".join(scopes),
                **asked,
            }
            fields.setRawHeaders("content-type", ["application/x-www-form-urlencoded"])
            response = await self._request("POST", realm, fields, lambda: octets(urlencode(form).encode()))
        else:
            if known is not None:
                fields.setRawHeaders("authorization", [_basic(known)])
            query = urlencode([*asked.items(), *(("scope", each) for each in scopes)])
            separator = "&" if "?" in realm else "?"
            response = await self._request("GET", f"{realm}{separator}{query}" if query else realm, fields, None)
        data = await self._read(response, _MAX_TOKEN, "")
        if response.code == 429 or response.code >= 500:
            raise self._busy(response)
        if response.code != 200:
            raise RegistryError("registry_unauthorized", registry=self.host, account=self.account())
        token = _token_in(data)
        if token is None:
            host = urlsplit(realm).hostname
            defect = f"{host}, which it names for tokens, gives none"
            raise RegistryError("registry_answer_invalid", registry=self.host, defect=defect)
        return token


def error_code(data: bytes) -> str:
    """Return the code of the first error in a body; empty for none. The rest of a body is never shown."""
    document = _document(data)
    errors = document.get("errors") if isinstance(document, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else None
    code = first.get("code") if isinstance(first, dict) else None
    return code if isinstance(code, str) and _CODE.match(code) else ""


def _token_in(data: bytes) -> str | None:
    document = _document(data)
    if not isinstance(document, dict):
        return None
    token = document.get("token") or document.get("access_token")
    return token if isinstance(token, str) and _TOKEN.match(token) else None


def _document(data: bytes) -> object:
    try:
        return strictjson.loads(data, fractions=True)
    except strictjson.JsonRefused:
        return None


def _basic(known: Credentials) -> str:
    return f"Basic {base64.b64encode(f'{known.username}:{known.password}'.encode()).decode('ascii')}"


def octets(data: bytes) -> IBodyProducer:
    """Return the body of a request."""
    return FileBodyProducer(io.BytesIO(data))


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
