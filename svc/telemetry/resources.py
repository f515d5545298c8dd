"""
The page ``/metrics``.

Writes a registry in the format that the scraper asks for. ``prometheus_client.twisted`` is not used: it imports the
global reactor and serves from a thread pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, choose_encoder
from prometheus_client.registry import Collector
from twisted.web.resource import Resource
from twisted.web.server import Request

MAX_ACCEPT: Final = 1024


class WithoutCreated(Collector):
    """
    A registry without the ``_created`` series, which nobody asked for and which double the number of counters.

    Args:
        registry: what is shown.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """
        Collect the registry.

        Returns:
            Its families, less those samples.
        """
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class MetricsResource(Resource):
    """
    Answers with the current metrics, as OpenMetrics where ``Accept`` asks for it.

    Args:
        registry: what is shown.
    """

    isLeaf = True

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._shown = WithoutCreated(registry)

    def render_GET(self, request: Request) -> bytes:
        """
        Write the page.

        Args:
            request: the scraper's.

        Returns:
            All families.
        """
        accept = (request.getHeader(b"accept") or b"")[:MAX_ACCEPT].decode("latin-1")
        try:
            encode, content_type = choose_encoder(accept)
        except ValueError:
            # A version or escaping that cannot be read in the header: the plain format is always acceptable.
            encode, content_type = generate_latest, CONTENT_TYPE_LATEST
        page = encode(self._shown)
        request.setHeader(b"content-type", content_type.encode("latin-1"))
        request.setHeader(b"cache-control", b"no-store")
        return page
