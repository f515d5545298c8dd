"""Tests of ``svc.embedding.site``: failed starts and ``caller_id``; the rest is in ``tests.test_examples``."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Site
from twisted.web.test.requesthelper import DummyRequest

from svc.embedding import NotarySite, caller_id
from svc.identity import SpiffeIdMalformed
from svc.settings import ConfigInvalid
from tests.refusals import assert_refused

FIELD = b"X-Forwarded-Client-Cert"


class CallerTests(SynchronousTestCase):
    """Tests of ``caller_id``."""

    def request(self, *lines: bytes) -> Any:
        """A request with these fields."""
        request = DummyRequest([b""])
        request.requestHeaders.setRawHeaders(FIELD, list(lines))
        return request

    def test_verified(self) -> None:
        """The URI of the one field that the proxy writes."""
        line = b"By=spiffe://prod.example.org/a;Hash=ab;URI=spiffe://prod.example.org/ns/demo/sa/fe"
        self.assertEqual(str(caller_id(self.request(line))), "spiffe://prod.example.org/ns/demo/sa/fe")

    def test_not_through_the_notary(self) -> None:
        """No field, an incomplete one, or several are refused."""
        line = b"By=spiffe://a.b/a;Hash=ab;URI=spiffe://a.b/c"
        for lines in ((), (b"",), (b"By=spiffe://a.b/a",), (line, line)):
            assert_refused(self, "caller_unknown", caller_id, self.request(*lines))
        with self.assertRaises(SpiffeIdMalformed):
            caller_id(self.request(b"By=spiffe://a.b/a;Hash=ab;URI=https://a.b/c"))


class OpenTests(SynchronousTestCase):
    """Failed starts report the reason."""

    def open(self, reactor: Any, **changes: Any) -> Deferred[NotarySite]:
        """Open a site."""
        choices: dict[str, Any] = {
            "reactor": reactor,
            "trust_domain": "prod.example.org",
            "allow": "spiffe://prod.example.org/*",
            "agent": "unix:///nonexistent/agent.sock",
            "profile": "classical",
            "path": f"{self.mktemp()}/notary.db",
            **changes,
        }
        return Deferred.fromCoroutine(NotarySite.open(Site(Resource()), "127.0.0.1:7443", **choices))

    def test_a_bad_value(self) -> None:
        """The error names the key as in a configuration file, and nothing is started."""
        for changes, key in (
            ({"retention": "90"}, "notary.retention"),
            ({"unknown": 1}, "notary.unknown"),
            ({"notarization": "some"}, "listeners[0].notarization"),
            ({"trust_domain": "Prod"}, "trustDomain"),
        ):
            failure = self.failureResultOf(self.open(MemoryReactorClock(), **changes), ConfigInvalid)
            self.assertEqual([each.key for each in failure.value.problems], [key])
