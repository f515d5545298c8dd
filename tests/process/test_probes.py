"""``probesAddr``: two pages for whoever asks, and nothing else."""

from __future__ import annotations

from svc.pages.site import HttpService
from svc.process.admin import probes_root
from svc.settings import HostPort
from svc.telemetry.health import Health
from tests.pages.test_site import START, PageCase, StoreBroken


class ProbeTests(PageCase):
    """A status and one word."""

    def setUp(self) -> None:
        super().setUp()
        self.health = Health(["store"], now=lambda: START)
        self.factory = self.started(
            HttpService(HostPort("", 9905), probes_root(self.health), reactor=self.reactor, key="probesAddr")
        )

    def answer(self, path: str, method: str = "GET", *, body: bytes = b"") -> tuple[int, bytes]:
        """Ask as a kubelet does, by the address of the pod."""
        head = f"{method} {path} HTTP/1.1\nHost: 10.1.2.3:9905\nContent-Length: {len(body)}"
        status, _headers, content = self.request(self.factory, head, body=body)
        return status, content

    def test_ready(self) -> None:
        """Ready while all required conditions hold and no drain has begun; no condition is named."""
        self.health.fails_with("store", StoreBroken(path="/secret"))
        self.assertEqual((503, b"unavailable\n"), self.answer("/readyz"))
        self.health.holds("store")
        self.assertEqual((200, b"ok\n"), self.answer("/readyz"))
        self.health.drain()
        self.assertEqual((503, b"unavailable\n"), self.answer("/readyz"))

    def test_live(self) -> None:
        """Alive whatever the conditions say, so that an outage elsewhere restarts nothing."""
        self.assertEqual((200, b"ok\n"), self.answer("/livez"))

    def test_nothing_else(self) -> None:
        """There is nothing else, and nothing to change."""
        for path in ("/", "/status", "/config", "/drain", "/metrics", "/receipts", "/readyz/more"):
            self.assertEqual(404 if path != "/readyz/more" else 503, self.answer(path)[0], path)
        self.assertEqual((405, 404), (self.answer("/readyz", "POST")[0], self.answer("/drain", "POST")[0]))

    def test_body(self) -> None:
        """A body is refused before it is read, so that none can be written to a file."""
        self.assertEqual(413, self.answer("/readyz", body=b"x" * 200_000)[0])
