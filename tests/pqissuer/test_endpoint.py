"""Tests of svc.pqissuer.endpoint, svc.authority.pqcallers and svc.workload.pqclient, over connections in memory."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import mldsa
from twisted.internet.address import UNIXAddress
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.authority.attestation import CallerNotAttested
from svc.authority.pqcallers import Attest, UnixCaller, listed, registered
from svc.authority.registration import Entry, Registry, Selectors
from svc.envelope.envelope import Envelope
from svc.errors import SvcError
from svc.identity import BundleSet, SpiffeID, TrustDomain, X509Bundle, X509Svid, verify_svid
from svc.identity.pqbundle import PqBundles
from svc.notary.pqissuer import MAX_CHALLENGES, PqIssuer
from svc.notary.pqleaf import PqLeaf, PqLeafRequest, PqLeafResponse, make_proof
from svc.pages.callers import CUT_OFF, MAX_REQUEST
from svc.pqissuer.endpoint import CallerRefused, PqService, pq_site
from svc.pqissuer.nodes import NodeReport
from tests.workload.messages import AUTHORITY, FOREIGN, NOW

ISSUER = SpiffeID.parse("spiffe://example.org/svc/authority")
PQ = PqIssuer.create(TrustDomain("example.org"), NOW, timedelta(days=30), os.urandom)
KEY = mldsa.MLDSA65PrivateKey.generate()


class Guest:
    """A caller with the identities that a test gives it."""

    def __init__(self, share: SpiffeID | int, peers: Collection[SpiffeID] | None) -> None:
        self.share = share
        self.peers = peers
        self.closed = 0

    def identities(self) -> Collection[SpiffeID] | None:
        if self.peers is not None and not self.peers:
            raise CallerRefused(defect="no entry gives it an identity")
        return self.peers

    def close(self) -> None:
        self.closed += 1


class Observer:
    """Collects what it receives."""

    def __init__(self) -> None:
        self.issued: list[x509.Certificate] = []
        self.refused: list[str] = []
        self.callers: list[SpiffeID | int | None] = []

    def leaf_issued(self, leaf: x509.Certificate) -> None:
        self.issued.append(leaf)

    def leaf_refused(self, error: SvcError, caller: SpiffeID | int | None) -> None:
        self.refused.append(error.reason)
        self.callers.append(caller)


class PqEndpointTests(SynchronousTestCase):
    """Challenge and leaf over HTTP."""

    def setUp(self) -> None:
        """Make the site; callers are attested as ``self.share`` and ``self.peers``."""
        self.clock = Clock()
        self.observer = Observer()
        self.svid = AUTHORITY.svid("/a")
        self.share: SpiffeID | int = 1000
        self.peers: Collection[SpiffeID] | None = {self.svid.spiffe_id}
        self.guests: list[Guest] = []
        self.reports: list[tuple[NodeReport, tuple[SpiffeID, ...]]] = []
        self.bundle = PqBundles().with_bundle(X509Bundle.from_certificates(PQ.trust_domain, [PQ.certificate]))
        self.service = PqService(
            lambda now: PQ,
            AUTHORITY.bundles,
            lambda: ISSUER,
            self.now,
            os.urandom,
            self.observer,
            lambda: self.bundle,
            lambda report, caller: self.reports.append((report, tuple(caller))),
        )
        self.site = pq_site(self.service, self.identify, self.clock)

    def identify(self, transport: object) -> Guest:
        self.guests.append(Guest(self.share, self.peers))
        return self.guests[-1]

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock.seconds())

    def send(self, data: bytes) -> StringTransport:
        """Send octets over a new connection."""
        transport = StringTransport()
        transport.abortConnection = transport.loseConnection
        channel = self.site.buildProtocol(UNIXAddress("/a"))
        channel.makeConnection(transport)
        for position in range(0, len(data), 8192):
            channel.dataReceived(data[position : position + 8192])
        if b"\r\n\r\n" in transport.value():
            channel.connectionLost(Failure(ConnectionDone()))
        return transport

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Send a request and return status and document."""
        head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        head_back, _, answer = self.send(head.encode() + body).value().partition(b"\r\n\r\n")
        status = int(head_back.split()[1])
        return status, json.loads(answer) if b"json" in head_back.lower() else answer

    def challenge(self) -> str:
        status, document = self.ask("GET", "/v1/challenge")
        self.assertEqual((status, document["issuer"]), (200, str(ISSUER)))
        return str(document["challenge"])

    def request(self, svid: X509Svid | None = None, challenge: str | None = None, audience: SpiffeID = ISSUER) -> bytes:
        """A request for a leaf."""
        svid = svid or self.svid
        proof = make_proof(svid, KEY, audience, challenge or self.challenge(), self.now())
        return PqLeafRequest(svid.chain, Envelope.parse(proof)).serialize()

    def refusal(self, body: bytes) -> tuple[int, str]:
        """Request a leaf and return the reason of the refusal."""
        status, document = self.ask("POST", "/v1/pq-leaf", body)
        self.assertEqual(document["type"], f"urn:svc:notary:{document['code']}")
        self.assertEqual(self.observer.issued, [])
        return status, document["code"]

    def test_many_at_once(self) -> None:
        """Of requests that a caller sends at once the first is answered."""
        request = b"GET /v1/challenge HTTP/1.1\r\nHost: a\r\n\r\n"
        transport = self.send(request * 200)
        self.assertEqual(1, transport.value().count(b"HTTP/1.1 200 "))
        self.assertTrue(transport.disconnecting)

    def test_leaf(self) -> None:
        """A proven request gets a leaf that is bound to the SVID and verifies to the PQ root."""
        status, document = self.ask("POST", "/v1/pq-leaf", self.request())
        self.assertEqual(status, 200)
        answer = PqLeafResponse.parse(json.dumps(document).encode())
        leaf = PqLeaf.accept(answer.chain, KEY, self.svid)
        self.assertEqual(leaf.not_after, self.svid.not_after)
        bundle = X509Bundle.from_certificates(PQ.trust_domain, [PQ.certificate])
        self.assertTrue(verify_svid(leaf.chain, BundleSet.of(bundle), NOW).post_quantum)
        self.assertEqual((self.observer.issued, self.observer.refused), ([leaf.leaf], []))

    def test_bundle(self) -> None:
        """An attested caller gets the PQ bundle as the file has it; one without an identity is refused."""
        status, document = self.ask("GET", "/v1/pq-bundle")
        self.assertEqual((200, self.bundle), (status, PqBundles.parse(json.dumps(document).encode())))
        self.peers = set()
        status, document = self.ask("GET", "/v1/pq-bundle")
        self.assertEqual((403, "caller_refused"), (status, document["code"]))

    def test_report(self) -> None:
        """Who fetches the bundle can say what a node serves; a malformed report is refused, and none is stored."""
        self.assertEqual(200, self.ask("GET", "/v1/pq-bundle?node=n1&sequence=7")[0])
        self.assertEqual([(NodeReport("n1", 7), (self.svid.spiffe_id,))], self.reports)
        status, document = self.ask("GET", "/v1/pq-bundle?node=n1")
        self.assertEqual((400, "report_malformed"), (status, document["code"]))
        self.peers = None
        self.assertEqual(200, self.ask("GET", "/v1/pq-bundle?node=n2&sequence=0")[0])
        self.peers = set()
        self.assertEqual(403, self.ask("GET", "/v1/pq-bundle?node=n3&sequence=7")[0])
        self.assertEqual([(NodeReport("n2", 0), ())], self.reports[1:])

    def test_challenge_once(self) -> None:
        """A challenge is valid once and for a minute."""
        challenge = self.challenge()
        self.assertEqual(self.ask("POST", "/v1/pq-leaf", self.request(challenge=challenge))[0], 200)
        self.observer.issued.clear()
        self.assertEqual(self.refusal(self.request(challenge=challenge))[1], "challenge_unknown")
        late = self.challenge()
        self.clock.advance(61)
        self.assertEqual(self.refusal(self.request(challenge=late))[1], "challenge_unknown")

    def test_caller_disagrees(self) -> None:
        """An SVID of another workload than the caller is refused, and so is a caller without an identity."""
        self.peers = {SpiffeID.parse("spiffe://example.org/b")}
        self.assertEqual(self.refusal(self.request()), (403, "caller_mismatch"))
        request = self.request()
        self.peers = set()
        self.assertEqual(self.refusal(request), (403, "caller_refused"))
        self.assertEqual(self.observer.refused, ["caller_mismatch", "caller_refused"])
        self.assertEqual(self.observer.callers, [1000, 1000])

    def test_no_challenge(self) -> None:
        """A caller that may not get a leaf gets no challenge either, and uses up none of others."""
        challenge = self.challenge()
        self.peers = set()
        for _ in range(MAX_CHALLENGES + 1):
            status, document = self.ask("GET", "/v1/challenge")
            self.assertEqual((status, document["code"], document["retryable"]), (403, "caller_refused", False))
        self.assertEqual(set(self.observer.refused), {"caller_refused"})
        self.peers = {self.svid.spiffe_id}
        self.assertEqual(self.ask("POST", "/v1/pq-leaf", self.request(challenge=challenge))[0], 200)

    def test_any_identity(self) -> None:
        """A caller that may request the leaf of any SVID gets that of the SVID whose key it proves."""
        self.peers = None
        self.assertEqual(self.ask("POST", "/v1/pq-leaf", self.request())[0], 200)

    def test_challenge_of_another_caller(self) -> None:
        """A challenge is valid for the identity or user that it was issued to, over any of its connections."""
        challenge = self.challenge()
        for other in (1001, self.svid.spiffe_id):
            self.share = other
            self.assertEqual(self.refusal(self.request(challenge=challenge))[1], "challenge_unknown")
        self.share = 1000
        self.assertEqual(self.ask("POST", "/v1/pq-leaf", self.request(challenge=challenge))[0], 200)

    def test_unknown_caller(self) -> None:
        """A connection whose process cannot be attested is closed without an answer, and reported."""

        def unknown(transport: object) -> Guest:
            raise CallerNotAttested(defect="process 17 has gone")

        self.site = pq_site(self.service, unknown, self.clock)
        self.assertTrue(self.connect(1000).disconnecting)
        self.assertEqual((self.observer.refused, self.observer.callers), (["caller_unknown"], [None]))
        self.assertEqual(self.site.limiter.held, 0)  # type: ignore[attr-defined]

    def test_foreign_svid(self) -> None:
        """An SVID of an unknown trust domain and an expired one are refused."""
        foreign = FOREIGN.svid("/a")
        self.peers = {foreign.spiffe_id}
        self.assertEqual(self.refusal(self.request(foreign)), (403, "trust_domain_unknown"))
        self.peers = {self.svid.spiffe_id}
        self.clock.advance(3700)
        self.assertEqual(self.refusal(self.request()), (403, "expired"))

    def test_other_audience(self) -> None:
        """A proof that was made for another issuer is refused."""
        other = SpiffeID.parse("spiffe://example.org/other")
        self.assertEqual(self.refusal(self.request(audience=other))[1], "proof_mismatch")

    def test_malformed(self) -> None:
        """A body that is not a request is refused as malformed."""
        for body in (b"", b"{}", b"[]", b'{"x5c":["a"],"proof":{}}', b"\xff"):
            self.assertEqual(self.refusal(body)[1], "malformed")

    def test_size(self) -> None:
        """The limit of a request is exact, with and without an announced length."""
        self.assertEqual(self.refusal(b"x" * MAX_REQUEST)[1], "malformed")
        self.assertEqual(self.refusal(b"x" * (MAX_REQUEST + 1)), (413, "too_large"))
        chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        body = chunk * (MAX_REQUEST // 4096 + 1) + b"0\r\n\r\n"
        head = b"POST /v1/pq-leaf HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assertIn(b" 413 ", self.send(head + body).value().split(b"\r\n")[0])

    def test_flood(self) -> None:
        """A sender that does not stop is disconnected."""
        head = f"POST /v1/pq-leaf HTTP/1.1\r\nHost: a\r\nContent-Length: {CUT_OFF * 10}\r\n\r\n"
        self.assertTrue(self.send(head.encode() + b"x" * (CUT_OFF + 8192)).disconnecting)

    def test_other_paths_and_methods(self) -> None:
        """Any other path is not found, any other method not allowed."""
        for method, path, status in (
            ("GET", "/", 404),
            ("GET", "/v1", 404),
            ("GET", "/v1/other", 404),
            ("POST", "/v1/challenge", 405),
            ("GET", "/v1/pq-leaf", 405),
        ):
            self.assertEqual(self.ask(method, path)[0], status, (method, path))

    def test_many_challenges(self) -> None:
        """
        A caller that requests challenges without end does not prevent others, and soon not itself, from getting a leaf.
        """
        self.share = 1001
        honest = self.challenge()
        self.share = 1000
        own = [self.challenge() for _ in range(MAX_CHALLENGES + 1)]
        self.assertEqual(self.refusal(self.request(challenge=own[0]))[1], "challenge_unknown")
        self.assertEqual(self.ask("POST", "/v1/pq-leaf", self.request(challenge=own[-1]))[0], 200)
        self.share = 1001
        self.assertEqual(self.ask("POST", "/v1/pq-leaf", self.request(challenge=honest))[0], 200)

    def connect(self, share: SpiffeID | int) -> StringTransport:
        """Open a connection of a caller, without a request."""
        self.share = share
        transport = StringTransport()
        channel = self.site.buildProtocol(UNIXAddress("/a"))

        def abort() -> None:
            transport.disconnecting = True
            channel.connectionLost(Failure(ConnectionDone()))

        transport.abortConnection = abort
        channel.makeConnection(transport)
        return transport

    def test_connections(self) -> None:
        """Beyond the limit the oldest connection of the caller with most is closed, and its process released."""
        self.site = pq_site(self.service, self.identify, self.clock, connections=3)
        other = SpiffeID.parse("spiffe://example.org/b")
        honest, *greedy = [self.connect(share) for share in (other, 1000, 1000)]
        self.assertEqual([each.disconnecting for each in (honest, *greedy)], [False, False, False])
        greedy += [self.connect(1000) for _ in range(5)]
        self.assertEqual([each.disconnecting for each in (honest, *greedy)], [False, *[True] * 5, False, False])
        newcomer = self.connect(1001)
        self.assertEqual([each.disconnecting for each in (newcomer, *greedy[-2:])], [False, True, False])
        self.assertEqual([guest.closed for guest in self.guests], [0, *[1] * 6, 0, 0])

    def test_connection_ends(self) -> None:
        """A connection that ends releases its slot."""
        self.site = pq_site(self.service, self.identify, self.clock, connections=1)
        self.connect(1000).abortConnection()
        self.assertEqual(self.site.limiter.held, 0)  # type: ignore[attr-defined]
        self.assertEqual([guest.closed for guest in self.guests], [1])

    def test_idle(self) -> None:
        """An idle connection is closed."""
        transport = self.send(b"")
        self.clock.advance(16)
        self.assertTrue(transport.disconnecting)


class Handle:
    """A transport of a Unix socket."""

    def __init__(self, handle: socket.socket) -> None:
        self._handle = handle

    def getHandle(self) -> socket.socket:
        return self._handle


class UnixCallerTests(SynchronousTestCase):
    """The process at the other end of a Unix socket."""

    def setUp(self) -> None:
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            self.addCleanup(each.close)
        self.transport = Handle(ours)

    def caller(self, attest: Attest) -> UnixCaller:
        caller = UnixCaller(self.transport, attest)
        self.addCleanup(caller.close)
        return caller

    def test_registered(self) -> None:
        """With entries it may get leaves for the identities of the entries now in force; it counts for its user."""
        hour = timedelta(hours=1)
        names = [SpiffeID.parse(f"spiffe://example.org/{name}") for name in "ab"]
        mine, other = (
            Entry(name, Selectors(uid=uid), hour, hour)
            for name, uid in zip(names, (os.geteuid(), os.geteuid() + 1), strict=True)
        )
        entries = [mine, other]
        caller = self.caller(registered(lambda: Registry(entries)))
        self.assertEqual((caller.share, tuple(caller.identities() or ())), (os.geteuid(), (names[0],)))
        entries.remove(mine)
        self.assertIn("no entry gives it an identity", str(self.assertRaises(CallerRefused, caller.identities)))

    def test_listed(self) -> None:
        """Without entries a listed user may get the leaf of any SVID whose key it proves; others get none."""
        self.assertIsNone(self.caller(listed([os.geteuid()])).identities())
        for uids in ([], [os.geteuid() + 1]):
            error = self.assertRaises(CallerRefused, self.caller(listed(uids)).identities)
            self.assertIn(f"user {os.geteuid()}", str(error))

    def test_unknown(self) -> None:
        """A socket without peer credentials raises an error."""
        with socket.socket(socket.AF_UNIX) as lonely:
            pass
        self.transport = Handle(lonely)
        self.assertRaises(CallerNotAttested, self.caller, listed([os.geteuid()]))
