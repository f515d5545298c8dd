"""
The page ``/metrics``.

``prometheus_client.twisted`` is not used: it imports the global reactor and serves from a thread pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import Request

from svc.process.admin import finish_later
from svc.process.pages import Paced

Admit = Callable[[Request], Deferred[int]]


class MetricsGuard(Protocol):
    """Who may read ``/metrics``, and by which TLS."""

    @property
    def creator(self) -> IOpenSSLServerConnectionCreator:
        """Make the TLS of new connections."""

    def admit(self, request: Request) -> Deferred[int]:
        """Fires with the status of the answer to a request: 200 where it is admitted."""


class _WithoutCreated(Collector):
    """A registry without the ``_created`` series, which would double the number of counters."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class _MetricsResource(Resource):
    isLeaf = True
    log = Logger()

    def __init__(self, registry: CollectorRegistry, admit: Admit | None) -> None:
        super().__init__()
        self._registry = _WithoutCreated(registry)
        self._admit = admit
        self._plain, self._open = Paced(self._make_plain), Paced(self._make_open)

    def render_GET(self, request: Request) -> int:
        """All families, as OpenMetrics where ``Accept`` lists it."""
        return finish_later(request, self._page(request), self.log)

    async def _page(self, request: Request) -> bytes:
        if self._admit is not None:
            status = await self._admit(request)
            if status != 200:
                request.setResponseCode(status)
                return b""
        accepted = (request.getHeader(b"accept") or b"").lower().split(b",")
        wanted = any(offer.split(b";")[0].strip() == b"application/openmetrics-text" for offer in accepted)
        page = await (self._open if wanted else self._plain).get(request)
        content_type = openmetrics.CONTENT_TYPE_LATEST if wanted else CONTENT_TYPE_LATEST
        request.setHeader(b"content-type", content_type.encode("latin-1"))
        request.setHeader(b"cache-control", b"no-store")
        return page

    async def _make_plain(self) -> bytes:
        return generate_latest(self._registry)

    async def _make_open(self) -> bytes:
        page: bytes = openmetrics.generate_latest(self._registry)
        return page


def metrics_root(registry: CollectorRegistry, admit: Admit | None = None) -> Resource:
    """
    The pages of ``metricsAddr``: the families of ``registry``, and ``process_*``.

    Args:
        registry: has the families.
        admit: returns the status of the answer to a request, 200 where it is admitted; None for everybody.
    """
    ProcessCollector(registry=registry)
    root = Resource()
    root.putChild(b"metrics", _MetricsResource(registry, admit))
    return root
