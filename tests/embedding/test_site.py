"""Failed starts of ``svc.embedding.site``, and ``caller_id``; the rest is in ``tests.integration.test_examples``."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Site
from twisted.web.test.requesthelper import DummyRequest

from svc.embedding import ArgumentInvalid, NotarySite, caller_id
from svc.embedding.arguments import argument_name, notary_document, seconds
from svc.identity import SpiffeIdMalformed
from svc.proxy.config import NotarySettings
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
            "agent": "unix:///proc/nonexistent/agent.sock",
            "profile": "classical",
            "path": f"{self.mktemp()}/notary.db",
            **changes,
        }
        return Deferred.fromCoroutine(NotarySite.open(Site(Resource()), "127.0.0.1:7443", **choices))

    def test_a_bad_value(self) -> None:
        """The error names the argument, its value and what was expected, and nothing is started."""
        for changes, text in (
            ({"retention": "90"}, "retention: '90': expected seconds as a number, or a text such as '250ms'"),
            ({"retention": 0}, "retention: 0: expected seconds"),
            ({"start_timeout": "soon"}, "start_timeout: 'soon': expected seconds"),
            ({"start_timeout": True}, "start_timeout: True: expected seconds"),
            ({"record_octets_burst": 1}, "record_octets_burst: '1B': expected "),
            (
                {"unknown": 1},
                "unknown: no such argument: expected one of database, max_bytes, path, pq_bundle, pq_issuer, ",
            ),
            ({"pqIssuer": "unix:///pq.sock"}, "pqIssuer: no such argument: expected pq_issuer"),
            ({"profile": "hybrid"}, "the arguments: given together: expected pq_issuer, which profile hybrid needs"),
            ({"notarization": "some"}, "notarization: 'some': expected "),
            ({"trust_domain": "Prod"}, "trust_domain: 'Prod': expected "),
            ({"agent": "agent.sock"}, "agent: 'agent.sock': expected "),
        ):
            error = self.failureResultOf(self.open(MemoryReactorClock(), **changes), ArgumentInvalid).value
            self.assertTrue(str(error).startswith(text), str(error))
            self.assertIn("pydoc svc.embedding", error.hint)

    def test_numbers_and_texts(self) -> None:
        """A duration is a number of seconds or a text, a size a number of octets or a text; each key has one name."""
        for value in (7776000, 7776000.0, "90d"):
            self.assertEqual(
                NotarySettings(**notary_document({"retention": value, "profile": "classical"})).retention, 7776000
            )
        document = notary_document({"record_octets_burst": 2**21, "readers": ("spiffe://a.b/c",)})
        self.assertEqual(document, {"recordOctetsBurst": "2097152B", "readers": ["spiffe://a.b/c"]})
        self.assertEqual(seconds("timeout", "500ms"), 0.5)
        self.assertEqual(argument_name("pqIssuerID"), "pq_issuer_id")
