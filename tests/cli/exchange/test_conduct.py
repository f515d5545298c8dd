"""Tests of a whole exchange, from the request to the verdict, with every reason for which it may fail."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import timedelta

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.exchange.conduct import Outcome, Phase, conduct
from svc.cli.exchange.demands import Demands
from svc.cli.exchange.errors import ConnectionRefused
from svc.cli.exchange.faults import BAD_STATEMENT, NO_STATEMENT
from svc.cli.exchange.receivers import KeepingReceiver
from svc.cli.exchange.request import Request, plan_request
from svc.cli.exchange.spool import Spool
from svc.cli.exchange.target import Target
from svc.cli.main import detail_reason
from svc.identity import BundleSet, SpiffeID
from svc.notary.exchange import BodySeen, Exchange, Peer, TlsFacts
from svc.notary.ids import new_nonce
from svc.notary.level import Level
from svc.notary.profile import Profile
from svc.notary.verification import Anchors
from svc.testing.ca import TestAuthority
from svc.transport.errors import PeerIdentityUnexpected
from svc.wire.fields import Field
from svc.workload.errors import WorkloadApiUnavailable
from tests.cli.doubles import (
    BODY,
    NOW,
    SERVER_ID,
    URL,
    MemoryMeans,
    NotaryServer,
    World,
    counted,
    replaced,
    right_world,
    settled,
)

SIGNED = Demands(level=Level.SIGN_REQUEST)
NONCE = new_nonce(counted(16))


def request_for(demands: Demands, url: str = URL, method: str = "GET", data: str = "") -> Request:
    return plan_request(
        Target.parse(url), method=method, headers=["X-Trace: 1"], data=data, level=demands.level, nonce=NONCE
    )


def dropping(name: bytes) -> Callable[[list[Field]], list[Field]]:
    return lambda fields: [pair for pair in fields if pair[0] != name]


def setting(name: bytes, value: bytes) -> Callable[[list[Field]], list[Field]]:
    return lambda fields: [*(pair for pair in fields if pair[0] != name), (name, value)]


class ConductTestCase(SynchronousTestCase):
    """Runs exchanges with a server in memory."""

    def setUp(self) -> None:
        self.world = right_world()

    def conducted(
        self,
        server: NotaryServer | None = None,
        demands: Demands = SIGNED,
        *,
        means: MemoryMeans | None = None,
        request: Request | None = None,
        limit: int = 1000,
    ) -> Outcome:
        server = server or NotaryServer(self.world)
        means = means or MemoryMeans(server)
        spool = Spool(limit)
        self.addCleanup(spool.close)
        self.receiver = KeepingReceiver(spool)
        work = conduct(request or request_for(demands), demands, means, self.receiver)
        return settled(Deferred.fromCoroutine(work), means.clock)

    def assert_failed(self, outcome: Outcome, reason: str, phase: Phase) -> None:
        self.assertIsNotNone(outcome.error)
        assert outcome.error is not None
        self.assertEqual((detail_reason(outcome.error), outcome.phase), (reason, phase))


class AcceptedTests(ConductTestCase):
    """Exchanges that pass."""

    def test_statement_and_receipt(self) -> None:
        """At signRequest statement and receipt are verified over one connection, with nothing but GETs after it."""
        server = NotaryServer(self.world)
        outcome = self.conducted(server)
        self.assertIsNone(outcome.error)
        assert outcome.statement is not None and outcome.receipt is not None
        self.assertEqual(str(outcome.statement.subject), SERVER_ID)
        self.assertTrue(outcome.statement.bound)
        self.assertEqual(outcome.receipt.statement_id, outcome.statement.id)
        self.assertEqual(b"".join(self.receiver.spool.pieces()), BODY)
        self.assertEqual(server.connections, 1)
        self.assertEqual([head.method for head in server.seen], [b"GET", b"GET", b"GET"])
        self.assertTrue(all(head.host == b"api.test:8443" for head in server.seen))

    def test_levels_below(self) -> None:
        """At workload and logRequest no receipt is fetched."""
        for level in (Level.WORKLOAD, Level.LOG_REQUEST):
            server = NotaryServer(self.world)
            outcome = self.conducted(server, Demands(level=level))
            self.assertIsNone(outcome.error)
            self.assertIsNone(outcome.receipt)
            self.assertEqual(len(server.seen), 2)

    def test_post_with_body(self) -> None:
        """A request body is part of the receipt."""
        server = NotaryServer(self.world)
        outcome = self.conducted(server, request=request_for(SIGNED, data='{"a": 1}'))
        self.assertIsNone(outcome.error)
        self.assertEqual((server.seen[0].method, server.bodies[0]), (b"POST", b'{"a": 1}'))

    def test_head(self) -> None:
        """An answer to HEAD has no body, whatever its Content-Length says."""
        outcome = self.conducted(request=request_for(SIGNED, method="HEAD"))
        self.assertIsNone(outcome.error)
        self.assertEqual(self.receiver.spool.size, 0)

    def test_trailers(self) -> None:
        """Trailers are compared with the receipt."""
        outcome = self.conducted(NotaryServer(self.world, trailers=[(b"X-Checksum", b"7")]))
        self.assertIsNone(outcome.error)
        assert outcome.answer is not None
        self.assertEqual(outcome.answer.trailers, ((b"X-Checksum", b"7"),))

    def test_stronger_level(self) -> None:
        """A level stronger than the one asked for is welcome."""
        server = NotaryServer(self.world, edit_head=setting(b"Svc-Notarization-Level", b"signRequest"))
        self.assertIsNone(self.conducted(server, Demands()).error)

    def test_http_error_is_no_failure(self) -> None:
        """An answer of 500 that is proven passes."""
        outcome = self.conducted(NotaryServer(self.world, status=500))
        self.assertIsNone(outcome.error)

    def test_redacted(self) -> None:
        """A redacted request header is checked with the salt that the notary discloses."""
        request = plan_request(
            Target.parse(URL),
            method="GET",
            headers=["Authorization: Bearer secret"],
            data="",
            level=Level.SIGN_REQUEST,
            nonce=NONCE,
        )
        self.assertIsNone(self.conducted(request=request).error)

    def test_pending_then_there(self) -> None:
        """A pending receipt is asked for again after Retry-After, at most a second."""
        means = MemoryMeans(NotaryServer(self.world, pending=3, retry_after=b"600"))
        outcome = self.conducted(means.server, means=means)
        self.assertIsNone(outcome.error)
        self.assertEqual(means.clock.seconds(), 3.0)

    def test_connection_closed_by_server(self) -> None:
        """Where the server closes in order after each answer, artefacts come over new connections to the same peer."""
        server = NotaryServer(self.world, closes=True, pending=1)
        means = MemoryMeans(server)
        outcome = self.conducted(server, means=means)
        self.assertIsNone(outcome.error)
        self.assertEqual(server.connections, 4)
        before = means.memory_dialer.before
        self.assertIsNone(before[0])
        self.assertTrue(all(each is not None and each.peer is self.world.peer for each in before[1:]))

    def test_expected_identity(self) -> None:
        """The expected identity is accepted."""
        demands = dataclasses.replace(SIGNED, expected=(SpiffeID.parse(SERVER_ID),))
        self.assertIsNone(self.conducted(demands=demands).error)

    def test_profiles(self) -> None:
        """A hybrid statement satisfies hybrid, pq and classical."""
        for profile in (Profile.HYBRID, Profile.PQ, Profile.CLASSICAL):
            outcome = self.conducted(demands=dataclasses.replace(SIGNED, profile=profile))
            self.assertIsNone(outcome.error, profile)

    def test_not_validated(self) -> None:
        """Without validation an answer without statement passes and nothing else is fetched."""
        server = NotaryServer(self.world, edit_head=dropping(b"Svc-Workload-ID"))
        outcome = self.conducted(server, dataclasses.replace(SIGNED, validate=False))
        self.assertIsNone(outcome.error)
        self.assertIsNone(outcome.statement)
        self.assertEqual(len(server.seen), 1)

    def test_not_validated_with_statement(self) -> None:
        """Without validation a statement that is present is verified, and no receipt is fetched."""
        server = NotaryServer(self.world)
        outcome = self.conducted(server, dataclasses.replace(SIGNED, validate=False))
        self.assertIsNone(outcome.error)
        self.assertIsNotNone(outcome.statement)
        self.assertIsNone(outcome.receipt)

    def test_plain_http(self) -> None:
        """Over plain http without validation a statement is verified except for its binding, and marked so."""
        server = NotaryServer(self.world)
        demands = Demands(validate=False)
        request = request_for(demands, "http://api.test/")
        outcome = self.conducted(server, demands, means=MemoryMeans(server, secure=False), request=request)
        self.assertIsNone(outcome.error)
        assert outcome.statement is not None
        self.assertFalse(outcome.statement.bound)

    def test_plain_http_needs_no_socket(self) -> None:
        """Over plain http the Workload API is asked only where there is a statement."""
        server = NotaryServer(self.world, edit_head=dropping(b"Svc-Workload-ID"))
        demands = Demands(validate=False)
        means = MemoryMeans(server, secure=False)
        self.conducted(server, demands, means=means, request=request_for(demands, "http://api.test/"))
        self.assertEqual(means.trusted, 0)


class StatementRefusedTests(ConductTestCase):
    """Each reason for which the statement of an answer is refused."""

    def refused(self, reason: str, server: NotaryServer | None = None, demands: Demands = SIGNED) -> Outcome:
        outcome = self.conducted(server, demands)
        self.assert_failed(outcome, reason, Phase.STATEMENT)
        self.assertIsNone(outcome.receipt)
        return outcome

    def test_statement_missing(self) -> None:
        """An answer without Svc-Workload-ID fails, and no artefact is asked for."""
        server = NotaryServer(self.world, edit_head=dropping(b"Svc-Workload-ID"))
        self.refused("statement_missing", server)
        self.assertEqual(len(server.seen), 1)

    def test_injected_no_statement(self) -> None:
        """The fault no-workload-statement gives exactly statement_missing."""
        self.refused("statement_missing", demands=dataclasses.replace(SIGNED, faults=frozenset({NO_STATEMENT})))

    def test_injected_bad_statement(self) -> None:
        """The fault bad-workload-statement gives exactly signature_invalid, under each profile."""
        for profile, alg in ((Profile.HYBRID, "ES256"), (Profile.CLASSICAL, "ES256"), (Profile.PQ, "ML-DSA-65")):
            demands = dataclasses.replace(SIGNED, profile=profile, faults=frozenset({BAD_STATEMENT}))
            outcome = self.refused(f"signature_invalid{{{alg}}}", demands=demands)
            assert outcome.error is not None
            self.assertEqual(outcome.error.reason, "signature_invalid")

    def test_both_faults(self) -> None:
        """A statement that is missing cannot be bad."""
        faults = frozenset({NO_STATEMENT, BAD_STATEMENT})
        self.refused("statement_missing", demands=dataclasses.replace(SIGNED, faults=faults))

    def test_bad_statement_without_validation(self) -> None:
        """Without validation a statement that is present and bad still fails."""
        demands = Demands(validate=False, faults=frozenset({BAD_STATEMENT}))
        self.refused("signature_invalid{ES256}", demands=demands)

    def test_id_malformed(self) -> None:
        """A header that is no identifier fails."""
        self.refused("id_malformed", NotaryServer(self.world, edit_head=setting(b"Svc-Workload-ID", b"short")))

    def test_id_twice(self) -> None:
        """An answer that names two statements is no acceptable answer at all."""
        twice = NotaryServer(self.world, edit_head=lambda fields: [*fields, (b"svc-workload-id", b"A" * 43)])
        self.assert_failed(self.conducted(twice), "malformed_response", Phase.NETWORK)

    def test_fetch_failed(self) -> None:
        """Any answer of the notary but 200 fails with its status."""
        self.refused("fetch_failed{404}", NotaryServer(self.world, statement_status=404))
        self.refused("fetch_failed{302}", NotaryServer(self.world, statement_status=302))

    def test_id_mismatch(self) -> None:
        """A statement whose payload gives another identifier fails."""
        self.refused("id_mismatch", NotaryServer(self.world, edit_head=setting(b"Svc-Workload-ID", b"A" * 43)))

    def test_malformed(self) -> None:
        """What is no envelope fails."""
        self.refused("malformed", NotaryServer(self.world, edit_statement=lambda _envelope: b"no json"))

    def test_too_large(self) -> None:
        """More octets than an envelope may have are not collected."""
        self.refused("too_large", NotaryServer(self.world, edit_statement=lambda envelope: envelope + b" " * 300_000))

    def test_neighbour(self) -> None:
        """The statement of another workload, signed by that workload, is refused."""
        neighbour = self.world.generation_of(self.world.authority.svid("/ns/pay/sa/other"))
        self.refused("subject_mismatch", NotaryServer(self.world, generation=neighbour))

    def test_replica(self) -> None:
        """The statement of another replica of the same workload is refused."""
        replica = self.world.generation_of(self.world.authority.svid("/ns/pay/sa/api"))
        self.refused("key_mismatch", NotaryServer(self.world, generation=replica))

    def test_identity_unexpected(self) -> None:
        """A workload that is not expected is refused by its statement where the handshake could not."""
        server = NotaryServer(self.world)
        demands = Demands(validate=False, expected=(SpiffeID.parse("spiffe://example.org/other"),))
        means = MemoryMeans(server, secure=False)
        outcome = self.conducted(server, demands, means=means, request=request_for(demands, "http://api.test/"))
        self.assert_failed(outcome, "identity_unexpected", Phase.STATEMENT)

    def test_issuer_not_authorised(self) -> None:
        """With a central issuer named, a workload does not speak for itself."""
        demands = dataclasses.replace(SIGNED, issuers=(SpiffeID.parse("spiffe://example.org/svc/manager"),))
        self.refused("issuer_not_authorised", demands=demands)

    def test_hybrid_incomplete(self) -> None:
        """A classical statement does not satisfy the profile hybrid."""
        self.world = World(profile=Profile.CLASSICAL)
        self.refused("hybrid_incomplete", NotaryServer(self.world))

    def test_trust_domain_unknown(self) -> None:
        """Without post-quantum roots the profile hybrid fails, and never falls back."""
        server = NotaryServer(self.world)
        means = MemoryMeans(server)
        means.anchors = Anchors(self.world.bundles, BundleSet())
        outcome = self.conducted(server, means=means)
        self.assert_failed(outcome, "trust_domain_unknown", Phase.STATEMENT)

    def test_pq_roots_named(self) -> None:
        """The place of the post-quantum roots is named: missing there, or of another trust domain."""
        other = TestAuthority("other.org", now=NOW, algorithm="ML-DSA-65")
        for roots, said in ((BundleSet(), "is missing or empty"), (other.bundles(), "of other trust domains")):
            server = NotaryServer(self.world)
            means = MemoryMeans(server)
            means.anchors, means.pq_file = Anchors(self.world.bundles, roots), "/run/svc/pq-bundle.json"
            outcome = self.conducted(server, means=means)
            self.assert_failed(outcome, "trust_domain_unknown", Phase.STATEMENT)
            assert outcome.error is not None
            self.assertIn(f"/run/svc/pq-bundle.json {said}" if "missing" in said else said, str(outcome.error))
            self.assertIn("--pq-bundle", outcome.error.advice())

    def test_expired(self) -> None:
        """After its time a statement is refused, by its certificates first."""
        server = NotaryServer(self.world)
        means = MemoryMeans(server)
        means.offset = timedelta(days=2)
        outcome = self.conducted(server, means=means)
        self.assert_failed(outcome, "certificate_not_valid_at_time", Phase.STATEMENT)

    def test_bundle_stale(self) -> None:
        """An untrusted chain is told as a stale bundle while the Workload API is out of reach."""
        server = NotaryServer(self.world)
        means = MemoryMeans(server)
        means.anchors = World().anchors
        means.stale_since = means.now()
        outcome = self.conducted(server, means=means)
        self.assert_failed(outcome, "bundle_stale", Phase.STATEMENT)

    def test_transport_unbound(self) -> None:
        """Over plain http validation cannot pass, so nothing is sent."""
        server = NotaryServer(self.world)
        outcome = self.conducted(
            server, means=MemoryMeans(server, secure=False), request=request_for(SIGNED, "http://api.test/")
        )
        self.assert_failed(outcome, "transport_unbound", Phase.STATEMENT)
        self.assertEqual((server.seen, server.connections), ([], 0))


class ReceiptRefusedTests(ConductTestCase):
    """Each reason for which the level or the receipt of an answer is refused."""

    def refused(self, reason: str, **knobs: object) -> Outcome:
        outcome = self.conducted(NotaryServer(self.world, **knobs))  # type: ignore[arg-type]
        self.assert_failed(outcome, reason, Phase.RECEIPT)
        self.assertIsNotNone(outcome.statement)
        return outcome

    def test_level_mismatch(self) -> None:
        """A weaker, unknown or missing level fails."""
        self.refused("level_mismatch", edit_head=setting(b"Svc-Notarization-Level", b"workload"))
        self.refused("level_mismatch", edit_head=setting(b"Svc-Notarization-Level", b"everything"))
        self.refused("level_mismatch", edit_head=dropping(b"Svc-Notarization-Level"))

    def test_receipt_missing(self) -> None:
        """No place, or a place where the notary has nothing, fails."""
        self.refused("receipt_missing", edit_head=dropping(b"Svc-Receipt-Location"))
        self.refused("receipt_missing", receipt_status=404)

    def test_foreign_place(self) -> None:
        """A place outside the notary is not followed."""
        outcome = self.refused(
            "receipt_missing", edit_head=setting(b"Svc-Receipt-Location", b"https://evil.test/receipt")
        )
        self.assertIn("evil.test", str(outcome.error))

    def test_place_of_another_request(self) -> None:
        """A place at the notary for another nonce is not followed."""
        other = b"/.well-known/svc-notary/v1/receipts/by-request/AAAAAAAAAAAAAAAAAAAAAA"
        self.refused("nonce_mismatch", edit_head=setting(b"Svc-Receipt-Location", other))

    def test_receipt_pending(self) -> None:
        """A receipt that stays pending fails after half a minute."""
        means = MemoryMeans(NotaryServer(self.world, pending=1000, retry_after=None))
        outcome = self.conducted(means.server, means=means)
        self.assert_failed(outcome, "receipt_pending", Phase.RECEIPT)
        self.assertEqual(means.clock.seconds(), 30.0)

    def test_fetch_failed(self) -> None:
        """Any other answer of the notary fails with its status."""
        self.refused("fetch_failed{429}", receipt_status=429)

    def test_nonce_mismatch(self) -> None:
        """A receipt for another nonce is refused."""
        self.refused("nonce_mismatch", edit_exchange=replaced(nonce="AAAAAAAAAAAAAAAAAAAAAA"))

    def test_request_mismatch(self) -> None:
        """Each part of the request that differs is named."""
        for part, changes in {
            "method": {"method": "PUT"},
            "authority": {"authority": "api.test"},
            "path": {"path": "/v1/other"},
            "query": {"query": ""},
            "header:2": {"request_headers": [(b"user-agent", b"svc/0.1.0"), (b"accept", b"*/*"), (b"x-trace", b"2")]},
            "body": {"request_body": BodySeen.of(b"other")},
        }.items():
            self.refused(f"request_mismatch{{{part}}}", edit_exchange=replaced(**changes))

    def test_response_mismatch(self) -> None:
        """Each part of the answer that differs is named."""
        for part, changes in {
            "status": {"status": 201},
            "header:0": {"response_headers": [(b"content-type", b"text/html")]},
            "body": {"response_body": BodySeen.of(b"other")},
            "trailer:0": {"response_trailers": [(b"x", b"1")]},
        }.items():
            self.refused(f"response_mismatch{{{part}}}", edit_exchange=replaced(**changes))

    def test_incomplete_body(self) -> None:
        """A receipt for a body that was cut does not prove a whole one."""
        self.refused("response_mismatch{body}", edit_exchange=replaced(response_body=BodySeen.of(BODY, complete=False)))

    def test_other_connection(self) -> None:
        """A receipt for another client or another TLS session is refused."""

        def other_client(exchange: Exchange) -> Exchange:
            return dataclasses.replace(exchange, client=Peer(SpiffeID.parse("spiffe://example.org/x"), "A" * 43))

        self.refused("request_mismatch{client}", edit_exchange=other_client)
        tls = TlsFacts("1.3", "x25519", "TLS_AES_256_GCM_SHA384", False)
        self.refused("request_mismatch{tls}", edit_exchange=replaced(tls=tls))

    def test_time_skew(self) -> None:
        """A receipt from long before the exchange is refused."""
        means = MemoryMeans(NotaryServer(self.world))
        means.offset = timedelta(minutes=3)
        outcome = self.conducted(means.server, means=means)
        self.assert_failed(outcome, "time_skew", Phase.RECEIPT)

    def test_altered(self) -> None:
        """A receipt that was altered after it was signed is refused."""

        def altered(envelope: bytes) -> bytes:
            document = json.loads(envelope)
            signature = document["signatures"][0]["signature"]
            document["signatures"][0]["signature"] = ("B" if signature[0] == "A" else "A") + signature[1:]
            return json.dumps(document).encode()

        self.refused("signature_invalid{ES256}", edit_receipt=altered)

    def test_statement_in_its_place(self) -> None:
        """A statement is no receipt."""
        statement = self.world.generation.statement.envelope.serialize()
        self.refused("wrong_type", edit_receipt=lambda _envelope: statement)


class NetworkTests(ConductTestCase):
    """What fails before anything can be judged."""

    def test_no_connection(self) -> None:
        """An error of the dialer is the outcome."""
        means = MemoryMeans(NotaryServer(self.world))
        means.memory_dialer.errors.append(ConnectionRefused(server="api.test:8443"))
        self.assert_failed(self.conducted(means=means), "connection_refused", Phase.NETWORK)

    def test_unexpected_identity_in_the_handshake(self) -> None:
        """An identity that the handshake refuses counts as a matter of the statement."""
        means = MemoryMeans(NotaryServer(self.world))
        error = PeerIdentityUnexpected(address="a", alert="", spiffe_id="spiffe://x/y", expected="z")
        means.memory_dialer.errors.append(error)
        self.assert_failed(self.conducted(means=means), "identity_unexpected", Phase.STATEMENT)

    def test_body_too_large(self) -> None:
        """A body beyond the limit ends the connection."""
        means = MemoryMeans(NotaryServer(self.world))
        outcome = self.conducted(means=means, limit=len(BODY) - 1)
        self.assert_failed(outcome, "body_too_large", Phase.NETWORK)
        self.assertTrue(means.memory_dialer.transports[0].aborted)

    def test_body_at_the_limit(self) -> None:
        """A body of exactly the limit passes."""
        self.assertIsNone(self.conducted(limit=len(BODY)).error)

    def test_truncated(self) -> None:
        """An answer that ends early is a matter of the network."""
        server = NotaryServer(self.world, truncate=True)
        outcome = self.conducted(server, means=MemoryMeans(server, ends=True))
        self.assert_failed(outcome, "connection_closed", Phase.NETWORK)

    def test_artefact_out_of_reach(self) -> None:
        """Where no new connection for an artefact comes about, the network is to blame."""
        server = NotaryServer(self.world, closes=True)
        means = MemoryMeans(server)
        dialer = means.memory_dialer
        first = dialer.dial

        async def only_once(before: object) -> object:
            if before is not None:
                raise ConnectionRefused(server="api.test:8443")
            return await first(None)

        dialer.dial = only_once  # type: ignore[assignment,method-assign]
        self.assert_failed(self.conducted(server, means=means), "connection_refused", Phase.NETWORK)

    def test_no_trust(self) -> None:
        """Without a Workload API nothing can be judged; that is no fault of the statement."""
        means = MemoryMeans(NotaryServer(self.world))
        means.trust_errors.append(WorkloadApiUnavailable(socket="s", seconds=1, what="x"))
        self.assert_failed(self.conducted(means=means), "workload_api_unavailable", Phase.NETWORK)
        self.assertEqual(means.server.seen, [])

    def test_no_trust_for_a_statement(self) -> None:
        """Without validation a statement that is present needs trust, too; that is no fault of the statement either."""
        server = NotaryServer(self.world)
        means = MemoryMeans(server, secure=False)
        means.trust_errors.append(WorkloadApiUnavailable(socket="s", seconds=1, what="x"))
        demands = Demands(validate=False)
        outcome = self.conducted(means=means, demands=demands, request=request_for(demands, "http://api.test/"))
        self.assert_failed(outcome, "workload_api_unavailable", Phase.NETWORK)

    def test_connection_is_closed(self) -> None:
        """Whatever comes of it, the connection is closed at the end."""
        for server in (NotaryServer(self.world), NotaryServer(self.world, receipt_status=404)):
            means = MemoryMeans(server)
            self.conducted(server, means=means)
            self.assertTrue(all(transport.lost for transport in means.memory_dialer.transports))
