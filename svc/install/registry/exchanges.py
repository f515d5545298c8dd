"""
Requests to one registry with authentication, again where that may help.

Owns the tokens. A request that the registry answers with 401 is sent once more, with a new token.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn
from urllib.parse import urlencode, urljoin, urlsplit

from twisted.internet.task import deferLater
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer, IResponse

from svc.install.registry.challenges import Challenge, choose_challenge, parse_challenges, scopes_for
from svc.install.registry.connections import Connections
from svc.install.registry.credentials import Credentials
from svc.install.registry.errors import ContentMissing, RegistryError, RegistryInterrupted
from svc.install.registry.references import Host
from svc.install.registry.requests import USER_AGENT, Answer, Requests, error_code, json_in, octets
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

    Attributes:
        requests: those without authentication, which read bodies too.
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
        self._reactor, self._random = reactor, random
        self.requests = Requests(reactor, host, connections, plain=plain, now=now)
        self._credentials = credentials
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
        return await self.requests.answer(response, limit, repository)

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
        Send a request once; its body is left to be read by ``requests``.

        Returns:
            A response that is neither 401, 429, 5xx nor a redirect.

        Raises:
            RegistryInterrupted: there is none, and the next attempt may bring one.
            RegistryError: the registry does not accept the credentials, or redirects to where nobody follows.
        """
        url = self.requests.checked(urljoin(self.requests.base, url))
        key = tuple(sorted(scopes))
        for renewed in (False, True):
            response = await self.requests.follow(method, url, self._authorizations.get(key, ""), headers or {}, body)
            if response.code != 401:
                return response
            fields = response.headers.getRawHeaders("www-authenticate") or []
            await self.requests.drop(response)
            self._authorizations.pop(key, None)
            challenge = choose_challenge(parse_challenges(fields))
            if renewed or challenge is None:
                break
            self._authorizations[key] = await self._authorize(challenge, key)
        raise RegistryError("registry_unauthorized", registry=self.host, account=self.account())

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
        realm = self.requests.checked(challenge.parameters["realm"])
        service = challenge.parameters.get("service", "")
        known = self._credentials
        fields = Headers({"user-agent": [USER_AGENT], "accept": ["application/json"]})
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
            response = await self.requests.send("POST", realm, fields, lambda: octets(urlencode(form).encode()))
        else:
            if known is not None:
                fields.setRawHeaders("authorization", [_basic(known)])
            query = urlencode([*asked.items(), *(("scope", each) for each in scopes)])
            separator = "&" if "?" in realm else "?"
            response = await self.requests.send("GET", f"{realm}{separator}{query}" if query else realm, fields, None)
        data = await self.requests.read(response, _MAX_TOKEN, "")
        if response.code == 429 or response.code >= 500:
            raise self.requests.busy(response)
        if response.code != 200:
            raise RegistryError("registry_unauthorized", registry=self.host, account=self.account())
        token = _token_in(data)
        if token is None:
            host = urlsplit(realm).hostname
            defect = f"{host}, which it names for tokens, gives none"
            raise RegistryError("registry_answer_invalid", registry=self.host, defect=defect)
        return token


def _token_in(data: bytes) -> str | None:
    document = json_in(data)
    if not isinstance(document, dict):
        return None
    token = document.get("token") or document.get("access_token")
    return token if isinstance(token, str) and _TOKEN.match(token) else None


def _basic(known: Credentials) -> str:
    return f"Basic {base64.b64encode(f'{known.username}:{known.password}'.encode()).decode('ascii')}"
