"""
Where peers fetch bundle and package: a bundle endpoint of the profile ``https_spiffe`` (SPIFFE Federation, section
5.2.2) with the package beside it.

Everybody may read what is here; nobody is authenticated, and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from twisted.web.http import Request as BareRequest
from twisted.web.resource import Resource

from svc.federation.package import VerifiedPackage
from svc.federation.payload import M2MEndpoint
from svc.pages.callers import send_problem
from svc.strictjson import dumps

_JSON: Final = b"application/json"
_JOSE: Final = b"application/jose+json"
_NUMBER: Final = re.compile(rb"[1-9][0-9]{0,8}\Z")


class Published(NamedTuple):
    """What peers get: the package, and those that introduced the last sets of roots, by their sequence."""

    package: VerifiedPackage
    links: Mapping[int, bytes]


class M2MPages(Resource):
    """
    All paths of the endpoint.

    Args:
        published: returns what is there; None as long as there is nothing.
        served: called with whether a peer got what it asked for.
        endpoint: names the paths.
    """

    isLeaf = True

    def __init__(
        self, published: Callable[[], Published | None], served: Callable[[bool], object], endpoint: M2MEndpoint
    ) -> None:
        super().__init__()
        self._published = published
        self._served = served
        self._bundle_path = endpoint.bundle_path.encode("ascii")
        self._package_path = endpoint.package_path.encode("ascii")

    def render(self, request: BareRequest) -> bytes:
        """Answer a request."""
        if request.method not in (b"GET", b"HEAD"):
            request.setHeader(b"allow", b"GET, HEAD")
            return send_problem(request, 405, "method_not_allowed")
        path = request.path or b""
        published = self._published()
        if published is None:
            self._served(False)
            request.setHeader(b"retry-after", b"30")
            return send_problem(request, 503, "not_ready")
        found = self._found(path, published)
        self._served(found is not None)
        if found is None:
            return send_problem(request, 404, "not_found")
        kind, body = found
        request.setHeader(b"content-type", kind)
        request.setHeader(b"content-length", b"%d" % len(body))
        request.setHeader(b"cache-control", b"no-cache")
        return b"" if request.method == b"HEAD" else body

    def _found(self, path: bytes, published: Published) -> tuple[bytes, bytes] | None:
        content = published.package.content
        if path == self._bundle_path:
            return _JSON, dumps(content.bundle.to_document())
        if path == self._package_path:
            return _JOSE, published.package.package.serialize()
        number = path.removeprefix(self._package_path + b"/")
        if number == path or not _NUMBER.match(number):
            return None
        link = published.links.get(int(number))
        if link is None and int(number) == content.sequence:
            return _JOSE, published.package.package.serialize()
        return None if link is None else (_JOSE, link)
