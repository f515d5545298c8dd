"""
The operator's pages on ``adminAddr``: the web page, and in JSON ``/livez``, ``/readyz``, ``/status``, ``/drain`` and
``/config``; and the page of probes on ``probesAddr``.

There is no authentication. What describes the process is answered only for a request that names the address as an
operator does: otherwise a web page elsewhere could read it, by a name of its own that resolves to this machine.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET, Request

from svc.pages.elements import STYLE_SOURCE, Table, note_page
from svc.pages.site import Paced
from svc.process.history import History
from svc.process.status import Status
from svc.process.status_page import status_page
from svc.settings import HostPort
from svc.telemetry.events.base import Severity
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.health import Health
from svc.telemetry.log_limits import FailureStreak
from svc.telemetry.logs import emit

#: Returns the configuration without its secrets.
RedactedConfig = Callable[[], Mapping[str, object]]
#: Of a page, but for its style: it runs no script, loads nothing and sends nothing.
PAGE_POLICY: Final = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_STATUS_POLICY: Final = f"{PAGE_POLICY}; style-src {STYLE_SOURCE}"


async def _no_tables() -> tuple[Table, ...]:
    return ()


@dataclass(frozen=True)
class OperatorPages:
    """
    What an operator can read of a process.

    Attributes:
        status: returns the document of ``/status``.
        address: the configured ``adminAddr``, whose host a request may name.
        tables: returns what the web page shows besides the document.
        children: further pages, by the first segment of their path; they check nothing of the request.
    """

    status: Callable[[], Status]
    history: History
    address: HostPort | None
    tables: Callable[[], Awaitable[Iterable[Table]]] = _no_tables
    children: Mapping[bytes, IResource] = field(default_factory=dict)


def admin_root(
    health: Health,
    *,
    drain: Callable[[], object] | None = None,
    config: RedactedConfig | None = None,
    operators: OperatorPages | None = None,
) -> Resource:
    """
    The pages of ``adminAddr``.

    Args:
        health: what ``/readyz`` shows.
        drain: starts a drain and returns at once; without it there is no ``/drain``.
        config: without it there is no ``/config``.
        operators: without it there are neither the web page nor ``/status``.
    """
    address = None if operators is None else operators.address
    root = Resource()
    root.putChild(b"livez", _LiveResource())
    root.putChild(b"readyz", _ReadyResource(health))
    if drain is not None:
        root.putChild(b"drain", _DrainResource(health, drain))
    if config is not None:
        root.putChild(b"config", _NamedResource(_ConfigResource(config), address))
    if operators is not None:
        described = {b"": _PageResource(operators), b"status": _StatusResource(operators.status), **operators.children}
        for path, resource in described.items():
            root.putChild(path, _NamedResource(resource, address))
    return root


def probes_root(health: Health) -> Resource:
    """
    The pages of ``probesAddr``: ``/livez`` and ``/readyz``, a status and one word.

    The port may be open to the network, so they say nothing of the process.
    """
    root = Resource()
    root.putChild(b"livez", _ProbeResource(lambda: True))
    root.putChild(b"readyz", _ProbeResource(lambda: health.ready))
    return root


def names_process(host: str | None, address: HostPort | None) -> bool:
    """Whether a ``Host`` header has an IP address, ``localhost`` or the host of ``address``, with any port."""
    try:
        named = HostPort.parse(f"{host}:0" if host is not None and _without_port(host) else host)
    except ValueError:
        return False
    known = {"localhost"} if address is None or not address.host else {"localhost", address.host.lower()}
    return named.host.lower() in known or _is_ip_address(named.host)


def _without_port(host: str) -> bool:
    return host.endswith("]") if host.startswith("[") else ":" not in host


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def html_answer(request: Request, page: str, policy: str = _STATUS_POLICY, *, status: int = 200) -> bytes:
    """Answer with a page; ``policy`` is its Content-Security-Policy."""
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"text/html; charset=utf-8")
    request.setHeader(b"content-security-policy", policy.encode("ascii"))
    return page.encode("utf-8", "backslashreplace")


class _NamedResource(Resource):
    """A resource for requests whose ``Host`` is that of an operator; read only, never kept by a browser."""

    isLeaf = True

    def __init__(self, resource: IResource, address: HostPort | None) -> None:
        super().__init__()
        self._resource = resource
        self._address = address

    def render(self, request: Request) -> bytes | int:
        for name, value in (
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-frame-options", b"DENY"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ):
            request.setHeader(name, value)
        if _embedded_elsewhere(request):
            what = "a browser asked for a part of another web page; open this page by itself"
            return _json(request, 403, {"reason": "cross_site", "detail": what})
        host = request.getHeader(b"host")
        if names_process(None if host is None else host.decode("latin-1"), self._address):
            answer: bytes | int = self._resource.render(request)
            return answer
        what = "this page is answered only for a request that names an IP address, localhost or the host of adminAddr"
        refused = _json(request, 421, {"reason": "host_unknown", "detail": what})
        request.setResponseCode(421, b"Misdirected Request")
        return refused


def _embedded_elsewhere(request: Request) -> bool:
    """Whether a browser asks for a part of a page of another origin, which could keep this process busy so."""
    site = request.getHeader(b"sec-fetch-site")
    return site in (b"cross-site", b"same-site") and request.getHeader(b"sec-fetch-dest") != b"document"


class _StatusResource(Resource):
    isLeaf = True

    def __init__(self, status: Callable[[], Status]) -> None:
        super().__init__()
        self._status = status

    def render_GET(self, request: Request) -> bytes:
        """The status document."""
        return _json(request, 200, self._status().as_json())


class _PageResource(Resource):
    isLeaf = True
    log = Logger()

    def __init__(self, operators: OperatorPages) -> None:
        super().__init__()
        self._operators = operators
        self._pages = {paused: Paced(partial(self._made, paused)) for paused in (False, True)}

    def render_GET(self, request: Request) -> int:
        """The web page; with ``?pause`` one that does not load itself again."""
        return finish_later(request, self._page(request), self.log)

    async def _page(self, request: Request) -> bytes:
        paused = b"pause" in request.uri.partition(b"?")[2]
        return html_answer(request, await self._pages[paused].get(request))

    async def _made(self, paused: bool) -> str:
        operators = self._operators
        tables = await operators.tables()
        return status_page(operators.status(), operators.history.samples, tables=tables, paused=paused)


def finish_later(request: Request, page: Coroutine[Deferred[object], object, bytes], log: Logger) -> int:
    """Answer when ``page`` is there; with 500 if it cannot be made, and not at all if the client leaves before."""
    made: Deferred[bytes] = Deferred.fromCoroutine(page)
    left: list[Failure] = []
    request.notifyFinish().addErrback(left.append)

    def finish(answer: bytes) -> None:
        if not left:
            request.setHeader(b"content-length", b"%d" % len(answer))
            request.write(answer)
            request.finish()

    def failed(failure: Failure) -> bytes:
        log.failure("a page for operators could not be made", failure)
        return html_answer(request, note_page("Error", "The page could not be made; the log says why."), status=500)

    made.addErrback(failed).addCallback(finish)
    return NOT_DONE_YET


class _ProbeResource(Resource):
    isLeaf = True

    def __init__(self, holds: Callable[[], bool]) -> None:
        super().__init__()
        self._holds = holds

    def render_GET(self, request: Request) -> bytes:
        """200 while it holds, else 503."""
        holds = self._holds()
        request.setResponseCode(200 if holds else 503)
        request.setHeader(b"content-type", b"text/plain")
        request.setHeader(b"cache-control", b"no-store")
        return b"ok\n" if holds else b"unavailable\n"


class _LiveResource(Resource):
    isLeaf = True

    def render_GET(self, request: Request) -> bytes:
        """200 as long as the reactor runs."""
        return _json(request, 200, {"live": True})


class _ReadyResource(Resource):
    isLeaf = True

    def __init__(self, health: Health) -> None:
        super().__init__()
        self._health = health

    def render_GET(self, request: Request) -> bytes:
        """200 while all required conditions hold and no drain has started, else 503; the body lists the conditions."""
        health = self._health
        body = {
            "ready": health.ready,
            "draining": health.draining,
            "conditions": [condition.as_json() for condition in health.conditions],
        }
        return _json(request, 200 if health.ready else 503, body)


class _DrainResource(Resource):
    """
    Starts a drain on POST.

    The request that starts it is logged as an audit record with its source address. So are requests that a browser
    sent for a web page, which are refused; the 1st, 2nd, 4th, 8th ... of them, since a page can send thousands.
    """

    isLeaf = True
    log = Logger()

    def __init__(self, health: Health, drain: Callable[[], object]) -> None:
        super().__init__()
        self._health = health
        self._drain = drain
        self._refusals = FailureStreak()

    def render_POST(self, request: Request) -> bytes:
        if request.getHeader(b"origin") is not None or request.getHeader(b"sec-fetch-site") is not None:
            return self._refuse(request)
        if not self._health.draining:
            emit(self.log, DaemonEvent.ADMIN_DRAIN, attributes={"source.address": _source(request)})
        self._drain()
        return _json(request, 202, {"draining": True})

    def _refuse(self, request: Request) -> bytes:
        if self._refusals.failed("cross_site"):
            emit(
                self.log,
                DaemonEvent.ADMIN_DRAIN,
                severity=Severity.WARN,
                outcome="failure",
                message="drain refused: a browser asked for a web page",
                detail_reason="cross_site",
                attributes={"source.address": _source(request), "attempts": self._refusals.count},
            )
        return _json(request, 403, {"draining": False, "reason": "cross_site"})


class _ConfigResource(Resource):
    isLeaf = True

    def __init__(self, config: RedactedConfig) -> None:
        super().__init__()
        self._config = config

    def render_GET(self, request: Request) -> bytes:
        """The configuration in force."""
        return _json(request, 200, self._config())


def _json(request: Request, status: int, body: Mapping[str, object]) -> bytes:
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    return json.dumps(body, ensure_ascii=True, indent=2, default=str).encode("ascii") + b"\n"


def _source(request: Request) -> str:
    return str(getattr(request.getClientAddress(), "host", "") or "local")
