"""
An outbound listener that verifies its peer: the octets of two listeners in memory, and what somebody between them, or
the peer itself, does to statements, receipts and responses.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE, Envelope
from svc.envelope.profile import Profile
from svc.identity import BundleSet, X509Svid
from svc.notary.artifact import BatchedReceipt
from svc.notary.batch import Inclusion
from svc.notary.beginnings import PIECE
from svc.notary.credentials import CredentialSet
from svc.notary.evidence import EvidenceFile, verify_offline
from svc.notary.exchange import ExchangeOutcome
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.statement import Statement, issue_statement
from svc.notary.verification import Anchors
from svc.policy.attributes import UNKNOWN, Attributes, SecurityLevel
from svc.policyfiles.document import SourceDocument
from svc.proxy.connection_settings import LimitSettings, TimeoutSettings
from svc.proxy.peer_conditions import PeerConditions
from svc.proxy.records.budget import Allowance
from svc.store.errors import StoreUnavailable
from svc.store.records import ReceiptQuery
from svc.strictjson import loads_object
from svc.testing.ca import TestAuthority
from tests.proxy.rig import AUTHORITY, BASE, CALLER, OWN, Handle, Rig, Wire, evidence_of, lose

#: A central issuer.
MANAGER = AUTHORITY.svid("/svc/manager", ttl=timedelta(hours=3))
GET = b"GET /accounts?limit=10 HTTP/1.1\r\nHost: 127.0.0.1:18443\r\nAccept: */*\r\n"
SIGNED = b"Svc-Notarization-Level: signRequest\r\n"
LOGGED = b"Svc-Notarization-Level: logRequest\r\n"
END = b"\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Kind: a\r\n\r\nhello"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX-Sum: 7\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
STATEMENT = b"GET /.well-known/svc-notary/v1/statements/current "
RECEIPT = b"GET /.well-known/svc-notary/v1/receipts/by-request/"
RECORD, WORKLOAD = Level.SIGN_REQUEST, Level.WORKLOAD

Change = Callable[[bytes], bytes]


def unchanged(octets: bytes) -> bytes:
    """Pass octets on."""
    return octets


def problem(answer: bytes) -> dict[str, object]:
    """The problem document of an answer, with its status."""
    head, _, body = answer.partition(b"\r\n\r\n")
    document: dict[str, object] = loads_object(body)
    assert b" %d " % document["status"] in head.split(b"\r\n")[0]  # type: ignore[operator, str-format]
    return document


def pending(octets: bytes) -> bytes:
    """Answer that an artifact is pending."""
    return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n" if b'"payload"' in octets else octets


class Pair:
    """
    A listener that verifies, and the inbound listener of its peer.

    Attributes:
        answer: what the peer's application answers; None where it does not.
        backwards: changes what the peer sends, for each read.
        requests: what the peer's proxy has received, for each connection.
        forwarded: the heads that reached the peer's application.
        received: all that the local application has received.
    """

    def __init__(self, require: Level = WORKLOAD, *, peer: dict[str, Any] | None = None, **local: Any) -> None:
        self.peer = Rig(**(peer or {}))
        self.local = Rig(inbound=False, own=CALLER, require=require, **local)
        self.local.endpoint.handle = Handle(evidence_of(OWN, own=CALLER))
        self.answer: bytes | None = OK
        self.backwards: Change = unchanged
        self.requests: list[bytes] = []
        self.forwarded: list[bytes] = []
        self.received = b""
        self._clients: list[tuple[Any, Wire]] = []
        self._done: set[int] = set()
        self.client, self.wire = self.local.client()

    def send(self, octets: bytes) -> bytes:
        """Send octets of the local application, and return what it gets."""
        self.client.dataReceived(octets)
        return self.run()

    def run(self) -> bytes:
        """Move octets until nothing moves any more."""
        got, moved = b"", True
        while moved:
            moved = False
            for number, (protocol, wire) in enumerate(self.local.endpoint.connections):
                moved |= self._forward(number, wire)
                moved |= self._back(number, protocol, wire)
            for _application, wire in self.peer.endpoint.connections:
                moved |= self._answer(wire)
            data = self.wire.take()
            self.received += data
            got += data
        return got

    def _forward(self, number: int, wire: Wire) -> bool:
        if number == len(self._clients):
            peer = Wire(Handle(evidence_of(CALLER, own=OWN)))
            client = self.peer.build(self.peer.open)  # type: ignore[arg-type]
            client.makeConnection(peer)
            self._clients.append((client, peer))
            self.requests.append(b"")
        client, _peer = self._clients[number]
        data = wire.take()
        if not data or number in self._done:
            return False
        self.requests[number] += data
        client.dataReceived(data)
        return True

    def _back(self, number: int, protocol: Any, wire: Wire) -> bool:
        if number in self._done:
            return False
        peer = self._clients[number][1]
        data = peer.take()
        if data and (data := self.backwards(data)):
            protocol.dataReceived(data)
        if wire.aborted or wire.disconnecting or peer.aborted or peer.disconnecting:
            self.close(number)
        return bool(data)

    def close(self, number: int = -1) -> None:
        """End a connection to the peer on both sides."""
        number %= len(self._clients)
        self._done.add(number)
        done = Failure(ConnectionDone())
        self._clients[number][0].connectionLost(done)
        self.local.endpoint.connections[number][0].connectionLost(done)

    def _answer(self, wire: Wire) -> bool:
        data = wire.take()
        if not data:
            return False
        self.forwarded.append(data)
        if self.answer is not None:
            number = next(i for i, (_p, w) in enumerate(self.peer.endpoint.connections) if w is wire)
            self.peer.respond(self.answer, number)
        return True

    @property
    def summary(self) -> Any:
        """The report of the last exchange."""
        return self.local.reporter.summaries[-1]

    def stored(self) -> list[Any]:
        """The records of the local database."""
        found: list[Any] = []
        self.local.store.find(ReceiptQuery()).addCallback(found.extend)
        return found


class PairTestCase(SynchronousTestCase):
    """Two listeners."""

    def refused(self, pair: Pair, octets: bytes, code: str, detail: str, status: int = 502) -> dict[str, object]:
        """A request must be answered with a problem."""
        document = problem(pair.send(octets))
        self.assertEqual((document["status"], document["code"]), (status, code), document)
        self.assertEqual(document.get("detail_reason", ""), detail, document)
        self.assertEqual(pair.local.reporter.failures, [code])
        return document

    def aborted(self, pair: Pair, octets: bytes, detail: str) -> bytes:
        """A response must be cut; returns what of it was passed on."""
        got = pair.send(octets)
        self.assertTrue(pair.wire.aborted)
        self.assertEqual(pair.local.reporter.failures, ["upstream_unverified"])
        self.assertEqual(pair.local.reporter.details[0][0], detail)
        lose(pair.client)
        self.assertEqual(pair.summary.outcome, ExchangeOutcome.SERVER_ABORTED)
        self.assertEqual((pair.stored(), pair.local.collector.in_flight), ([], 0))
        return got

    def counted(self, pair: Pair) -> tuple[float, float, float]:
        """Connections to the peer: successful, refused, failed."""
        return tuple(  # type: ignore[return-value]
            pair.local.registry.get_sample_value(
                "svc_proxy_connections_total", {"protocol": "http", "direction": "outbound", "result": result}
            )
            for result in ("success", "auth_failed", "error")
        )


class StatementTests(PairTestCase):
    """The statement is verified for each connection, before a request uses it."""

    def test_verified(self) -> None:
        """Two requests use one connection, whose statement was fetched once; the application sees no notary."""
        pair = Pair()
        for _turn in range(2):
            self.assertEqual(pair.send(GET + END), OK)
        [sent] = pair.requests
        self.assertTrue(sent.startswith(STATEMENT))
        self.assertEqual(sent.count(b"/.well-known/svc-notary"), 1)
        self.assertEqual(sent.count(b"Svc-Notarization-Level: workload\r\n"), 2)
        self.assertEqual(self.counted(pair), (1.0, 0.0, 0.0))
        summary = pair.summary
        self.assertEqual((summary.peer, summary.level), (str(OWN.spiffe_id), WORKLOAD))
        self.assertEqual(summary.statement_id, pair.peer.credentials.statement.id)
        self.assertEqual((summary.recorded, summary.receipt_id), (False, None))

    def test_level_of_the_application(self) -> None:
        """A stronger level is passed on with a nonce; without receipts to keep nothing more is verified."""
        pair = Pair()
        self.assertEqual(pair.send(GET + SIGNED + END), OK)
        self.assertIn(SIGNED, pair.requests[0])
        self.assertNotIn(RECEIPT, pair.requests[0])
        self.assertEqual(pair.send(GET + LOGGED + END), OK)
        self.assertEqual(pair.requests[0].count(b"Svc-Notary-Nonce: "), 2)

    def test_level_that_is_none(self) -> None:
        """A misspelt level is refused and nothing is sent."""
        pair = Pair()
        octets = GET + b"Svc-Notarization-Level: sign\r\n" + END
        self.assertEqual(problem(pair.send(octets))["code"], "level_invalid")
        self.assertEqual(pair.local.endpoint.connections, [])

    def refused_before(self, change: Change, detail: str, code: str = "upstream_unverified", **local: Any) -> None:
        """Refuse a request because of what the peer answers to the request for its statement."""
        pair = Pair(**local)
        pair.backwards = change
        self.refused(pair, GET + END, code, detail)
        self.assertEqual(pair.forwarded, [])
        self.assertEqual(len(pair.requests), 1)
        self.assertNotIn(b"/accounts", pair.requests[0])
        self.assertTrue(pair.local.upstream()[1].aborted)
        self.assertEqual(pair.local.pool.open_count, 0)
        self.assertEqual(sum(self.counted(pair)), 1.0)

    def test_no_notary(self) -> None:
        """A peer that is no notary, or answers something else, is refused with the reason."""
        body = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
        for answer, detail in (
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "fetch_failed{404}"),
            (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "fetch_failed{302}"),
            (body % (4, b"{}\r\n"), "malformed"),
            (body % (5, b"hello"), "malformed"),
            (body % (MAX_ENVELOPE + 1, b"x" * (MAX_ENVELOPE + 1)), "too_large"),
        ):
            self.refused_before(lambda _data, answer=answer: answer, detail)  # type: ignore[misc]
        self.refused_before(lambda _data: body % (MAX_ENVELOPE, b"x" * MAX_ENVELOPE), "malformed")
        self.refused_before(lambda _data: b"SSH-2.0-x\r\n", "", "upstream_malformed")

    def test_closes(self) -> None:
        """A peer that closes instead of an answer, or after its statement, is refused."""
        pair = Pair()

        def close(_data: bytes) -> bytes:
            pair.close()
            return b""

        pair.backwards = close
        self.refused(pair, GET + END, "upstream_closed", "")
        self.assertEqual(self.counted(pair), (0.0, 0.0, 1.0))
        ends = lambda data: data.replace(b"\r\nETag", b"\r\nConnection: close\r\nETag", 1)  # noqa: E731
        self.refused_before(ends, "", "upstream_closed")

    def test_never_answers(self) -> None:
        """The statement has to arrive within the time of a connection."""
        pair = Pair(timeouts=cast(Any, TimeoutSettings)(connect="5s"))
        pair.backwards = lambda _data: b""
        self.assertEqual(pair.send(GET + END), b"")
        pair.local.clock.advance(4.9)
        self.assertEqual(pair.run(), b"")
        pair.local.clock.advance(0.1)
        document = problem(pair.run())
        self.assertEqual((document["status"], document["detail_reason"]), (502, "upstream_timeout"))
        self.assertIn("within 5 s", str(document["detail"]))
        self.assertEqual(self.counted(pair), (0.0, 0.0, 1.0))
        self.assertEqual(pair.local.clock.getDelayedCalls(), [])

    def test_wrong_statements(self) -> None:
        """A statement of another identity, of another key, expired, altered or from unknown roots is refused."""
        stranger = Rig(own=CALLER)
        renewed = Rig(own=AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=1)))
        foreign = Rig(own=TestAuthority("prod.example", now=BASE).svid("/ns/pay/sa/api"))
        for other, detail in (
            (stranger, "subject_mismatch"),
            (renewed, "key_mismatch"),
            (foreign, "chain_untrusted{classical}"),
        ):
            body = other.credentials.statement.envelope.serialize()
            octets = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            self.refused_before(lambda _data, octets=octets: octets, detail)  # type: ignore[misc]

        def altered(data: bytes) -> bytes:
            head, _, body = data.partition(b"\r\n\r\n")
            envelope = re.sub(
                rb'"signature":"(.)', lambda found: b'"signature":"' + (b"B" if found[1] == b"A" else b"A"), body
            )
            return head + b"\r\n\r\n" + envelope

        self.refused_before(altered, "signature_invalid{ES256}")

    def test_expired(self) -> None:
        """A statement beyond its time is refused by the clock of this side."""
        pair = Pair()
        pair.local.clock.advance(3600.0 + 61.0)
        document = problem(pair.send(GET + END))
        self.assertEqual(document["status"], 502)
        self.assertEqual(pair.forwarded, [])

    def test_profile(self) -> None:
        """A classical statement is not enough for the profile hybrid; that is the fault of the peer."""
        self.refused_before(unchanged, "hybrid_incomplete", profile=Profile.HYBRID)

    def test_unknown_trust_domain(self) -> None:
        """Without the roots of the peer's trust domain nothing is verified."""
        pair = Pair()
        pair.local.anchors = Anchors(BundleSet(), BundleSet())
        self.refused(pair, GET + END, "upstream_unverified", "trust_domain_unknown")

    def test_client_leaves(self) -> None:
        """A client that leaves while the statement is fetched ends the connection; nothing is sent on it."""
        pair = Pair()
        pair.backwards = lambda _data: b""
        pair.send(GET + END)
        lose(pair.client)
        pair.run()
        self.assertEqual((pair.local.pool.open_count, pair.forwarded), (0, []))
        self.assertEqual(pair.local.clock.getDelayedCalls(), [])

    def test_defect(self) -> None:
        """An unexpected error of the verification refuses the peer, is logged and leaves no connection open."""
        pair = Pair()
        pair.local.anchors = None  # type: ignore[assignment]
        self.refused(pair, GET + END, "upstream_unreachable", "")
        self.assertEqual((pair.forwarded, pair.local.pool.open_count), ([], 0))
        self.assertEqual(self.counted(pair), (0.0, 1.0, 0.0))
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)

    def test_octets_between(self) -> None:
        """Octets after the statement end the connection before a request is sent on it."""
        self.refused_before(lambda data: data + b"HTTP/1.1 200 OK\r\n\r\n", "", "upstream_closed")

    def test_never_sent_twice(self) -> None:
        """A request on a kept connection that ends without an answer is not sent again."""
        pair = Pair()
        pair.send(GET + END)
        pair.answer = None
        self.assertEqual(pair.send(GET + END), b"")
        pair.close()
        self.assertEqual(problem(pair.run())["code"], "upstream_closed")
        self.assertEqual((len(pair.requests), len(pair.forwarded)), (1, 2))

    def test_ends_with_the_statement(self) -> None:
        """A kept connection is not used beyond the time of its statement."""
        pair = Pair()
        pair.send(GET + END)
        connection = pair.local.upstream()[0]
        evidence = connection.statement.evidence
        self.assertEqual(connection.ends, min(evidence.expires, connection.evidence.ends).timestamp())
        connection.ends = (BASE + timedelta(seconds=20)).timestamp()
        pair.local.sweep(19.0)
        self.assertFalse(pair.local.upstream()[1].disconnecting)
        pair.local.sweep(2.0)
        self.assertTrue(pair.local.upstream()[1].disconnecting)
        self.assertEqual(pair.local.reporter.denials, [("expired", str(OWN.spiffe_id))])


class ReverificationTests(PairTestCase):
    """Open connections are verified again when roots or deny lists change."""

    def changed(self, pair: Pair) -> None:
        """Report a change."""
        pair.local.change()

    def test_unchanged(self) -> None:
        """A request under way goes on where its peer would still be accepted."""
        pair = Pair()
        pair.answer = None
        pair.send(GET + END)
        self.changed(pair)
        pair.peer.respond(OK)
        self.assertEqual(pair.run(), OK)

    def test_roots(self) -> None:
        """Where the roots are gone, a connection in use is cut and the request answered with the reason."""
        pair = Pair()
        pair.answer = None
        pair.send(GET + END)
        pair.local.anchors = Anchors(BundleSet(), BundleSet())
        self.changed(pair)
        document = problem(pair.run())
        self.assertEqual((document["status"], document["detail_reason"]), (502, "trust_domain_unknown"))
        self.assertEqual(pair.local.reporter.denials, [("trust_domain_unknown", str(OWN.spiffe_id))])

    def test_deny_list(self) -> None:
        """A statement on a deny list ends open connections, and new ones are refused."""
        pair = Pair()
        pair.send(GET + END)
        pair.local.listed_statements.add(pair.peer.credentials.statement.id)
        self.changed(pair)
        self.assertTrue(pair.local.upstream()[1].aborted)
        document = problem(pair.send(GET + END))
        self.assertEqual((document["code"], document["detail_reason"]), ("upstream_identity_refused", "policy_deny"))
        self.assertEqual(len(pair.forwarded), 1)


def central(facts: WorkloadFacts, issuer: X509Svid = MANAGER) -> Statement:
    """A statement about the peer by another issuer."""
    signers = CredentialSet.issue(issuer, None, facts, Profile.CLASSICAL, BASE, os.urandom).signers
    return issue_statement(OWN, facts, signers, BASE, os.urandom, issuer.spiffe_id)


class ConditionTests(PairTestCase):
    """Conditions on the statement of the peer."""

    def pair(self, own: Attributes = UNKNOWN, **keys: object) -> Pair:
        """A listener with one entry of conditions, before a peer with facts of a central issuer."""
        self.own = own
        source = SourceDocument.model_validate(keys).source()
        pair = Pair(conditions=PeerConditions("pay", (MANAGER.spiffe_id,), (source,), lambda: self.own))
        annotations = {naming.ANNOTATION_LEVEL: "de:s", naming.ANNOTATION_COMPARTMENT: "blue"}
        facts = WorkloadFacts.explicit(namespace="pay", service_account="api", annotations=annotations)
        self.present(pair, central(facts))
        return pair

    def present(self, pair: Pair, statement: Statement) -> None:
        """Have the peer present another statement."""
        pair.peer.rotation.credentials = replace(pair.peer.credentials, statement=statement)

    def refused(self, pair: Pair) -> object:  # type: ignore[override]
        """The code for a request that must not reach the application, with the precise reason."""
        document = problem(pair.send(GET + END))
        self.assertEqual((document["status"], pair.forwarded), (502, []))
        return document["code"], document["detail_reason"]

    def test_satisfied(self) -> None:
        """Every kind of condition is read from the statement."""
        blue = Attributes(level=SecurityLevel.parse("DE:C"), compartment="blue")
        for own, keys in (
            (UNKNOWN, {"namespaces": ["pay"], "serviceAccounts": ["api"]}),
            (UNKNOWN, {"levels": ["DE:S"], "notCompartments": ["red"]}),
            (blue, {"sameCompartment": True, "dominates": True}),
        ):
            self.assertIn(b"hello", self.pair(own, **keys).send(GET + END), keys)

    def test_refused(self) -> None:
        """A fact that differs, or is not known, refuses the peer before a request is sent."""
        above = Attributes(level=SecurityLevel.parse("DE:TS"), compartment="red")
        for own, keys in (
            (UNKNOWN, {"namespaces": ["web"]}),
            (UNKNOWN, {"notNamespaces": ["pay"]}),
            (UNKNOWN, {"sameCompartment": True}),
            (above, {"sameCompartment": True}),
            (above, {"dominates": True}),
        ):
            self.assertEqual(("upstream_identity_refused", "policy_deny"), self.refused(self.pair(own, **keys)), keys)

    def test_facts_that_are_no_attributes(self) -> None:
        """Annotations that are no level and no compartment are unknown."""
        pair = self.pair(notCompartments=["red"])
        facts = WorkloadFacts.explicit(annotations={naming.ANNOTATION_LEVEL: "s", naming.ANNOTATION_COMPARTMENT: "a b"})
        self.present(pair, central(facts))
        self.assertEqual(("upstream_identity_refused", "policy_deny"), self.refused(pair))

    def test_self_issued(self) -> None:
        """What a workload says of itself satisfies no condition."""
        pair = self.pair(namespaces=["pay"])
        self.present(pair, pair.peer.credentials.statement)
        self.assertEqual(("upstream_unverified", "issuer_not_authorised"), self.refused(pair))

    def test_another_issuer(self) -> None:
        """A statement by somebody who is no central issuer is refused."""
        pair = self.pair(namespaces=["pay"])
        self.present(pair, central(WorkloadFacts.explicit(namespace="pay"), CALLER))
        self.assertEqual(("upstream_unverified", "issuer_not_authorised"), self.refused(pair))

    def test_changed(self) -> None:
        """The connection ends when other attributes of the own workload no longer satisfy them."""
        pair = self.pair(Attributes(compartment="blue"), sameCompartment=True)
        pair.send(GET + END)
        self.own = Attributes(compartment="red")
        pair.local.change()
        pair.run()
        self.assertTrue(pair.local.upstream()[1].disconnecting or pair.local.upstream()[1].aborted)


class ResponseTests(PairTestCase):
    """What a response names belongs to its connection and its request."""

    def altered(self, pattern: bytes, replacement: bytes, code: str, require: Level = WORKLOAD) -> None:
        """Alter the response to the request, not the statement before it."""
        pair = Pair(require)

        def change(data: bytes) -> bytes:
            return re.sub(pattern, replacement, data) if b"X-Kind" in data else data

        pair.backwards = change
        document = self.refused(pair, GET + END, "upstream_unverified", code)
        self.assertIn("status 200", str(document["detail"]))
        self.assertTrue(pair.local.upstream()[1].aborted)
        self.assertEqual(len(pair.forwarded), 1)

    def test_statement(self) -> None:
        """A response that names another statement, none or no identifier is refused before its head."""
        self.altered(rb"Svc-Workload-ID: .{43}", b"Svc-Workload-ID: " + b"A" * 43, "id_mismatch")
        self.altered(rb"Svc-Workload-ID: .{43}\r\n", b"", "statement_missing")
        self.altered(rb"Svc-Workload-ID: .{43}", b"Svc-Workload-ID: x", "id_malformed")

    def test_level(self) -> None:
        """A response without the level, or with a weaker one, is refused."""
        self.altered(rb"Svc-Notarization-Level: \w+\r\n", b"", "level_mismatch")
        self.altered(rb"(Svc-Notarization-Level: )\w+", rb"\1none", "level_mismatch")
        self.altered(rb"(Svc-Notarization-Level: )\w+", rb"\1workload", "level_mismatch", RECORD)

    def test_receipt(self) -> None:
        """A response that names no receipt, or that of another request, is refused before its head."""
        self.altered(rb"Svc-Receipt-Location: [^\r]+\r\n", b"", "receipt_missing", RECORD)
        self.altered(rb"(by-request/)[^\r]{22}", rb"\1" + b"A" * 22, "nonce_mismatch", RECORD)
        self.altered(rb"(Svc-Receipt-Location: )/", rb"\1https://evil.test/", "receipt_missing", RECORD)

    def test_weak_peer(self) -> None:
        """A peer whose listener allows less than is demanded is refused with the level."""
        pair = Pair(RECORD, peer={"maximum": WORKLOAD})
        self.refused(pair, GET + END, "upstream_unverified", "level_mismatch")

    def test_refusal_of_the_peer(self) -> None:
        """An answer of the peer's proxy itself proves nothing that is demanded; its status is in the detail."""
        pair = Pair(RECORD, peer={"limits": cast(Any, LimitSettings)(body="1B")})
        octets = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nxx"
        document = self.refused(pair, octets, "upstream_unverified", "level_mismatch")
        self.assertIn("status 413", str(document["detail"]))

    def test_interim(self) -> None:
        """Interim responses of a verified peer are passed on."""
        pair = Pair()
        pair.answer = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK
        self.assertTrue(pair.send(GET + END).startswith(b"HTTP/1.1 103 Early Hints\r\n"))


class ReceiptTests(PairTestCase):
    """The receipt of each request is verified before its response ends."""

    def test_framings(self) -> None:
        """Whatever ends the response, its receipt is verified before that, on the same connection."""
        for request, answer in (
            (GET, OK),
            (GET, NO_CONTENT),
            (GET, CHUNKED),
            (GET.replace(b"GET", b"HEAD"), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
            (GET.replace(b"HTTP/1.1", b"HTTP/1.0"), CHUNKED),
        ):
            pair = Pair(RECORD)
            pair.answer = answer
            seen: list[bytes] = []

            def before(data: bytes, pair: Pair = pair, seen: list[bytes] = seen) -> bytes:
                if RECEIPT in pair.requests[0]:
                    self.assertFalse(pair.wire.disconnecting)
                    seen.append(pair.received + pair.wire.value())
                return data

            pair.backwards = before
            got = pair.send(request + END)
            self.assertTrue(got.startswith(b"HTTP/1.1 20"), got)
            self.assertNotIn(b"Svc-", got)
            if request is GET:
                self.assertEqual(got, answer.replace(b"2\r\nhe\r\n3\r\nllo", b"2\r\nhe\r\n3\r\nllo"))
            self.assertEqual(len(pair.requests), 1)
            self.assertEqual(pair.summary.receipt_id, self.receipt_of(pair.peer))
            self.assertFalse(pair.summary.recorded)
            self.assertEqual(pair.local.pool.open_count, 1)
            self.assertEqual(pair.local.clock.getDelayedCalls(), [])
            # When the receipt arrives, the end is still withheld; of a response without a body all of it, and for
            # clients of HTTP/1.0 the end of the connection.
            self.assertTrue(got.startswith(seen[0]), seen)
            self.assertEqual(len(seen[0]) == len(got), pair.wire.disconnecting, seen)
            self.assertEqual(pair.local.reporter.failures, [])

    def receipt_of(self, rig: Rig) -> str:
        """The only receipt of a store."""
        found: list[Any] = []
        rig.store.find(ReceiptQuery()).addCallback(found.extend)
        [stored] = found
        return str(stored.id)

    def test_requests(self) -> None:
        """What is sent is what is compared: another Host, an absolute target, trailers, redacted values."""
        body = b"4\r\nabcd\r\n0\r\nX-End: 1\r\n\r\n"
        for request in (
            b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\r\n" + body,
            b"PUT /a?b=c%20d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nAuthorization: s\r\nCookie: a=b\r\n\r\nabc",
            b"GET http://x/a HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 1.2.3.4\r\nX-A:  \xff \r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: 5\r\n\r\n",
            b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Empty:\r\n\r\n",
        ):
            for host in (None, b"pay.bank.example:8443"):
                pair = Pair(RECORD, host=host)
                self.assertEqual(pair.send(request), OK, request)
                self.assertEqual(pair.local.reporter.failures, [])

    def test_slow(self) -> None:
        """The body is passed on as it comes, all but the last octet."""
        pair = Pair(RECORD)
        pair.answer = OK[:-5]
        self.assertTrue(pair.send(GET + END).endswith(b"\r\n\r\n"))
        pair.peer.respond(b"he")
        self.assertEqual(pair.run(), b"he")
        held = []
        pair.backwards = lambda data: held.append(pair.wire.value()) or data
        pair.peer.respond(b"llo")
        self.assertEqual(pair.run(), b"llo")
        self.assertEqual(b"".join(held).count(b"o"), 0)

    def receipt_answer(self, change: Change) -> Pair:
        """A pair that changes answers to requests for receipts."""
        pair = Pair(RECORD, collect=True)

        def changed(data: bytes) -> bytes:
            return change(data) if RECEIPT in pair.requests[0] else data

        pair.backwards = changed
        return pair

    def test_missing(self) -> None:
        """A receipt that is not there, or no receipt, leads to an abort with the reason."""
        answer = b"HTTP/1.1 %b\r\nContent-Length: 2\r\n\r\n{}"
        for status, detail in (
            (b"404 Not Found", "receipt_missing"),
            (b"500 No", "fetch_failed{500}"),
            (b"200 OK", "malformed"),
        ):
            pair = self.receipt_answer(lambda _data, octets=answer % status: octets)  # type: ignore[misc]
            got = self.aborted(pair, GET + END, detail)
            self.assertTrue(got.endswith(b"hell"), got)

    def test_nothing_sent(self) -> None:
        """Where nothing of the response was sent, the application gets 502 and the connection goes on."""
        pair = self.receipt_answer(lambda _data: b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        pair.answer = NO_CONTENT
        self.refused(pair, GET + END, "upstream_unverified", "receipt_missing")
        pair.backwards = unchanged
        pair.answer = OK
        self.assertTrue(pair.send(GET + END).startswith(b"HTTP/1.1 200 OK"))
        self.assertEqual(pair.local.collector.in_flight, 0)

    def test_pending(self) -> None:
        """A pending receipt is asked for again."""
        pair = self.receipt_answer(
            lambda _data: b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
        )
        self.assertTrue(pair.send(GET + END).endswith(b"hell"))
        pair.local.clock.advance(0.9)
        self.assertEqual(pair.run(), b"")
        pair.backwards = unchanged
        pair.local.clock.advance(0.1)
        self.assertEqual(pair.run(), b"o")
        self.assertEqual((len(pair.requests), pair.local.clock.getDelayedCalls()), (1, []))

    def test_pending_on_a_connection_that_ends(self) -> None:
        """Where the connection ends while the receipt is pending, it is asked for on another verified one."""
        pair = self.receipt_answer(
            lambda _data: b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
        )
        self.assertTrue(pair.send(GET + END).endswith(b"hell"))
        pair.close()
        pair.backwards = unchanged
        pair.local.clock.advance(1.0)
        self.assertEqual(pair.run(), b"o")
        self.assertTrue(pair.requests[1].startswith(STATEMENT))
        self.assertEqual((len(pair.requests), pair.local.clock.getDelayedCalls()), (2, []))

    def test_pending_for_ever(self) -> None:
        """A receipt that stays pending ends the response after the time for responses."""
        pair = self.receipt_answer(
            lambda _data: b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
        )
        pair.send(GET + END)
        for _second in range(59):
            pair.local.clock.advance(1.0)
            pair.run()
        self.assertFalse(pair.wire.aborted)
        pair.local.clock.advance(1.0)
        self.assertTrue(pair.wire.aborted)
        self.assertEqual(pair.local.reporter.details[0][0], "receipt_pending")
        self.assertEqual(pair.local.clock.getDelayedCalls(), [])

    def test_never_answered(self) -> None:
        """A receipt that does not arrive is waited for as long, and its connection ends."""
        pair = self.receipt_answer(lambda _data: b"")
        pair.send(GET + END)
        pair.local.clock.advance(60.0)
        self.assertTrue(pair.wire.aborted)
        self.assertTrue(pair.local.upstream()[1].aborted)
        self.assertEqual(pair.local.clock.getDelayedCalls(), [])

    def test_of_another_request(self) -> None:
        """The receipt of another request is refused, whatever it says."""
        first = Pair(RECORD)
        kept: list[bytes] = []
        first.backwards = lambda data: kept.append(data) or data
        first.send(GET + END)
        [_statement, receipt] = [each for each in kept if b'"payload"' in each]
        pair = self.receipt_answer(lambda _data: receipt)
        # Another key: the statement of each pair is its own.
        self.aborted(pair, GET + END, "statement_mismatch")

    def test_altered_response(self) -> None:
        """Whatever octet of the response was changed on the way, the response does not end."""
        for pattern, replacement, detail in (
            (b"hello", b"jello", "response_mismatch{body}"),
            (b"X-Kind: a", b"X-Kind: b", "response_mismatch{header:1}"),
            (b"X-Kind: a\r\n", b"", "response_mismatch{header:1}"),
            (b"X-Kind: a", b"X-Kind: a\r\nX-More: b", "response_mismatch{header:2}"),
            (b" 200 OK", b" 201 OK", "response_mismatch{status}"),
        ):
            pair = Pair(RECORD, collect=True)

            def alter(data: bytes, pattern: bytes = pattern, replacement: bytes = replacement) -> bytes:
                return data.replace(pattern, replacement) if b"X-Kind" in data else data

            pair.backwards = alter
            got = self.aborted(pair, GET + END, detail)
            self.assertTrue(got.endswith(b"ell"), got)

    def test_altered_request(self) -> None:
        """A request that was changed on the way is found by its receipt."""
        pair = Pair(RECORD)
        original = pair._forward

        def changed(number: int, wire: Wire) -> bool:
            data = wire.take()
            wire.write(data.replace(b"limit=10", b"limit=11"))
            return original(number, wire)

        pair._forward = changed
        self.aborted(pair, GET + END, "request_mismatch{query}")

    def test_lost_between(self) -> None:
        """A peer that dies between response and receipt leaves the response without its end."""
        pair = self.receipt_answer(lambda _data: b"")
        self.assertTrue(pair.send(GET + END).endswith(b"hell"))
        pair.close()
        self.assertTrue(pair.wire.aborted)
        self.assertEqual(pair.local.reporter.failures, ["upstream_closed"])

    def test_cut_in_the_middle(self) -> None:
        """A response that ends too early is cut as ever, and no receipt is asked for."""
        pair = Pair(RECORD, collect=True)
        pair.answer = OK[:-2]
        pair.send(GET + END)
        pair.close()
        self.assertTrue(pair.wire.aborted)
        self.assertNotIn(RECEIPT, pair.requests[0])
        self.assertEqual(pair.local.collector.in_flight, 0)

    def test_connection_ends_with_the_response(self) -> None:
        """The receipt is then fetched on a new connection, which is verified before."""
        pair = Pair(RECORD)
        pair.backwards = lambda data: data.replace(b"\r\nX-Kind", b"\r\nConnection: close\r\nX-Kind")
        got = pair.send(GET + END)
        self.assertTrue(got.endswith(b"hello"), got)
        self.assertEqual(len(pair.requests), 2)
        self.assertTrue(pair.requests[1].startswith(STATEMENT))
        self.assertIn(RECEIPT, pair.requests[1])

    def test_new_connection_refused(self) -> None:
        """A new connection that cannot be made ends the response."""
        pair = Pair(RECORD, collect=True)

        def ends(data: bytes) -> bytes:
            if b"X-Kind" in data:
                pair.local.endpoint.refuse = OSError("no")
            return data.replace(b"\r\nX-Kind", b"\r\nConnection: close\r\nX-Kind")

        pair.backwards = ends
        pair.send(GET + END)
        self.assertTrue(pair.wire.aborted)
        self.assertEqual(pair.local.reporter.failures, ["upstream_unreachable"])

    def test_upgrade(self) -> None:
        """The tunnel begins after the receipt of the 101 is verified, which needs another connection."""
        request = GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        pair = Pair(RECORD, collect=True)
        pair.answer = SWITCH
        got = pair.send(request)
        self.assertTrue(got.startswith(b"HTTP/1.1 101 "), got)
        self.assertEqual(len(pair.requests), 2)
        self.assertEqual(pair.stored()[0].outcome, "upgraded")
        pair.answer = b"frame"
        self.assertEqual(pair.send(b"ping"), b"frame")

    def test_upgrade_refused(self) -> None:
        """Without the receipt of its 101 there is no tunnel."""
        request = GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        pair = Pair(RECORD)
        pair.answer = SWITCH

        def missing(data: bytes) -> bytes:
            if len(pair.requests) > 1 and RECEIPT in pair.requests[1]:
                return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            return data

        pair.backwards = missing
        self.refused(pair, request, "upstream_unverified", "receipt_missing")
        self.assertTrue(pair.local.upstream(0)[1].aborted)
        self.assertEqual(pair.summary.outcome, ExchangeOutcome.COMPLETE)

    def early(self, size: int, rest: int) -> Pair:
        """A peer that answers when it has read a part of a request body; the ``rest`` of what was sent is lost."""
        pair = Pair(RECORD)
        pair.answer = None
        head = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (size + rest + 1)
        pair.send(head + b"a" * size)
        for _piece in range(rest // PIECE):
            pair.client.dataReceived(b"b" * PIECE)
        pair.client.dataReceived(b"b" * (rest % PIECE))
        pair.local.upstream()[1].clear()
        pair.peer.respond(OK)
        return pair

    def test_early_answer(self) -> None:
        """An answer that attests only a beginning of the request is compared, wherever that ends."""
        for size, rest in ((0, 100), (100, 0), (PIECE, 100), (PIECE + 1, 100), (9 * PIECE + 7, 5 * PIECE + 3)):
            pair = self.early(size, rest)
            got = pair.run()
            self.assertTrue(got.endswith(b"hello"), (size, got, pair.local.reporter.details))

    def test_early_answer_to_what_is_not_kept(self) -> None:
        """Beyond what all bodies may keep, a beginning that ended long before cannot be compared: it is refused."""
        pair = Pair(RECORD)
        assert pair.local.peers is not None
        pair.local.peers.kept.limit = 0
        pair.answer = None
        pair.send(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (4 * PIECE) + b"a" * 100)
        for _piece in range(3):
            pair.client.dataReceived(b"b" * PIECE)
        pair.local.upstream()[1].clear()
        pair.peer.respond(OK)
        pair.run()
        self.assertTrue(pair.wire.aborted)
        self.assertEqual(pair.local.reporter.details[0][0], "request_mismatch{body}")

    def test_early_answer_before_trailers(self) -> None:
        """Trailers that the peer had not read are not in its receipt."""
        pair = Pair(RECORD)
        pair.answer = None
        pair.send(b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        pair.client.dataReceived(b"0\r\nX-End: 1\r\n\r\n")
        pair.local.upstream()[1].clear()
        pair.peer.respond(OK)
        got = pair.run()
        self.assertTrue(got.endswith(b"hello"), (got, pair.local.reporter.details))

    def test_not_on_an_idle_connection(self) -> None:
        """Another connection for a receipt is a new one: an idle one may be closed already by the peer."""
        pair = Pair(RECORD)
        pair.answer = None
        first, second = (pair.client, pair.wire), pair.local.client()
        pair.send(GET + END)
        pair.client, pair.wire = second
        pair.send(GET + END)
        pair.peer.respond(OK, 1)
        self.assertTrue(pair.run().endswith(b"hello"))
        self.assertEqual(pair.local.pool.idle_count, 1)
        pair.client, pair.wire = first
        pair.backwards = lambda data: data.replace(b"\r\nX-Kind", b"\r\nConnection: close\r\nX-Kind")
        pair.peer.respond(OK, 0)
        self.assertTrue(pair.run().endswith(b"hello"))
        self.assertEqual([each.count(RECEIPT) for each in pair.requests], [0, 1, 1])

    def test_client_gone(self) -> None:
        """A client that leaves before the receipt is there is reported with its receipt all the same."""
        held: list[bytes] = []
        pair = self.receipt_answer(lambda data: held.append(data) or b"")
        pair.send(GET + END)
        lose(pair.client)
        self.assertEqual(pair.local.reporter.summaries, [])
        pair.local.upstream()[0].dataReceived(held[0])
        self.assertEqual(pair.summary.receipt_id, pair.stored()[0].id)
        self.assertEqual(pair.summary.outcome, ExchangeOutcome.COMPLETE)
        # Without a receipt it is reported as what the client did.
        pair = self.receipt_answer(lambda _data: b"")
        pair.send(GET + END)
        lose(pair.client)
        pair.close()
        self.assertEqual((pair.summary.outcome, pair.summary.receipt_id), (ExchangeOutcome.CLIENT_ABORTED, None))
        self.assertEqual(pair.local.collector.in_flight, 0)


class CollectedTests(PairTestCase):
    """Verified receipts are kept in the own database."""

    LOCATION = re.compile(rb"Svc-Receipt-Location: (\S+)\r\n")

    def test_asked(self) -> None:
        """Only where the application asks for a receipt it is kept; the response leads to the own notary."""
        pair = Pair(collect=True)
        self.assertEqual(pair.send(GET + END), OK)
        self.assertEqual(pair.send(GET + LOGGED + END), OK)
        self.assertEqual(pair.stored(), [])
        got = pair.send(GET + SIGNED + END)
        [stored] = pair.stored()
        self.assertEqual((stored.client, stored.server), (str(CALLER.spiffe_id), str(OWN.spiffe_id)))
        self.assertEqual((stored.level, stored.outcome), ("signRequest", "complete"))
        self.assertEqual((pair.summary.recorded, pair.summary.receipt_id), (True, stored.id))
        self.assertIn(b"Svc-Workload-ID: %b\r\n" % pair.peer.credentials.statement.id.encode(), got)
        self.assertIn(b"Svc-Notarization-Level: signRequest\r\n", got)
        found = self.LOCATION.search(got)
        assert found is not None
        self.assertEqual(found[1].decode(), f"/.well-known/svc-notary/v1/receipts/by-request/{stored.nonce}")
        self.assertEqual(
            pair.local.registry.get_sample_value(
                "svc_proxy_notary_records_total", {"result": "success", "protocol": "http"}
            ),
            1.0,
        )

    def body(self, pair: Pair, path: bytes) -> tuple[int, bytes]:
        """Ask the outbound listener for a path of the notary."""
        head, _, body = pair.send(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path).partition(b"\r\n\r\n")
        return int(head[9:12]), body

    def test_served(self) -> None:
        """The application reads receipt and statement at the listener, and they verify as evidence."""
        pair = Pair(RECORD, collect=True)
        octets = GET + b"Authorization: Bearer s\r\n" + END
        found = self.LOCATION.search(pair.send(octets))
        assert found is not None
        status, receipt = self.body(pair, found[1])
        self.assertEqual(status, 200)
        [stored] = pair.stored()
        prefix = b"/.well-known/svc-notary/v1"
        self.assertEqual(self.body(pair, prefix + b"/receipts/" + stored.id.encode()), (200, receipt))
        status, statement = self.body(pair, prefix + b"/statements/" + stored.statement_id.encode())
        self.assertEqual(status, 200)
        evidence = EvidenceFile(Envelope.parse(statement), Envelope.parse(receipt), None, b"hello")
        self.assertIn("disclosures", Envelope.parse(receipt).extra)
        anchors = Anchors(AUTHORITY.bundles(), BundleSet())
        result = verify_offline(evidence, profile=Profile.CLASSICAL, anchors=anchors, now=BASE)
        self.assertTrue(result.ok, result.error)
        for path in (
            b"",
            b"/v1/statements/current",
            b"/v1/receipts",
            b"/v1/receipts/" + b"A" * 43,
            b"/v1/statements/" + b"A" * 43,
        ):
            self.assertEqual(self.body(pair, b"/.well-known/svc-notary" + path)[0], 404, path)
        self.assertEqual(self.body(pair, prefix + b"/receipts/x")[0], 404)
        self.assertEqual(len(pair.requests), 1)

    def test_not_of_others(self) -> None:
        """Receipts of which another is the client are not served here, also where this proxy is their server."""
        pair = Pair(RECORD, collect=True)
        pair.send(GET + END)
        other = Rig(own=CALLER)
        client = other.build(cast(Any, other.open))
        client.makeConnection(Wire(Handle(evidence_of(OWN, own=CALLER))))
        client.dataReceived(GET + SIGNED + END)
        other.respond(OK)
        found: list[Any] = []
        other.store.find(ReceiptQuery()).addCallback(found.extend)
        pair.local.store.put_receipt(found[0])
        path = b"/.well-known/svc-notary/v1/receipts/" + found[0].id.encode()
        self.assertEqual(self.body(pair, path)[0], 404)

    def test_without_collecting(self) -> None:
        """A listener that collects nothing has no notary."""
        pair = Pair(RECORD)
        self.assertEqual(self.body(pair, b"/.well-known/svc-notary/v1/receipts/" + b"A" * 43)[0], 404)

    def test_durable_before_the_end(self) -> None:
        """The end waits for the commit; a receipt that is asked for meanwhile is pending."""
        pair = Pair(RECORD, collect=True)
        pair.local.store.hold = True
        got = pair.send(GET + END)
        self.assertTrue(got.endswith(b"hell"), got)
        found = self.LOCATION.search(got)
        assert found is not None
        second, wire = pair.local.client()
        second.dataReceived(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % found[1])
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 202 "))
        # The statement, then the receipt.
        pair.local.store.release()
        pair.local.store.release()
        self.assertEqual(pair.run(), b"o")

    def test_database_refuses_before(self) -> None:
        """While the database takes nothing, no request is sent that promises a record; others are."""
        pair = Pair(collect=True)
        pair.local.store.writable = False
        pair.local.store.trouble = "disk full"
        self.refused(pair, GET + SIGNED + END, "notary_unavailable", "", 503)
        self.assertEqual((pair.requests, pair.forwarded), ([], []))
        self.assertEqual(pair.send(GET + END), OK)

    def test_rate(self) -> None:
        """Beyond the budget of the identity no request is sent, and what is given up is given back."""
        pair = Pair(RECORD, collect=True, octets=Allowance(1, 2 * MAX_ENVELOPE - 100_000))
        pair.answer = None
        pair.send(GET + END)
        second, wire = pair.local.client()
        second.dataReceived(GET + END)
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 429 "))
        pair.close()
        pair.run()
        self.assertEqual(pair.local.collector.in_flight, 0)
        pair.answer = OK
        for _turn in range(3):
            self.assertTrue(pair.send(GET + END).endswith(b"hello"))

    def test_held_back(self) -> None:
        """At the rate of the identity the application is not read, and its request is sent later or refused."""
        pair = Pair(RECORD, collect=True, octets=Allowance(MAX_ENVELOPE / 2, MAX_ENVELOPE), longest=3.0)
        pair.answer = None
        pair.send(GET + END)
        (second, later), (third, refused) = pair.local.client(), pair.local.client()
        for each in (second, third):
            each.dataReceived(GET + END)
        self.assertEqual((True, b""), (later.paused, later.take()))
        forwarded = len(pair.forwarded)
        pair.local.clock.advance(2)
        pair.run()
        self.assertEqual((False, forwarded + 1), (later.paused, len(pair.forwarded)))
        pair.local.clock.advance(1)
        self.assertTrue(refused.take().startswith(b"HTTP/1.1 429 "))
        fourth, _wire = pair.local.client()
        fourth.dataReceived(GET + END)
        lose(fourth)
        self.assertEqual((0, 0), (pair.local.places.waiting, pair.local.budget.waiting))

    def test_database_fails(self) -> None:
        """A receipt that cannot be stored ends the response without its end, and the failure is counted."""
        pair = Pair(RECORD, collect=True)
        pair.local.store.failure = StoreUnavailable(path="notary.db", detail="full")
        got = pair.send(GET + END)
        self.assertTrue(got.endswith(b"hell"), got)
        self.assertTrue(pair.wire.aborted)
        self.assertEqual(pair.local.reporter.failures, ["notary_unavailable"])
        self.assertEqual(pair.local.collector.in_flight, 0)
        self.assertEqual(
            pair.local.registry.get_sample_value(
                "svc_proxy_notary_records_total", {"result": "error", "protocol": "http"}
            ),
            1.0,
        )
        self.assertEqual(pair.summary.recorded, True)

    def test_database_is_late(self) -> None:
        """A receipt that is stored too late ends the response without its end, and is not kept."""
        pair = Pair(RECORD, collect=True)
        self.assertTrue(pair.send(GET + END).endswith(b"hello"))
        pair.local.store.hold = True
        got = pair.send(GET + END)
        self.assertTrue(got.endswith(b"hell"), got)
        pair.local.store.expire()
        self.assertTrue(pair.wire.aborted)
        pair.local.store.release()
        self.assertEqual((len(pair.stored()), pair.local.collector.in_flight), (1, 0))

    def test_shared_database(self) -> None:
        """A receipt that the peer has stored in the same database is not refused as a second one."""
        pair = Pair(RECORD, collect=True)
        pair.local.collector._store = pair.peer.store
        self.assertTrue(pair.send(GET + END).endswith(b"hello"))

    def test_unsigned_members(self) -> None:
        """What no signature covers is stored neither with a statement nor with a batch."""
        pair = Pair(RECORD, collect=True)

        def added(data: bytes) -> bytes:
            if b'"payload"' not in data or RECEIPT in pair.requests[0]:
                return data
            body = Envelope.parse(data.partition(b"\r\n\r\n")[2]).with_extra(more="x" * 1000).serialize()
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

        original = pair.local.collector.put

        def in_batch(place: Any, receipt: Any, artifact: Any, statement: Any) -> Any:
            batch = artifact.with_extra(more="x" * 1000)
            in_batch = BatchedReceipt(artifact.payload, Inclusion(0, 1, bytes(32), ()), batch, artifact.extra)
            return original(place, receipt, in_batch, statement)

        pair.local.collector.put = in_batch
        pair.backwards = added
        self.assertTrue(pair.send(GET + END).endswith(b"hello"))
        [stored] = pair.stored()
        self.assertNotIn(b"more", stored.batch)
        self.assertEqual(
            self.body(pair, b"/.well-known/svc-notary/v1/statements/" + stored.statement_id.encode()),
            (200, pair.peer.credentials.statement.envelope.serialize()),
        )

    def test_statements_take_of_the_budget(self) -> None:
        """The first receipt of a connection takes what its statement does, too."""
        pair = Pair(RECORD, collect=True)
        left = [2**40]
        for _request in range(3):
            pair.send(GET + END)
            left.append(pair.local.budget._clients[str(CALLER.spiffe_id)].octets)  # type: ignore[arg-type]
        first, second, third = (int(before - after) for before, after in pairwise(left))
        self.assertEqual(second, third)
        self.assertEqual(len(pair.peer.credentials.statement.envelope.serialize()), first - second)

    def test_statement_once(self) -> None:
        """The statement of a connection is stored with its first receipt."""
        pair = Pair(RECORD, collect=True)
        put: list[str] = []
        original = pair.local.store.put_statement

        def counted(statement: Any) -> Any:
            put.append(statement.id)
            return original(statement)

        pair.local.store.put_statement = counted
        for _turn in range(3):
            pair.send(GET + END)
        self.assertEqual(put, [pair.peer.credentials.statement.id])
        self.assertEqual(len(pair.stored()), 3)


class AnyAlterationTests(SynchronousTestCase):
    """Nobody between the two can change an exchange unnoticed."""

    @given(position=st.integers(0, 4095), bit=st.integers(0, 7), read=st.integers(0, 3))
    @settings(deadline=None, max_examples=150)
    def test_any_bit(self, position: int, bit: int, read: int) -> None:
        """With any bit of what the peer sends flipped, the application gets the true response, or not its end."""
        pair = Pair(RECORD)
        reads = 0

        def flipped(data: bytes) -> bytes:
            nonlocal reads
            reads += 1
            if reads - 1 != read:
                return data
            changed = bytearray(data)
            changed[position % len(data)] ^= 1 << bit
            return bytes(changed)

        pair.backwards = flipped
        got = pair.send(GET + END)
        if got.startswith(b"HTTP/1.1 200 ") and not pair.wire.aborted:
            if got.endswith(b"hello"):
                names = lambda octets: [each.lower().split(b":")[0] for each in octets.split(b"\r\n")[1:]]  # noqa: E731
                self.assertEqual(names(got), names(OK))
                self.assertEqual(hashlib.sha256(got[-5:]).digest(), hashlib.sha256(b"hello").digest())
            else:
                # The peer's octets announce more than arrives, and the response is not over.
                self.assertEqual(pair.local.reporter.summaries, [])

    @given(
        st.lists(
            st.sampled_from(["get", "signed", "slow", "pending", "close", "lose", "sweep", "altered"]), max_size=12
        )
    )
    @settings(deadline=None, max_examples=100)
    def test_any_course(self, steps: list[str]) -> None:
        """Whatever happens in which order: each response that ends has its receipt, and nothing is left behind."""
        pair = Pair(collect=True)
        ended = 0
        for step in steps:
            if pair.client.gone or pair.wire.aborted:
                if not pair.client.gone:
                    lose(pair.client)
                pair.wire.aborted = False
                pair.client, pair.wire = pair.local.client()
            pair.backwards = unchanged
            if step == "get":
                pair.send(GET + END)
            elif step == "signed":
                ended += pair.send(GET + SIGNED + END).count(b"hello")
            elif step == "altered":
                pair.backwards = lambda data: data.replace(b"hello", b"jello")
                ended += pair.send(GET + SIGNED + END).count(b"hello")
            elif step == "slow":
                pair.answer = OK[:-1]
                pair.send(GET + SIGNED + END)
                pair.answer = OK
                lose(pair.client)
            elif step == "pending":
                pair.backwards = pending
                pair.send(GET + SIGNED + END)
                pair.backwards = unchanged
                pair.local.clock.advance(1.0)
                pair.run()
            elif step == "close" and pair.requests:
                pair.close()
                pair.run()
            elif step == "lose":
                lose(pair.client)
            elif step == "sweep":
                pair.local.sweep(1.0)
                pair.run()
        if not pair.client.gone:
            lose(pair.client)
        pair.local.context.close()
        pair.run()
        pair.local.clock.advance(61.0)
        pair.run()
        self.assertGreaterEqual(len(pair.stored()), ended)
        self.assertEqual((pair.local.collector.in_flight, pair.local.clock.getDelayedCalls()), (0, []))


class IdentityTests(PairTestCase):
    """The own identity."""

    def test_withdrawn(self) -> None:
        """Without an identity nothing is asked or served."""
        pair = Pair(RECORD, collect=True)
        pair.local.rotation.withdrawn = True
        self.assertEqual(problem(pair.send(GET + END))["code"], "identity_withdrawn")
        path = b"GET /.well-known/svc-notary/v1/receipts/%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"A" * 43)
        self.assertTrue(pair.send(path).startswith(b"HTTP/1.1 503 "))
