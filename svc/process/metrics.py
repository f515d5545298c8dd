"""
The page ``/metrics``.

``prometheus_client.twisted`` is not used: it imports the global reactor and serves from a thread pool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, CONTENT_TYPE_PLAIN_1_0_0
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import Request

from svc.pages.site import Paced
from svc.process.admin import finish_later

#: RFC 9110 section 12.4.2.
_QUALITY: Final = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\Z")
#: Media type, version and value of Content-Type of each format, the preferred one first. No name here needs the
#: escaping in which the text format 1.0.0 differs from 0.0.4.
_FORMATS: Final = (
    ("application/openmetrics-text", "1.0.0", openmetrics.CONTENT_TYPE_LATEST),
    ("text/plain", "0.0.4", CONTENT_TYPE_PLAIN_0_0_4),
    ("text/plain", "1.0.0", CONTENT_TYPE_PLAIN_1_0_0),
)
Admit = Callable[[Request], Deferred[int]]


class MetricsGuard(Protocol):
    """Who may read ``/metrics``, and by which TLS."""

    @property
    def creator(self) -> IOpenSSLServerConnectionCreator:
        """Make the TLS of new connections."""

    def admit(self, request: Request) -> Deferred[int]:
        """Fires with the status of the answer to a request: 200 where it is admitted."""


def accepted_format(accept: str) -> str:
    """Return the Content-Type for a value of Accept: the heaviest format that it names (RFC 9110 section 12.5.1)."""
    best, weight = CONTENT_TYPE_PLAIN_0_0_4, 0.0
    offers = [_offer(each) for each in accept.lower().split(",")]
    for media_type, version, content_type in _FORMATS:
        for name, wanted, quality in offers:
            if name == media_type and wanted in ("", version) and quality > weight:
                best, weight = content_type, quality
    return best


def _offer(text: str) -> tuple[str, str, float]:
    """Read media type, version and weight of one element of Accept; 0 for a weight that is none."""
    name, *parameters = (part.strip() for part in text.split(";"))
    values = dict(part.partition("=")[::2] for part in parameters)
    quality = values.get("q", "1")
    return name, values.get("version", "").strip('"'), float(quality) if _QUALITY.match(quality) else 0.0


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
        """All families, in a format that ``Accept`` lists; by default the text format 0.0.4."""
        return finish_later(request, self._page(request), self.log)

    async def _page(self, request: Request) -> bytes:
        if self._admit is not None:
            status = await self._admit(request)
            if status != 200:
                request.setResponseCode(status)
                return b""
        content_type = accepted_format((request.getHeader(b"accept") or b"").decode("latin-1"))
        page = await (self._open if content_type == openmetrics.CONTENT_TYPE_LATEST else self._plain).get(request)
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
