"""
The operator's pages: ``/livez``, ``/readyz``, ``/drain``, ``/config``.

Owns their answers, all of them JSON; must not know what draining or configuration means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import Request

from svc.telemetry.denials import Repeats
from svc.telemetry.events import Event, Severity
from svc.telemetry.health import Health
from svc.telemetry.logs import emit

#: Gives the configuration without its secrets.
ShownConfig = Callable[[], Mapping[str, object]]


def _answer(request: Request, status: int, body: Mapping[str, object]) -> bytes:
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    return json.dumps(body, ensure_ascii=True, indent=2, default=str).encode("ascii") + b"\n"


def _source(request: Request) -> str:
    return str(getattr(request.getClientAddress(), "host", "") or "local")


class LiveResource(Resource):
    """Answers 200 as long as the reactor turns."""

    isLeaf = True

    def render_GET(self, request: Request) -> bytes:
        """
        Write the page.

        Args:
            request: the asker's.

        Returns:
            An object with ``live``.
        """
        return _answer(request, 200, {"live": True})


class ReadyResource(Resource):
    """
    Answers 200 while all required conditions hold, else 503; the body names each condition.

    Args:
        health: the conditions.
    """

    isLeaf = True

    def __init__(self, health: Health) -> None:
        super().__init__()
        self._health = health

    def render_GET(self, request: Request) -> bytes:
        """
        Write the page.

        Args:
            request: the asker's.

        Returns:
            An object with ``ready``, ``draining`` and ``conditions``.
        """
        health = self._health
        body = {
            "ready": health.ready,
            "draining": health.draining,
            "conditions": [condition.as_json() for condition in health.conditions],
        }
        return _answer(request, 200 if health.ready else 503, body)


class DrainResource(Resource):
    """
    Begins a drain when it is asked to with POST.

    The request that begins it leaves an audit record with the address that it came from. So do those that are refused,
    ever more seldom, since a web page can send thousands.

    Args:
        health: knows whether a drain has begun.
        drain: begins it and returns at once; called again at each request.
    """

    isLeaf = True
    log = Logger()

    def __init__(self, health: Health, drain: Callable[[], object]) -> None:
        super().__init__()
        self._health = health
        self._drain = drain
        self._refusals = Repeats()

    def render_POST(self, request: Request) -> bytes:
        """
        Begin the drain.

        Args:
            request: the operator's; one that a browser sent for a web page is refused.

        Returns:
            An object with ``draining``, status 202.
        """
        if request.getHeader(b"origin") is not None or request.getHeader(b"sec-fetch-site") is not None:
            return self._refuse(request)
        if not self._health.draining:
            emit(self.log, Event.ADMIN_DRAIN, attributes={"source.address": _source(request)})
        self._drain()
        return _answer(request, 202, {"draining": True})

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
        return _answer(request, 403, {"draining": False, "reason": "cross_site"})


class ConfigResource(Resource):
    """
    Shows the configuration in force.

    Args:
        shown: gives it without its secrets.
    """

    isLeaf = True

    def __init__(self, shown: ShownConfig) -> None:
        super().__init__()
        self._shown = shown

    def render_GET(self, request: Request) -> bytes:
        """
        Write the page.

        Args:
            request: the operator's.

        Returns:
            The configuration.
        """
        return _answer(request, 200, self._shown())


def admin_root(
    health: Health,
    *,
    drain: Callable[[], object] | None = None,
    config: ShownConfig | None = None,
) -> Resource:
    """
    Put the operator's pages together.

    Args:
        health: what ``/readyz`` shows.
        drain: begins a drain; without it there is no ``/drain``.
        config: gives the configuration without its secrets; without it there is no ``/config``.

    Returns:
        The root of the tree.
    """
    root = Resource()
    root.putChild(b"livez", LiveResource())
    root.putChild(b"readyz", ReadyResource(health))
    if drain is not None:
        root.putChild(b"drain", DrainResource(health, drain))
    if config is not None:
        root.putChild(b"config", ConfigResource(config))
    return root
