"""The programs of docs/examples: what the documentation shows runs here, in memory, with real certificates and TLS."""

from __future__ import annotations

import importlib.util
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.testing import MemoryReactorClock
from twisted.test.iosim import FakeTransport, IOPump, connect
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import Agent
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from svc.errors import SvcError
from svc.identity import BundleArchive, parse_matcher
from svc.notary.evidence import EvidenceFile
from svc.notary.facts import WorkloadFacts
from svc.notary.generation import Generation
from svc.notary.pqproof import PqLeaf
from svc.notary.profile import Profile
from svc.notary.refusals import IdMismatch, StatementMissing
from svc.testing.ca import TestAuthority
from svc.testing.workload import MemorySource
from svc.transport.addresses import parse_address
from svc.transport.creators import client_creator, server_creator
from svc.transport.endpoints import MutualTlsClientEndpoint, MutualTlsServerEndpoint
from svc.transport.errors import PeerIdentityUnexpected, TransportError

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
NOW = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
DOMAIN = "prod.example.org"
AUTHORITY = TestAuthority(DOMAIN, now=NOW)
PQ_AUTHORITY = TestAuthority(DOMAIN, now=NOW, algorithm="ML-DSA-65")
SOMEWHERE = IPv4Address("TCP", "127.0.0.1", 7000)
PAGE = b"<p>the page</p>"


def example(name: str) -> ModuleType:
    """Import a program without running it."""
    spec = importlib.util.spec_from_file_location(f"docs_example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source(path: str) -> MemorySource:
    """Credentials of a workload."""
    return MemorySource(AUTHORITY.svid(path), AUTHORITY.bundles())


def now() -> datetime:
    """The time of these tests."""
    return NOW


def generation(path: str = "/ns/demo/sa/web") -> Generation:
    """What a proxy in front of that workload holds."""
    svid = AUTHORITY.svid(path)
    chain, key = PQ_AUTHORITY.pq_leaf(svid)
    assert not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey)
    facts = WorkloadFacts.explicit(host_name="host")
    return Generation.issue(svid, PqLeaf(chain, key, svid.not_after), facts, Profile.HYBRID, NOW, os.urandom)


class Network:
    """A reactor without sockets; what listens and what connects are joined by hand."""

    def __init__(self) -> None:
        self.reactor = MemoryReactorClock()
        self.pumps: list[IOPump] = []

    def join(self) -> None:
        """Join each new connection attempt with the one listener, and carry octets until nothing moves."""
        factory: IProtocolFactory = self.reactor.tcpServers[0][1]
        while self.reactor.tcpClients:
            attempt: IProtocolFactory = self.reactor.tcpClients.pop(0)[2]
            server, client = factory.buildProtocol(SOMEWHERE), attempt.buildProtocol(SOMEWHERE)
            self.pumps.append(
                connect(server, FakeTransport(server, True), client, FakeTransport(client, False), greet=False)
            )
        self.carry()

    def carry(self) -> None:
        """Carry octets until nothing moves."""
        moved = True
        while moved:
            moved = False
            for pump in self.pumps:
                moved = bool(pump.pump()) or moved
            self.reactor.advance(0)


class ProgramsTests(SynchronousTestCase):
    """All of them."""

    def test_each_program_imports_without_side_effects(self) -> None:
        """Importing a program runs nothing, and each has a docstring that says how to call it."""
        names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
        self.assertEqual(names, ["evidence", "greeting", "site", "statement"])
        for name in names:
            module = example(name)
            self.assertIn(f"python docs/examples/{name}.py", module.__doc__ or "")
            self.assertTrue(callable(module.main))


class GreetingTests(SynchronousTestCase):
    """A protocol of one's own behind mutual TLS."""

    def greet(self, caller: str, expected: str) -> Deferred[str]:
        """Let a workload ask for a greeting."""
        greeting, network = example("greeting"), Network()
        self.successResultOf(greeting.serve(network.reactor, source("/ns/demo/sa/greeter"), "127.0.0.1:7000", now))
        asked = Deferred.fromCoroutine(
            greeting.ask(network.reactor, source(caller), "127.0.0.1:7000", expected, now),
        )
        network.join()
        return asked

    def test_a_guest_is_greeted_by_its_identity(self) -> None:
        """The server names the verified caller and the group of the connection."""
        greeting = self.successResultOf(self.greet("/ns/demo/sa/guest", f"spiffe://{DOMAIN}/ns/demo/sa/greeter"))
        self.assertIn(f"welcome, spiffe://{DOMAIN}/ns/demo/sa/guest;", greeting)
        self.assertIn("X25519MLKEM768", greeting)

    def test_another_server_is_not_asked(self) -> None:
        """A server with another identity than the expected one ends the attempt."""
        failure = self.failureResultOf(self.greet("/ns/demo/sa/guest", f"spiffe://{DOMAIN}/ns/demo/sa/other"))
        self.assertIsInstance(failure.value, PeerIdentityUnexpected)

    def test_a_stranger_is_refused_in_the_handshake(self) -> None:
        """Who is not on the list gets a TLS alert and no greeting."""
        failure = self.failureResultOf(self.greet("/ns/elsewhere/sa/x", f"spiffe://{DOMAIN}/ns/demo/sa/greeter"))
        self.assertIsInstance(failure.value, TransportError)


class SiteTests(SynchronousTestCase):
    """A twisted.web site behind mutual TLS."""

    def test_a_resource_knows_its_caller(self) -> None:
        """The page tells the verified identity of the client."""
        site, statement, network = example("site"), example("statement"), Network()
        self.successResultOf(site.serve(network.reactor, source("/ns/demo/sa/web"), "127.0.0.1:7443", now))
        creator = client_creator(source("/ns/demo/sa/fe"), clock=now, expected=parse_matcher(f"spiffe://{DOMAIN}/*"))
        endpoint = MutualTlsClientEndpoint(network.reactor, parse_address("127.0.0.1:7443"), creator)
        agent = Agent.usingEndpointFactory(network.reactor, statement.OneConnection(endpoint))
        asked = agent.request(b"GET", b"http://127.0.0.1:7443/")
        network.join()
        body = statement.Body.of(self.successResultOf(asked))
        network.carry()
        self.assertEqual(self.successResultOf(body), f"spiffe://{DOMAIN}/ns/demo/sa/fe\n".encode())


class _Notarized(Resource):
    """What svc-proxy answers: a page that names its statement, and the statement."""

    isLeaf = True

    def __init__(self, made: Generation, *, named: bool = True, served: Generation | None = None) -> None:
        super().__init__()
        self._made = made
        self._named = named
        self._served = served or made

    def render_GET(self, request: Request) -> bytes:
        """Answer."""
        identifier = self._made.statement.id
        if request.path == f"/.well-known/svc-notary/v1/statements/{identifier}".encode():
            return self._served.statement.envelope.serialize()
        if self._named:
            request.setHeader(b"svc-workload-id", identifier.encode())
        return PAGE


class _PqRoots:
    """The content of a PQ bundle file."""

    bundles = PQ_AUTHORITY.bundles()


class StatementTests(SynchronousTestCase):
    """Verifying the statement of a peer in one's own program."""

    def ask(self, made: Generation, page: Resource) -> Deferred[Any]:
        """Ask a server that presents the SVID of a generation."""
        statement, network = example("statement"), Network()
        creator = server_creator(MemorySource(made.svid, AUTHORITY.bundles()), clock=now)
        endpoint = MutualTlsServerEndpoint(network.reactor, parse_address("127.0.0.1:8443"), creator)
        self.successResultOf(endpoint.listen(Site(page, reactor=network.reactor)))
        asked = Deferred.fromCoroutine(
            statement.ask(network.reactor, source("/ns/demo/sa/fe"), _PqRoots, "https://127.0.0.1:8443/", now)
        )
        network.join()
        return asked

    def test_a_statement_of_this_connection_is_accepted(self) -> None:
        """Page and evidence come back, both signatures verified."""
        made = generation()
        page, evidence = self.successResultOf(self.ask(made, _Notarized(made)))
        self.assertEqual(page, PAGE)
        self.assertEqual(str(evidence.subject), f"spiffe://{DOMAIN}/ns/demo/sa/web")
        self.assertEqual((evidence.id, evidence.bound, evidence.post_quantum), (made.statement.id, True, True))

    def test_a_page_without_statement_is_refused(self) -> None:
        """Nothing is believed without a statement."""
        made = generation()
        failure = self.failureResultOf(self.ask(made, _Notarized(made, named=False)))
        self.assertIsInstance(failure.value, StatementMissing)

    def test_a_statement_of_a_neighbour_is_refused(self) -> None:
        """A statement that another workload signed has another identifier."""
        made = generation()
        neighbour = generation("/ns/demo/sa/neighbour")
        failure = self.failureResultOf(self.ask(made, _Notarized(made, served=neighbour)))
        self.assertIsInstance(failure.value, IdMismatch)

    def test_a_neighbour_cannot_pass_off_its_own_statement(self) -> None:
        """A valid statement of another workload does not fit the key of the connection."""
        made, neighbour = generation(), generation("/ns/demo/sa/neighbour")
        failure = self.failureResultOf(self.ask(made, _Notarized(neighbour)))
        self.assertEqual(getattr(failure.value, "reason", None), "subject_mismatch")


class EvidenceTests(SynchronousTestCase):
    """Judging evidence offline."""

    def archive(self) -> bytes:
        """What the authority keeps beside its socket."""
        empty = BundleArchive()
        return empty.observe(AUTHORITY.bundles(), NOW, pq=PQ_AUTHORITY.bundles()).serialize()

    def test_evidence_holds_years_later(self) -> None:
        """After all certificates ended the evidence is still consistent, and its time is only asserted."""
        data = EvidenceFile(generation().statement.envelope).serialize()
        found = example("evidence").judge(data, self.archive(), NOW + timedelta(days=1000))
        self.assertTrue(found.ok)
        self.assertTrue(found.time_asserted)

    def test_changed_evidence_is_refused(self) -> None:
        """One changed character of a signature is found."""
        document = json.loads(EvidenceFile(generation().statement.envelope).serialize())
        signature = document["statement"]["signatures"][0]["signature"]
        document["statement"]["signatures"][0]["signature"] = ("B" if signature[0] != "B" else "C") + signature[1:]
        with self.assertRaises(SvcError) as refused:
            example("evidence").judge(json.dumps(document).encode(), self.archive(), NOW)
        self.assertEqual(refused.exception.reason, "signature_invalid")
