"""Tests of svc.workload.authority.pqendpoint and svc.workload.pqclient, over connections in memory."""

from __future__ import annotations

import json
import os
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

from svc.errors import SvcError
from svc.identity import BundleSet, SpiffeID, TrustDomain, X509Bundle, X509Svid, verify_svid
from svc.notary.envelope import Envelope
from svc.notary.pqexchange import PqLeafRequest, PqLeafResponse
from svc.notary.pqissuer import PqIssuer
from svc.notary.pqproof import PqLeaf, make_proof
from svc.workload.authority.pqendpoint import CUT_OFF, MAX_REQUEST, CallerRefused, PqService, pq_site
from tests.workload.messages import AUTHORITY, FOREIGN, NOW

ISSUER = SpiffeID.parse("spiffe://example.org/svc/authority")
PQ = PqIssuer.create(TrustDomain("example.org"), NOW, timedelta(days=30), os.urandom)
KEY = mldsa.MLDSA65PrivateKey.generate()


class Observer:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.issued: list[x509.Certificate] = []
        self.refused: list[str] = []

    def leaf_issued(self, leaf: x509.Certificate) -> None:
        """Keep it."""
        self.issued.append(leaf)

    def leaf_refused(self, error: SvcError) -> None:
        """Keep it."""
        self.refused.append(error.reason)


class PqEndpointTests(SynchronousTestCase):
    """Challenge and leaf over HTTP."""

    def setUp(self) -> None:
        """Make the site; callers are vouched for as ``self.peers`` says."""
        self.clock = Clock()
        self.observer = Observer()
        self.svid = AUTHORITY.svid("/a")
        self.peers: Collection[SpiffeID] = {self.svid.spiffe_id}
        service = PqService(lambda now: PQ, AUTHORITY.bundles, lambda: ISSUER, self.now, os.urandom, self.observer)
        self.site = pq_site(service, lambda transport, request: self.peers, self.clock)

    def now(self) -> datetime:
        """Tell the time of the clock."""
        return NOW + timedelta(seconds=self.clock.seconds())

    def send(self, data: bytes) -> StringTransport:
        """Send octets over a new connection."""
        transport = StringTransport()
        transport.abortConnection = transport.loseConnection  # type: ignore[method-assign]
        channel = self.site.buildProtocol(UNIXAddress("/a"))
        channel.makeConnection(transport)
        for place in range(0, len(data), 8192):
            channel.dataReceived(data[place : place + 8192])
        if b"\r\n\r\n" in transport.value():
            channel.connectionLost(Failure(ConnectionDone()))
        return transport

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Ask and give back status and document."""
        head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        head_back, _, answer = self.send(head.encode() + body).value().partition(b"\r\n\r\n")
        status = int(head_back.split()[1])
        return status, json.loads(answer) if b"json" in head_back.lower() else answer

    def challenge(self) -> str:
        """Get a challenge."""
        status, document = self.ask("GET", "/v1/challenge")
        self.assertEqual((status, document["issuer"]), (200, str(ISSUER)))
        return str(document["challenge"])

    def request(self, svid: X509Svid | None = None, challenge: str | None = None, audience: SpiffeID = ISSUER) -> bytes:
        """Make a request for a leaf."""
        svid = svid or self.svid
        proof = make_proof(svid, KEY, audience, challenge or self.challenge(), self.now())
        return PqLeafRequest(svid.chain, Envelope.parse(proof)).serialize()

    def refusal(self, body: bytes) -> tuple[int, str]:
        """Ask for a leaf and give back why there is none."""
        status, document = self.ask("POST", "/v1/pq-leaf", body)
        self.assertEqual(document["type"], f"urn:svc:notary:{document['code']}")
        self.assertEqual(self.observer.issued, [])
        return status, document["code"]

    def test_leaf(self) -> None:
        """A proven request gets a leaf that stands beside the SVID and verifies to the PQ root."""
        status, document = self.ask("POST", "/v1/pq-leaf", self.request())
        self.assertEqual(status, 200)
        answer = PqLeafResponse.parse(json.dumps(document).encode())
        leaf = PqLeaf.accept(answer.chain, KEY, self.svid)
        self.assertEqual(leaf.not_after, self.svid.not_after)
        bundle = X509Bundle.from_certificates(PQ.trust_domain, [PQ.certificate])
        self.assertTrue(verify_svid(leaf.chain, BundleSet.of(bundle), NOW).post_quantum)
        self.assertEqual((self.observer.issued, self.observer.refused), ([leaf.leaf], []))

    def test_challenge_once(self) -> None:
        """A challenge counts once and for a minute."""
        challenge = self.challenge()
        self.assertEqual(self.ask("POST", "/v1/pq-leaf", self.request(challenge=challenge))[0], 200)
        self.observer.issued.clear()
        self.assertEqual(self.refusal(self.request(challenge=challenge))[1], "challenge_unknown")
        late = self.challenge()
        self.clock.advance(61)
        self.assertEqual(self.refusal(self.request(challenge=late))[1], "challenge_unknown")

    def test_caller_disagrees(self) -> None:
        """An SVID of another workload than the caller is refused, and so is a caller without identity."""
        self.peers = {SpiffeID.parse("spiffe://example.org/b")}
        self.assertEqual(self.refusal(self.request()), (403, "caller_mismatch"))
        self.peers = set()
        self.assertEqual(self.refusal(self.request()), (403, "caller_refused"))
        self.assertEqual(self.observer.refused, ["caller_mismatch", "caller_refused"])

    def test_caller_refused(self) -> None:
        """What the attestation raises is answered."""

        def refuse(transport: object, request: object) -> Collection[SpiffeID]:
            raise CallerRefused(defect="told so")

        service = PqService(lambda now: PQ, AUTHORITY.bundles, lambda: ISSUER, self.now, os.urandom, self.observer)
        self.site = pq_site(service, refuse, self.clock)
        self.assertEqual(self.refusal(self.request()), (403, "caller_refused"))

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
        """What is no request is refused as malformed."""
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
        """A sender that does not stop is cut off."""
        head = f"POST /v1/pq-leaf HTTP/1.1\r\nHost: a\r\nContent-Length: {CUT_OFF * 10}\r\n\r\n"
        self.assertTrue(self.send(head.encode() + b"x" * (CUT_OFF + 8192)).disconnecting)

    def test_other_paths_and_methods(self) -> None:
        """Everything else is not found or not allowed."""
        for method, path, status in (
            ("GET", "/", 404),
            ("GET", "/v1", 404),
            ("GET", "/v1/other", 404),
            ("POST", "/v1/challenge", 405),
            ("GET", "/v1/pq-leaf", 405),
        ):
            self.assertEqual(self.ask(method, path)[0], status, (method, path))

    def test_many_challenges(self) -> None:
        """Outstanding challenges are bounded; the bound is answered with 503 and ends with their life."""
        for _ in range(1024):
            self.challenge()
        status, document = self.ask("GET", "/v1/challenge")
        self.assertEqual((status, document["retryable"]), (503, True))
        self.clock.advance(61)
        self.challenge()

    def test_connections(self) -> None:
        """Connections beyond the limit are closed; closing one makes room."""
        service = PqService(lambda now: PQ, AUTHORITY.bundles, lambda: ISSUER, self.now, os.urandom, self.observer)
        site = pq_site(service, lambda transport, request: self.peers, self.clock, connections=2)
        held = [site.buildProtocol(UNIXAddress("/a")) for _ in range(2)]
        for each in held:
            each.makeConnection(StringTransport())
        self.assertIsNone(site.buildProtocol(UNIXAddress("/a")))
        held[0].connectionLost(Failure(ConnectionDone()))
        self.assertIsNotNone(site.buildProtocol(UNIXAddress("/a")))

    def test_idle(self) -> None:
        """A connection that says nothing is closed."""
        transport = self.send(b"")
        self.clock.advance(16)
        self.assertTrue(transport.disconnecting)
