"""Tests of ``svc.embedding.workload``: endpoints, own statements, statements of peers, GET; real TLS in memory."""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import readBody
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from svc.client.errors import ExchangeFailed, RefusedByServer
from svc.embedding import ArgumentInvalid, EmbeddingError, VerifiedResponse, Workload
from svc.embedding.issuing import STATEMENT_SECONDS, issue_statements
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.errors import EnvelopeError
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import BundleSet, X509Svid
from svc.notary.credentials import CredentialSet
from svc.notary.errors import StatementMissing, StatementRefused
from svc.notary.facts import WorkloadFacts
from svc.notary.pqleaf import PqLeaf
from svc.proxy.credential_rotation import CredentialRotation
from svc.telemetry.events.proxy import ProxyEvent
from svc.testing.workload import MemorySource
from svc.transport.errors import PeerIdentityUnexpected, PeerNotVerified, PeerSvidInvalid, TransportError
from svc.workload.errors import CredentialsMissing, PqIssuerError, WorkloadApiUnavailable
from tests.embedding.network import AUTHORITY, DOMAIN, PQ_AUTHORITY, Network, PqRoots, generation, now, source
from tests.refusals import assert_refused

SERVER, CLIENT = "/ns/demo/sa/web", "/ns/demo/sa/guest"
PAGE = b"<p>the page</p>"


def spiffe_id(path: str) -> str:
    """A whole SPIFFE ID."""
    return f"spiffe://{DOMAIN}{path}"


def workload(network: Network, path: str, **choices: Any) -> Workload:
    """A workload that issues nothing."""
    return Workload(source(path), reactor=network.reactor, pq_roots=PqRoots(), now=now, **choices)


def obtain_leaf(svid: X509Svid) -> Deferred[PqLeaf]:
    """Issue a leaf in this process."""
    chain, key = PQ_AUTHORITY.pq_leaf(svid)
    return succeed(PqLeaf(chain, key, svid.not_after))  # type: ignore[arg-type]


def issuing(identity: MemorySource, reactor: Any, obtain: Any = obtain_leaf) -> CredentialRotation:
    """The service that makes statements."""
    facts = WorkloadFacts.explicit(host_name="host")
    return issue_statements(identity, obtain, profile=Profile.HYBRID, facts=facts, reactor=reactor, now=now)


class Recorder(Protocol):
    """Records received data and the reason of the end."""

    def __init__(self) -> None:
        self.data = b""
        self.ended: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.ended = reason


class EndpointTests(SynchronousTestCase):
    """Tests of the endpoints."""

    def setUp(self) -> None:
        """A network."""
        self.network = Network()
        self.served: list[Recorder] = []

    def connect(
        self, caller: str, *, allow: str = f"spiffe://{DOMAIN}/ns/demo/*", expect: str = spiffe_id(SERVER)
    ) -> Any:
        """Connect a client with this identity to a server."""

        def build() -> Recorder:
            self.served.append(Recorder())
            return self.served[-1]

        server = workload(self.network, SERVER).server_endpoint("127.0.0.1:7000", allow=allow)
        self.successResultOf(server.listen(Factory.forProtocol(build)))
        client = workload(self.network, caller).client_endpoint("127.0.0.1:7000", expect=expect)
        connecting = client.connect(Factory.forProtocol(Recorder))
        self.network.join()
        return connecting

    def test_allowed_client(self) -> None:
        """An allowed client and an expected server exchange data."""
        client = self.successResultOf(self.connect(CLIENT))
        client.transport.write(b"hello")
        self.network.carry()
        self.assertEqual(self.served[0].data, b"hello")

    def test_refused_client(self) -> None:
        """A client that is not allowed never reaches a protocol, and its connection ends with a typed error."""
        client = self.successResultOf(self.connect("/ns/elsewhere/sa/x"))
        self.assertEqual(self.served, [])
        self.assertIsNotNone(client.ended)
        self.assertIsInstance(client.ended.value, TransportError)

    def test_refusals_are_logged(self) -> None:
        """A refused client is logged as svc-proxy logs it; further ones within a second are counted."""
        logged = self.enterContext(capturedLogs())
        self.connect("/ns/elsewhere/sa/x")
        [denied] = [each for each in logged if each.get("svc_event") is ProxyEvent.AUTH_DENIED]
        fields = denied["svc_fields"]
        self.assertEqual(("policy_deny", "policy_deny"), (fields["reason"], fields["detail_reason"]))
        self.assertEqual(spiffe_id("/ns/elsewhere/sa/x"), fields["peer_spiffe_id"])
        self.assertIn("policy_deny", formatEvent(denied))

    def test_stop_ends_the_log(self) -> None:
        """Stopping a workload stops the timer of its log and logs the count of suppressed refusals."""
        reactor = Clock()
        own = Workload(source(SERVER), reactor=reactor, pq_roots=PqRoots(), now=now)
        creator = own.server_endpoint("127.0.0.1:7000", allow=f"spiffe://{DOMAIN}/*")._creator
        with capturedLogs() as logged:
            for port in range(3):
                error = PeerSvidInvalid(address="a", alert="", detail="expired", cause="it ended")
                creator.observer.handshake_failed("server", error, f"192.0.2.1:{port}")
            self.assertEqual(1, len(reactor.getDelayedCalls()))
            own.stopService()
        self.assertEqual([], reactor.getDelayedCalls())
        self.assertEqual(
            [ProxyEvent.AUTH_DENIED, ProxyEvent.DENIALS_SUPPRESSED], [each["svc_event"] for each in logged]
        )

    def test_unexpected_server(self) -> None:
        """A server with another identity than the expected one fails the attempt."""
        failure = self.failureResultOf(self.connect(CLIENT, expect=spiffe_id("/ns/demo/sa/other")))
        self.assertIsInstance(failure.value, PeerIdentityUnexpected)

    def test_spiffe_id(self) -> None:
        """The identity is that of the source; before it is available there is a typed error."""
        self.assertEqual(str(workload(self.network, SERVER).spiffe_id), spiffe_id(SERVER))
        empty = Workload(MemorySource(), reactor=self.network.reactor, pq_roots=PqRoots())
        with self.assertRaises(CredentialsMissing):
            _ = empty.spiffe_id


class LifeTests(SynchronousTestCase):
    """Tests of start and stop."""

    def test_parts_start_and_end_together(self) -> None:
        """A part that is a service runs while the workload does."""

        class Roots(PqRoots, Service):
            """Roots that are a service."""

        network, roots = Network(), Roots()
        own = Workload(source(SERVER), reactor=network.reactor, pq_roots=roots, now=now)
        own.startService()
        self.successResultOf(Deferred.fromCoroutine(own.when_ready()))
        self.assertTrue(roots.running)
        own.stopService()
        self.assertFalse(roots.running)

    def test_no_identity(self) -> None:
        """``when_ready`` fails with the error of the source."""
        absent = MemorySource()
        own = Workload(absent, reactor=Clock(), pq_roots=PqRoots())
        ready = Deferred.fromCoroutine(own.when_ready())
        absent.fail()
        self.assertIsInstance(self.failureResultOf(ready).value, WorkloadApiUnavailable)

    def test_no_statement(self) -> None:
        """Without a leaf ``when_ready`` fails after its timeout with the error of the issuer."""
        identity, network = source(SERVER), Network()
        error = PqIssuerError("pq_issuer_unavailable", address="unix:///pq.sock", what="nobody listens")
        made = issuing(identity, network.reactor, lambda _svid: fail(error))
        own = Workload(identity, reactor=network.reactor, pq_roots=PqRoots(), generations=made, now=now)
        own.startService()
        ready = Deferred.fromCoroutine(own.when_ready())
        network.reactor.pump([1.0] * int(STATEMENT_SECONDS - 1))
        self.assertNoResult(ready)
        network.reactor.advance(1.1)
        late = self.failureResultOf(ready, EmbeddingError)
        self.assertEqual("notary_unavailable", late.value.reason)
        self.assertIn("nobody listens", str(late.value))
        own.stopService()
        self.assertEqual(network.reactor.getDelayedCalls(), [])


class StatementTests(SynchronousTestCase):
    """Tests of statements over a connection of the program's own protocol."""

    def setUp(self) -> None:
        """A client that issues statements, connected to a server that verifies them."""
        self.network = Network()
        self.identity = source(CLIENT)
        made = issuing(self.identity, self.network.reactor)
        self.client = Workload(
            self.identity, reactor=self.network.reactor, pq_roots=PqRoots(), generations=made, now=now
        )
        self.client.startService()
        self.addCleanup(self.client.stopService)
        self.successResultOf(Deferred.fromCoroutine(self.client.when_ready()))
        self.server = workload(self.network, SERVER)
        self.at_server = Recorder()
        endpoint = self.server.server_endpoint("127.0.0.1:7000", allow=f"spiffe://{DOMAIN}/*")
        self.successResultOf(endpoint.listen(Factory.forProtocol(lambda: self.at_server)))
        connecting = self.client.client_endpoint("127.0.0.1:7000", expect=spiffe_id(SERVER)).connect(
            Factory.forProtocol(Recorder)
        )
        self.network.join()
        self.at_client: Any = self.successResultOf(connecting)

    def test_of_this_connection(self) -> None:
        """The server gets verified evidence of the client, bound to the connection, post-quantum."""
        evidence = self.server.verify_statement(
            self.client.statement(self.at_client.transport), self.at_server.transport
        )
        self.assertEqual(
            (str(evidence.subject), evidence.bound, evidence.post_quantum), (spiffe_id(CLIENT), True, True)
        )

    def test_after_a_rotation(self) -> None:
        """An open connection keeps the statement for the SVID it was made with."""
        before = self.client.statement(self.at_client.transport)
        self.identity.rotate(AUTHORITY.svid(CLIENT))
        self.assertEqual(self.client.svid.leaf, self.identity.svid.leaf)
        self.assertEqual(self.client.statement(self.at_client.transport), before)
        self.server.verify_statement(before, self.at_server.transport)

    def test_of_another_workload(self) -> None:
        """A valid statement of another workload is refused."""
        stolen = generation("/ns/demo/sa/other").statement.envelope.serialize()
        with self.assertRaises(EnvelopeError) as refused:
            self.server.verify_statement(stolen, self.at_server.transport)
        self.assertEqual(refused.exception.reason, "subject_mismatch")

    def test_changed(self) -> None:
        """A changed statement is refused."""
        envelope = bytearray(self.client.statement(self.at_client.transport))
        position = envelope.index(b'"payload"') + 20
        envelope[position] = ord("A") if envelope[position] != ord("A") else ord("B")
        with self.assertRaises(EnvelopeError):
            self.server.verify_statement(bytes(envelope), self.at_server.transport)

    def test_without_roots(self) -> None:
        """Without post-quantum roots a hybrid statement is refused."""
        rootless = Workload(source(SERVER), reactor=self.network.reactor, pq_roots=PqRoots(BundleSet()), now=now)
        with self.assertRaises(EnvelopeError) as refused:
            rootless.verify_statement(self.client.statement(self.at_client.transport), self.at_server.transport)
        self.assertEqual(refused.exception.reason, "trust_domain_unknown")

    def test_without_connection(self) -> None:
        """A transport without a verified peer is a typed error."""
        with self.assertRaises(PeerNotVerified):
            self.server.verify_statement(self.client.statement(self.at_client.transport), object())

    def test_none_is_issued(self) -> None:
        """A workload without an issuer refuses, and so does one with the connection of another workload."""
        assert_refused(self, "statement_missing", self.server.statement, self.at_server.transport)
        assert_refused(self, "statement_missing", self.client.statement, self.at_server.transport)


class Notarized(Resource):
    """A page that names its statement, and the statement."""

    isLeaf = True

    def __init__(
        self, made: CredentialSet, *, named: int = 1, served: bytes | None = None, close: bool = False
    ) -> None:
        super().__init__()
        self._made = made
        self._named = named
        self._served = served if served is not None else made.statement.envelope.serialize()
        self._close = close

    def render_GET(self, request: Request) -> bytes:
        identifier = self._made.statement.id
        if request.path == f"/.well-known/svc-notary/v1/statements/{identifier}".encode():
            return self._served
        for _ in range(self._named):
            request.responseHeaders.addRawHeader(b"svc-workload-id", identifier.encode())
        request.setHeader(b"svc-notarization-level", b"workload")
        if self._close:
            request.setHeader(b"connection", b"close")
        return PAGE


class GetTests(SynchronousTestCase):
    """Tests of ``Workload.get``."""

    def get(self, made: CredentialSet, page: Resource, **choices: Any) -> Deferred[VerifiedResponse]:
        """GET from a server that presents the SVID of a generation."""
        self.network = Network()
        identity = MemorySource(made.svid, AUTHORITY.bundles())
        server = Workload(identity, reactor=self.network.reactor, pq_roots=PqRoots(), now=now)
        endpoint = server.server_endpoint("127.0.0.1:8443", allow=f"spiffe://{DOMAIN}/*", alpn=[b"http/1.1"])
        self.successResultOf(endpoint.listen(Site(page, reactor=self.network.reactor)))
        choices = {"expect": f"spiffe://{DOMAIN}/*", **choices}
        getting = Deferred.fromCoroutine(workload(self.network, CLIENT).get("https://127.0.0.1:8443/", **choices))
        self.network.join()
        return getting

    def assert_fails(self, reason: str, getting: Deferred[VerifiedResponse]) -> None:
        self.assertEqual(reason, self.failureResultOf(getting, SvcError).value.reason)

    def test_statement_of_this_connection(self) -> None:
        """The response comes with verified evidence of its workload."""
        made = generation()
        response = self.successResultOf(self.get(made, Notarized(made), max_body=len(PAGE)))
        self.assertEqual((response.status, response.body), (200, PAGE))
        self.assertEqual(response.headers.getRawHeaders(b"svc-workload-id"), [made.statement.id.encode()])
        proved = response.statement
        self.assertEqual((proved.id, str(proved.subject)), (made.statement.id, spiffe_id(SERVER)))
        self.assertTrue(proved.bound and proved.post_quantum)

    def test_no_statement_or_two(self) -> None:
        """A response that does not name exactly one statement is refused."""
        for named, expected in ((0, StatementMissing), (2, ExchangeFailed)):
            made = generation()
            failure = self.failureResultOf(self.get(made, Notarized(made, named=named)))
            self.assertIsInstance(failure.value, expected)

    def test_statement_of_another_workload(self) -> None:
        """Another statement under the named identifier is refused."""
        made, other = generation(), generation("/ns/demo/sa/other")
        page = Notarized(made, served=other.statement.envelope.serialize())
        self.assertEqual(self.failureResultOf(self.get(made, page), StatementRefused).value.reason, "id_mismatch")

    def test_another_workload_with_its_own_statement(self) -> None:
        """A valid statement of another workload is not bound to the key of the connection."""
        made, other = generation(), generation("/ns/demo/sa/other")
        failure = self.failureResultOf(self.get(made, Notarized(other)))
        self.assertEqual(getattr(failure.value, "reason", None), "subject_mismatch")

    def test_another_server(self) -> None:
        """A server with another identity than the expected one is refused."""
        made = generation()
        failure = self.failureResultOf(self.get(made, Notarized(made), expect=spiffe_id("/ns/demo/sa/other")))
        self.assertIsInstance(failure.value, PeerIdentityUnexpected)

    def test_too_large(self) -> None:
        """A body above its limit is refused, and so is a statement above its own."""
        made = generation()
        self.assert_fails("answer_too_large", self.get(made, Notarized(made), max_body=len(PAGE) - 1))
        page = Notarized(made, served=b" " * (MAX_ENVELOPE + 1))
        self.assert_fails("too_large", self.get(made, page))

    def test_endless_response(self) -> None:
        """A connection whose response is too large, or takes too long, is closed."""
        made = generation()

        class Endless(Resource):
            """Sends until its connection is closed."""

            isLeaf = True

            def render_GET(self, request: Request) -> int:
                """Begin."""
                self.request, self.ended = request, []
                request.notifyFinish().addErrback(self.ended.append)  # type: ignore[call-overload]
                request.write(b"x" * 1000)
                return NOT_DONE_YET

        for max_body, seconds, expected in ((999, 0.0, "answer_too_large"), (5000, 60.0, "answer_late")):
            page = Endless()
            getting = self.get(made, page, max_body=max_body)
            self.network.reactor.advance(seconds)
            self.network.carry()
            self.assert_fails(expected, getting)
            self.assertEqual(len(page.ended), 1, expected)

    def test_connection_that_ends_before_the_statement(self) -> None:
        """The statement then comes over another connection, and is verified for the peer of the first."""
        made = generation()
        getting = self.get(made, Notarized(made, close=True))
        self.network.join()
        self.assertTrue(self.successResultOf(getting).statement.bound)

    def test_no_response(self) -> None:
        """The exchange has a timeout."""
        made = generation()

        class Silent(Resource):
            """Never responds."""

            isLeaf = True

            def render_GET(self, request: Request) -> int:
                """Log nothing."""
                return NOT_DONE_YET

        getting = self.get(made, Silent())
        self.network.reactor.advance(60.0)
        self.network.carry()
        self.assert_fails("answer_late", getting)
        self.assertEqual([each for each in self.network.reactor.getDelayedCalls() if each.getTime() < 1], [])

    def test_truncated_response(self) -> None:
        """A truncated body is an error."""
        made = generation()

        class Broken(Resource):
            """Sends less than its Content-Length."""

            isLeaf = True

            def render_GET(self, request: Request) -> int:
                """Break off."""
                request.setHeader(b"content-length", b"10")
                request.write(b"12345")
                request.channel.loseConnection()
                return NOT_DONE_YET

        self.assert_fails("connection_closed", self.get(made, Broken()))

    def test_refused_client(self) -> None:
        """A refusal by the server is a typed error, although TLS 1.3 reports it after the handshake."""
        made = generation()
        network = Network()
        server = Workload(
            MemorySource(made.svid, AUTHORITY.bundles()), reactor=network.reactor, pq_roots=PqRoots(), now=now
        )
        endpoint = server.server_endpoint("127.0.0.1:8443", allow=spiffe_id("/ns/demo/sa/other"), alpn=[b"http/1.1"])
        self.successResultOf(endpoint.listen(Site(Notarized(made), reactor=network.reactor)))
        getting = Deferred.fromCoroutine(
            workload(network, CLIENT).get("https://127.0.0.1:8443/", expect=spiffe_id(SERVER))
        )
        network.join()
        self.assertIsInstance(self.failureResultOf(getting).value, RefusedByServer)

    def test_other_urls(self) -> None:
        """Only whole ``https://`` addresses are supported."""
        for url, reason in (("http://127.0.0.1/", "url_unsupported"), ("127.0.0.1:8443", "request_invalid")):
            asking = workload(Network(), CLIENT).get(url, expect=f"spiffe://{DOMAIN}/*")
            self.assert_fails(reason, Deferred.fromCoroutine(asking))

    def test_agent(self) -> None:
        """An agent expects one identity of all servers, or one of each, and names a server without one."""
        made = generation()
        self.get(made, Notarized(made))
        own = workload(self.network, CLIENT)
        address = "127.0.0.1:8443"
        for expect, reason in (
            (spiffe_id(SERVER), None),
            ({address: spiffe_id(SERVER), "127.0.0.1:9": spiffe_id("/other")}, None),
            ({address: spiffe_id("/other")}, "identity_unexpected"),
            ({"127.0.0.1:9": spiffe_id(SERVER)}, "server_unnamed"),
        ):
            agent = own.http_agent(expect=expect)
            asking = agent.request(b"GET", f"https://{address}/".encode())
            self.network.join()
            if reason is not None:
                self.assertEqual(self.failureResultOf(asking, SvcError).value.reason, reason)
                continue
            reading = readBody(self.successResultOf(asking))
            self.network.carry()
            self.assertEqual(self.successResultOf(reading), PAGE)
        self.assertEqual(len([each for each in self.network.reactor.getDelayedCalls() if each.getTime() == 240]), 2)
        own.stopService()
        self.assertEqual([each for each in self.network.reactor.getDelayedCalls() if each.getTime() == 240], [])

    def test_stream(self) -> None:
        """A response is returned when it begins, and its pieces are iterated over."""
        made = generation()
        self.get(made, Notarized(made))
        own = workload(self.network, CLIENT)

        async def work() -> tuple[bytes, str]:
            response = await own.stream("GET", "https://127.0.0.1:8443/", expect=spiffe_id(SERVER), timeout="5s")
            whole = b"".join([piece async for piece in response])
            return whole, (await response.verified()).statement.id

        working = Deferred.fromCoroutine(work())
        self.network.join()
        self.assertEqual(self.successResultOf(working), (PAGE, made.statement.id))

    def test_arguments(self) -> None:
        """Arguments are checked before anything is sent."""
        own = workload(Network(), CLIENT)
        url, expect = "https://127.0.0.1:8443/", spiffe_id(SERVER)
        for change, text in (
            ({"timeout": "5"}, "timeout: '5': expected seconds"),
            ({"timeout": 0}, "timeout: 0: expected seconds"),
            ({"notarization": "receipt"}, "notarization: 'receipt': expected one of"),
            ({"body": "text"}, "body: str: expected bytes"),
        ):
            for call in (own.request, own.stream):
                asking = Deferred.fromCoroutine(call("POST", url, expect=expect, **change))
                error = self.failureResultOf(asking, ArgumentInvalid).value
                self.assertTrue(str(error).startswith(text), str(error))
        for name, value in (
            ("idle_timeout", "long"),
            ("max_requests", 0),
            ("idle_per_host", -1),
            ("max_requests", "9"),
        ):
            with self.assertRaises(ArgumentInvalid) as refused:
                own.http_agent(expect=expect, **{name: value})  # type: ignore[arg-type]
            self.assertTrue(str(refused.exception).startswith(f"{name}: {value!r}: expected "))
        failing = Deferred.fromCoroutine(own.request("GET", url, expect=expect, max_body=-1))
        self.failureResultOf(failing, ArgumentInvalid)
