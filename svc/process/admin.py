"""The operator's pages ``/livez``, ``/readyz``, ``/drain`` and ``/config``, all of them JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import Request

from svc.telemetry.events import Event, Severity
from svc.telemetry.health import Health
from svc.telemetry.log_limits import FailureStreak
from svc.telemetry.logs import emit

#: Returns the configuration without its secrets.
RedactedConfig = Callable[[], Mapping[str, object]]


def admin_root(
    health: Health,
    *,
    drain: Callable[[], object] | None = None,
    config: RedactedConfig | None = None,
) -> Resource:
    """
    The pages of ``adminAddr``.

    Args:
        health: what ``/readyz`` shows.
        drain: starts a drain and returns at once; without it there is no ``/drain``.
        config: without it there is no ``/config``.
    """
    root = Resource()
    root.putChild(b"livez", _LiveResource())
    root.putChild(b"readyz", _ReadyResource(health))
    if drain is not None:
        root.putChild(b"drain", _DrainResource(health, drain))
    if config is not None:
        root.putChild(b"config", _ConfigResource(config))
    return root


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
            emit(self.log, Event.ADMIN_DRAIN, attributes={"source.address": _source(request)})
        self._drain()
        return _json(request, 202, {"draining": True})

    def _refuse(self, request: Request) -> bytes:
        if self._refusals.failed("cross_site"):
            emit(
                self.log,
                Event.ADMIN_DRAIN,
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
