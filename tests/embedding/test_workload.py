"""A workload that embeds: endpoints, statements of its own and of others, verified answers; real TLS in memory."""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from svc.embedding import (
    AnswerBroken,
    AnswerLate,
    AnswerTooLarge,
    ConnectionEnded,
    StatementLate,
    StatementNotIssued,
    UrlUnsupported,
    VerifiedAnswer,
    Workload,
)
from svc.embedding.client import MAX_SECONDS, MAX_STATEMENT
from svc.embedding.issuing import STATEMENT_SECONDS, LeafIssuer, own_generations
from svc.identity import BundleSet, X509Svid
from svc.notary.errors import NotaryError
from svc.notary.facts import WorkloadFacts
from svc.notary.generation import Generation
from svc.notary.pqproof import PqLeaf
from svc.notary.profile import Profile
from svc.notary.refusals import IdMismatch, StatementMissing
from svc.proxy.generations import Generations
from svc.testing.workload import MemorySource
from svc.transport.errors import PeerIdentityUnexpected, PeerNotVerified, TransportError
from svc.workload.errors import CredentialsMissing, PqIssuerUnavailable, WorkloadApiUnavailable
from tests.embedding.network import AUTHORITY, DOMAIN, PQ_AUTHORITY, Network, PqRoots, generation, now, source

WEB, GUEST = "/ns/demo/sa/web", "/ns/demo/sa/guest"
PAGE = b"<p>the page</p>"


def spiffe_id(path: str) -> str:
    """A whole SPIFFE ID."""
    return f"spiffe://{DOMAIN}{path}"


def workload(network: Network, path: str, **choices: Any) -> Workload:
    """A workload that issues nothing."""
    return Workload(source(path), reactor=network.reactor, pq_roots=PqRoots(), now=now, **choices)


class Issuer(LeafIssuer):
    """Issues in this process, or fails as a test wants."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("unix:///nowhere")
        object.__setattr__(self, "error", error)

    def obtain(self, svid: X509Svid, *_context: Any) -> Deferred[PqLeaf]:
        """Issue."""
        error: Exception | None = self.error  # type: ignore[attr-defined]
        if error is not None:
            return fail(error)
        chain, key = PQ_AUTHORITY.pq_leaf(svid)
        return succeed(PqLeaf(chain, key, svid.not_after))  # type: ignore[arg-type]


def issuing(identity: MemorySource, reactor: Any, issuer: LeafIssuer | None = None) -> Generations:
    """What makes statements."""
    facts = WorkloadFacts.explicit(host_name="host")
    return own_generations(identity, issuer or Issuer(), profile=Profile.HYBRID, facts=facts, reactor=reactor, now=now)


class Wire(Protocol):
    """Remembers what came and why it ended."""

    def __init__(self) -> None:
        self.data = b""
        self.ended: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        """Remember."""
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Remember."""
        self.ended = reason


class EndpointTests(SynchronousTestCase):
    """Who reaches whom."""

    def setUp(self) -> None:
        """A network."""
        self.network = Network()
        self.served: list[Wire] = []

    def meet(self, caller: str, *, allow: str = f"spiffe://{DOMAIN}/ns/demo/*", expect: str = spiffe_id(WEB)) -> Any:
        """Let a caller connect."""

        def build() -> Wire:
            self.served.append(Wire())
            return self.served[-1]

        server = workload(self.network, WEB).server_endpoint("127.0.0.1:7000", allow=allow)
        self.successResultOf(server.listen(Factory.forProtocol(build)))
        client = workload(self.network, caller).client_endpoint("127.0.0.1:7000", expect=expect)
        connecting = client.connect(Factory.forProtocol(Wire))
        self.network.join()
        return connecting

    def test_a_guest_comes_in(self) -> None:
        """An allowed caller and an expected server talk."""
        guest = self.successResultOf(self.meet(GUEST))
        guest.transport.write(b"hello")
        self.network.carry()
        self.assertEqual(self.served[0].data, b"hello")

    def test_a_stranger_is_refused_in_the_handshake(self) -> None:
        """Who is not allowed never reaches a protocol, and learns why its connection ended."""
        stranger = self.successResultOf(self.meet("/ns/elsewhere/sa/x"))
        self.assertEqual(self.served, [])
        self.assertIsNotNone(stranger.ended)
        self.assertIsInstance(stranger.ended.value, TransportError)

    def test_another_server_is_not_spoken_to(self) -> None:
        """A server with another identity than the expected one ends the attempt."""
        failure = self.failureResultOf(self.meet(GUEST, expect=spiffe_id("/ns/demo/sa/other")))
        self.assertIsInstance(failure.value, PeerIdentityUnexpected)

    def test_what_it_is(self) -> None:
        """The identity is the source's; before it came there is none."""
        self.assertEqual(str(workload(self.network, WEB).spiffe_id), spiffe_id(WEB))
        nobody = Workload(MemorySource(), reactor=self.network.reactor, pq_roots=PqRoots())
        with self.assertRaises(CredentialsMissing):
            _ = nobody.spiffe_id


class LifeTests(SynchronousTestCase):
    """Start and end."""

    def test_parts_start_and_end_together(self) -> None:
        """What is a service runs while the workload does."""

        class Roots(PqRoots, Service):
            """A file that is watched."""

        network, roots = Network(), Roots()
        own = Workload(source(WEB), reactor=network.reactor, pq_roots=roots, now=now)
        own.startService()
        self.successResultOf(Deferred.fromCoroutine(own.when_ready()))
        self.assertTrue(roots.running)
        own.stopService()
        self.assertFalse(roots.running)

    def test_no_identity(self) -> None:
        """The reason of the source is told."""
        absent = MemorySource()
        own = Workload(absent, reactor=Clock(), pq_roots=PqRoots())
        ready = Deferred.fromCoroutine(own.when_ready())
        absent.fail()
        self.assertIsInstance(self.failureResultOf(ready).value, WorkloadApiUnavailable)

    def test_no_statement(self) -> None:
        """An issuer that gives nothing is named after a while."""
        identity, network = source(WEB), Network()
        error = PqIssuerUnavailable(address="unix:///pq.sock", what="nobody listens")
        made = issuing(identity, network.reactor, Issuer(error))
        own = Workload(identity, reactor=network.reactor, pq_roots=PqRoots(), generations=made, now=now)
        own.startService()
        ready = Deferred.fromCoroutine(own.when_ready())
        network.reactor.pump([1.0] * int(STATEMENT_SECONDS - 1))
        self.assertNoResult(ready)
        network.reactor.advance(1.1)
        late = self.failureResultOf(ready, StatementLate)
        self.assertIn("nobody listens", str(late.value))
        own.stopService()
        self.assertEqual(network.reactor.getDelayedCalls(), [])


class StatementTests(SynchronousTestCase):
    """Statements over a connection of one's own."""

    def setUp(self) -> None:
        """A guest that issues statements, connected to a host that judges them."""
        self.network = Network()
        self.identity = source(GUEST)
        made = issuing(self.identity, self.network.reactor)
        self.guest = Workload(
            self.identity, reactor=self.network.reactor, pq_roots=PqRoots(), generations=made, now=now
        )
        self.guest.startService()
        self.addCleanup(self.guest.stopService)
        self.successResultOf(Deferred.fromCoroutine(self.guest.when_ready()))
        self.host = workload(self.network, WEB)
        self.there = Wire()
        endpoint = self.host.server_endpoint("127.0.0.1:7000", allow=f"spiffe://{DOMAIN}/*")
        self.successResultOf(endpoint.listen(Factory.forProtocol(lambda: self.there)))
        connecting = self.guest.client_endpoint("127.0.0.1:7000", expect=spiffe_id(WEB)).connect(
            Factory.forProtocol(Wire)
        )
        self.network.join()
        self.here: Any = self.successResultOf(connecting)

    def test_of_this_connection(self) -> None:
        """The host learns who the guest is, bound to the connection, post-quantum."""
        evidence = self.host.verify_statement(self.guest.statement(self.here.transport), self.there.transport)
        self.assertEqual((str(evidence.subject), evidence.bound, evidence.post_quantum), (spiffe_id(GUEST), True, True))

    def test_after_a_rotation(self) -> None:
        """An open connection keeps the statement that fits the SVID it was made with."""
        before = self.guest.statement(self.here.transport)
        self.identity.rotate(AUTHORITY.svid(GUEST))
        self.assertEqual(self.guest.svid.leaf, self.identity.svid.leaf)
        self.assertEqual(self.guest.statement(self.here.transport), before)
        self.host.verify_statement(before, self.there.transport)

    def test_of_somebody_else(self) -> None:
        """A valid statement of another workload does not fit the connection."""
        stolen = generation("/ns/demo/sa/other").statement.envelope.serialize()
        with self.assertRaises(NotaryError) as refused:
            self.host.verify_statement(stolen, self.there.transport)
        self.assertEqual(refused.exception.reason, "subject_mismatch")

    def test_changed(self) -> None:
        """A changed statement is refused."""
        envelope = bytearray(self.guest.statement(self.here.transport))
        place = envelope.index(b'"payload"') + 20
        envelope[place] = ord("A") if envelope[place] != ord("A") else ord("B")
        with self.assertRaises(NotaryError):
            self.host.verify_statement(bytes(envelope), self.there.transport)

    def test_without_roots(self) -> None:
        """Without post-quantum roots nothing hybrid is believed."""
        blind = Workload(source(WEB), reactor=self.network.reactor, pq_roots=PqRoots(BundleSet()), now=now)
        with self.assertRaises(NotaryError) as refused:
            blind.verify_statement(self.guest.statement(self.here.transport), self.there.transport)
        self.assertEqual(refused.exception.reason, "trust_domain_unknown")

    def test_without_connection(self) -> None:
        """What is no verified connection proves nothing."""
        with self.assertRaises(PeerNotVerified):
            self.host.verify_statement(self.guest.statement(self.here.transport), object())

    def test_none_is_issued(self) -> None:
        """A workload without an issuer says so, and one asked for another's connection too."""
        with self.assertRaises(StatementNotIssued):
            self.host.statement(self.there.transport)
        with self.assertRaises(StatementNotIssued):
            self.guest.statement(self.there.transport)


class Notarized(Resource):
    """What a notary answers: a page that names its statement, and the statement."""

    isLeaf = True

    def __init__(self, made: Generation, *, named: int = 1, served: bytes | None = None, close: bool = False) -> None:
        super().__init__()
        self._made = made
        self._named = named
        self._served = served if served is not None else made.statement.envelope.serialize()
        self._close = close

    def render_GET(self, request: Request) -> bytes:
        """Answer."""
        identifier = self._made.statement.id
        if request.path == f"/.well-known/svc-notary/v1/statements/{identifier}".encode():
            return self._served
        for _ in range(self._named):
            request.responseHeaders.addRawHeader(b"svc-workload-id", identifier.encode())
        if self._close:
            request.setHeader(b"connection", b"close")
        return PAGE


class GetTests(SynchronousTestCase):
    """Answers of a service behind the notary."""

    def ask(self, made: Generation, page: Resource, **choices: Any) -> Deferred[VerifiedAnswer]:
        """Ask a server that presents the SVID of a generation."""
        self.network = Network()
        identity = MemorySource(made.svid, AUTHORITY.bundles())
        server = Workload(identity, reactor=self.network.reactor, pq_roots=PqRoots(), now=now)
        endpoint = server.server_endpoint("127.0.0.1:8443", allow=f"spiffe://{DOMAIN}/*", alpn=[b"http/1.1"])
        self.successResultOf(endpoint.listen(Site(page, reactor=self.network.reactor)))
        choices = {"expect": f"spiffe://{DOMAIN}/*", **choices}
        asked = Deferred.fromCoroutine(workload(self.network, GUEST).get("https://127.0.0.1:8443/", **choices))
        self.network.join()
        return asked

    def test_a_statement_of_this_connection(self) -> None:
        """Answer and evidence come back, both signatures verified."""
        made = generation()
        answer = self.successResultOf(self.ask(made, Notarized(made), max_body=len(PAGE)))
        self.assertEqual((answer.status, answer.body), (200, PAGE))
        self.assertEqual(answer.headers.getRawHeaders(b"svc-workload-id"), [made.statement.id.encode()])
        proved = answer.statement
        self.assertEqual((proved.id, str(proved.subject)), (made.statement.id, spiffe_id(WEB)))
        self.assertTrue(proved.bound and proved.post_quantum)

    def test_no_statement_or_two(self) -> None:
        """Exactly one statement is named."""
        for named in (0, 2):
            made = generation()
            failure = self.failureResultOf(self.ask(made, Notarized(made, named=named)))
            self.assertIsInstance(failure.value, StatementMissing)

    def test_statement_of_a_neighbour(self) -> None:
        """Another statement under the identifier that was named is refused."""
        made, neighbour = generation(), generation("/ns/demo/sa/neighbour")
        page = Notarized(made, served=neighbour.statement.envelope.serialize())
        self.assertIsInstance(self.failureResultOf(self.ask(made, page)).value, IdMismatch)

    def test_neighbour_with_its_own_statement(self) -> None:
        """A valid statement of another workload does not fit the key of the connection."""
        made, neighbour = generation(), generation("/ns/demo/sa/neighbour")
        failure = self.failureResultOf(self.ask(made, Notarized(neighbour)))
        self.assertEqual(getattr(failure.value, "reason", None), "subject_mismatch")

    def test_another_server(self) -> None:
        """The expected identity must answer."""
        made = generation()
        failure = self.failureResultOf(self.ask(made, Notarized(made), expect=spiffe_id("/ns/demo/sa/other")))
        self.assertIsInstance(failure.value, PeerIdentityUnexpected)

    def test_too_large(self) -> None:
        """A body beyond the limit is dropped, and so is a statement that cannot be one."""
        made = generation()
        over = self.failureResultOf(self.ask(made, Notarized(made), max_body=len(PAGE) - 1))
        self.assertIsInstance(over.value, AnswerTooLarge)
        page = Notarized(made, served=b" " * (MAX_STATEMENT + 1))
        self.assertIsInstance(self.failureResultOf(self.ask(made, page)).value, AnswerTooLarge)

    def test_what_goes_on_is_dropped(self) -> None:
        """A server that does not stop when the answer is too large, or the time is over, is cut off."""
        made = generation()

        class Endless(Resource):
            """Goes on until its connection ends."""

            isLeaf = True

            def render_GET(self, request: Request) -> int:
                """Begin."""
                self.request, self.ended = request, []
                request.notifyFinish().addErrback(self.ended.append)
                request.write(b"x" * 1000)
                return NOT_DONE_YET

        for max_body, seconds, expected in ((999, 0.0, AnswerTooLarge), (5000, MAX_SECONDS, AnswerLate)):
            page = Endless()
            asked = self.ask(made, page, max_body=max_body)
            self.network.reactor.advance(seconds)
            self.network.carry()
            self.failureResultOf(asked, expected)
            self.assertEqual(len(page.ended), 1, expected)

    def test_connection_that_ends_between(self) -> None:
        """The statement is never fetched over another connection."""
        made = generation()
        failure = self.failureResultOf(self.ask(made, Notarized(made, close=True)))
        self.assertIsInstance(failure.value, ConnectionEnded)

    def test_no_answer(self) -> None:
        """The wait is bounded."""
        made = generation()

        class Silent(Resource):
            """Never answers."""

            isLeaf = True

            def render_GET(self, request: Request) -> int:
                """Say nothing."""
                return NOT_DONE_YET

        asked = self.ask(made, Silent())
        self.network.reactor.advance(MAX_SECONDS)
        self.network.carry()
        self.failureResultOf(asked, AnswerLate)
        self.assertEqual([each for each in self.network.reactor.getDelayedCalls() if each.getTime() < 1], [])

    def test_answer_that_breaks_off(self) -> None:
        """A body that ends too soon is no body."""
        made = generation()

        class Broken(Resource):
            """Says more than it sends."""

            isLeaf = True

            def render_GET(self, request: Request) -> int:
                """Break off."""
                request.setHeader(b"content-length", b"10")
                request.write(b"12345")
                request.channel.loseConnection()
                return NOT_DONE_YET

        self.assertIsInstance(self.failureResultOf(self.ask(made, Broken())).value, AnswerBroken)

    def test_client_that_is_refused(self) -> None:
        """The server's refusal comes as a typed reason, though TLS tells it late."""
        made = generation()
        network = Network()
        server = Workload(
            MemorySource(made.svid, AUTHORITY.bundles()), reactor=network.reactor, pq_roots=PqRoots(), now=now
        )
        endpoint = server.server_endpoint("127.0.0.1:8443", allow=spiffe_id("/ns/demo/sa/other"), alpn=[b"http/1.1"])
        self.successResultOf(endpoint.listen(Site(Notarized(made), reactor=network.reactor)))
        asked = Deferred.fromCoroutine(workload(network, GUEST).get("https://127.0.0.1:8443/", expect=spiffe_id(WEB)))
        network.join()
        self.assertIsInstance(self.failureResultOf(asked).value, TransportError)

    def test_other_addresses(self) -> None:
        """Only https:// in ASCII is asked."""
        for url in ("http://127.0.0.1/", "https://b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example/"):
            asking = workload(Network(), GUEST).get(url, expect=f"spiffe://{DOMAIN}/*")
            self.failureResultOf(Deferred.fromCoroutine(asking), UrlUnsupported)
