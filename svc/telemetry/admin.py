"""
The operator's pages: ``/livez``, ``/readyz``, ``/drain``, ``/config``.

Owns their answers, all of them JSON; must not know what draining or configuration means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from twisted.web.resource import Resource
from twisted.web.server import Request

from svc.telemetry.health import Health

#: Gives the configuration without its secrets.
ShownConfig = Callable[[], Mapping[str, object]]


def _answer(request: Request, status: int, body: Mapping[str, object]) -> bytes:
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    return json.dumps(body, ensure_ascii=True, indent=2, default=str).encode("ascii") + b"\n"


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
    Answers 200 while all conditions hold, else 503; the body names each condition.

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

    Args:
        drain: begins it and returns at once; called again at each request.
    """

    isLeaf = True

    def __init__(self, drain: Callable[[], object]) -> None:
        super().__init__()
        self._drain = drain

    def render_POST(self, request: Request) -> bytes:
        """
        Begin the drain.

        Args:
            request: the operator's; one that a browser sent for a web page is refused.

        Returns:
            An object with ``draining``, status 202.
        """
        if request.getHeader(b"origin") is not None or request.getHeader(b"sec-fetch-site") is not None:
            return _answer(request, 403, {"draining": False, "reason": "cross_site"})
        self._drain()
        return _answer(request, 202, {"draining": True})


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
        root.putChild(b"drain", DrainResource(drain))
    if config is not None:
        root.putChild(b"config", ConfigResource(config))
    return root
