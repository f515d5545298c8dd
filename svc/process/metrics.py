"""
The page ``/metrics``.

``prometheus_client.twisted`` is not used: it imports the global reactor and serves from a thread pool.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from twisted.web.resource import Resource
from twisted.web.server import Request


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

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = _WithoutCreated(registry)

    def render_GET(self, request: Request) -> bytes:
        """All families, as OpenMetrics where ``Accept`` lists it."""
        accepted = (request.getHeader(b"accept") or b"").lower().split(b",")
        if any(offer.split(b";")[0].strip() == b"application/openmetrics-text" for offer in accepted):
            page: bytes = openmetrics.generate_latest(self._registry)
            content_type = openmetrics.CONTENT_TYPE_LATEST
        else:
            page = generate_latest(self._registry)
            content_type = CONTENT_TYPE_LATEST
        request.setHeader(b"content-type", content_type.encode("latin-1"))
        request.setHeader(b"cache-control", b"no-store")
        return page


def metrics_root(registry: CollectorRegistry) -> Resource:
    """The pages of ``metricsAddr``: the families of ``registry``, and ``process_*``."""
    ProcessCollector(registry=registry)
    root = Resource()
    root.putChild(b"metrics", _MetricsResource(registry))
    return root
