"""What peers get from the endpoint, without its TLS."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.test.requesthelper import DummyRequest

from svc.federation.payload import M2MEndpoint
from svc.identity import SpiffeID
from svc.manager.federation.endpoint import M2MPages, Published
from tests.federation.material import PROD, full_content, signed


class PagesTests(SynchronousTestCase):
    """Paths and answers."""

    def setUp(self) -> None:
        """Publish a package of the second roots."""
        self.package = signed(2, bundle=full_content().bundle)
        self.published: Published | None = Published(self.package, {2: b"second", 1: b"first"})
        self.counted: list[bool] = []

    def get(self, path: str, method: bytes = b"GET") -> tuple[int, str, bytes]:
        """The status, the media type and the body."""
        request: Any = DummyRequest([])
        request.method, request.path = method, path.encode()
        pages = M2MPages(lambda: self.published, self.counted.append, M2MEndpoint(SpiffeID(PROD, "/svc/m2m")))
        body = pages.render(request)
        kind = request.responseHeaders.getRawHeaders("content-type")[0]
        return request.responseCode or 200, kind, body

    def test_bundle(self) -> None:
        """The document of SPIFFE, with the hint when to come again."""
        status, kind, body = self.get("/v1/bundle")
        self.assertEqual((200, "application/json"), (status, kind))
        self.assertEqual(self.package.content.bundle.to_document(), json.loads(body))
        self.assertEqual((200, kind, b""), self.get("/v1/bundle", b"HEAD"))

    def test_package(self) -> None:
        """The package, and by their sequence those that introduced roots."""
        self.assertEqual(
            (200, "application/jose+json", self.package.package.serialize()), self.get("/v1/bootstrap-package")
        )
        self.assertEqual(b"second", self.get("/v1/bootstrap-package/2")[2])
        self.assertEqual(b"first", self.get("/v1/bootstrap-package/1")[2])
        self.published = Published(self.package, {})
        self.assertEqual(self.package.package.serialize(), self.get("/v1/bootstrap-package/2")[2])
        self.assertEqual([True] * 4, self.counted)

    def test_not_found(self) -> None:
        """Nothing else is served."""
        for path in (
            *("/", "/v1/bundle/", "/v1/bootstrap-package/", "/v1/bootstrap-package/3", "/v1/bootstrap-package/02"),
            *("/v1/bootstrap-package/0", "/v1/bootstrap-package/+2", "/v1/bootstrap-package/1/2", "/metrics"),
            f"/v1/bootstrap-package/{'1' * 5000}",
        ):
            self.assertEqual((404, "application/problem+json"), self.get(path)[:2], path)
        self.assertEqual({False}, set(self.counted))

    def test_refused(self) -> None:
        """It can only be read, and not before there is a package."""
        self.assertEqual(405, self.get("/v1/bundle", b"POST")[0])
        self.published = None
        self.assertEqual(503, self.get("/v1/bundle")[0])
