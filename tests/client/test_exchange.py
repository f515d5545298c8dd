"""Tests of a whole exchange, from the request to the result, with every reason for which it may fail."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from datetime import timedelta

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.curl.body import BufferedBody
from svc.cli.curl.request import curl_request
from svc.cli.errors import NetworkError, ServerIdentityUnexpected
from svc.cli.main import shown_reason
from svc.client.exchange import ExchangeResult, Phase, run_exchange
from svc.client.request import Request
from svc.client.target import Target
from svc.client.verification import BAD_STATEMENT, NO_STATEMENT, Demands
from svc.envelope.ids import new_nonce
from svc.envelope.profile import Profile
from svc.identity import BundleSet, SpiffeID
from svc.notary.exchange import BodySummary, Peer, RecordedExchange, TlsFacts
from svc.notary.level import Level
from svc.notary.verification import Anchors
from svc.testing.ca import TestAuthority
from svc.wire.fields import Field
from svc.workload.errors import WorkloadApiUnavailable
from tests.cli.doubles import (
    BODY,
    NOW,
    SERVER_ID,
    URL,
    MemoryContext,
    NotaryServer,
    World,
    counted,
    default_world,
    replaced,
    settled,
)

SIGNED = Demands(level=Level.SIGN_REQUEST)
NONCE = new_nonce(counted(16))


def request_for(demands: Demands, url: str = URL, method: str = "GET", data: str = "") -> Request:
    return curl_request(
        Target.parse(url),
        method=method,
        headers=["X-Trace: 1"],
        body=os.fsencode(data),
        level=demands.level,
        nonce=NONCE,
    )


def dropping(name: bytes) -> Callable[[list[Field]], list[Field]]:
    return lambda fields: [pair for pair in fields if pair[0] != name]


def setting(name: bytes, value: bytes) -> Callable[[list[Field]], list[Field]]:
    return lambda fields: [*(pair for pair in fields if pair[0] != name), (name, value)]


class ExchangeTestCase(SynchronousTestCase):
    """Runs exchanges with a server in memory."""

    def setUp(self) -> None:
        self.world = default_world()

    def run_in_memory(
        self,
        server: NotaryServer | None = None,
        demands: Demands = SIGNED,
        *,
        context: MemoryContext | None = None,
        request: Request | None = None,
        limit: int = 1000,
    ) -> ExchangeResult:
        server = server or NotaryServer(self.world)
        context = context or MemoryContext(server)
        self.body = BufferedBody(limit)
        self.addCleanup(self.body.close)
        work = run_exchange(request or request_for(demands), demands, context, self.body)  # type: ignore[arg-type]
        return settled(Deferred.fromCoroutine(work), context.clock)

    def assert_failed(self, result: ExchangeResult, reason: str, phase: Phase) -> None:
        self.assertIsNotNone(result.error)
        assert result.error is not None
        self.assertEqual((shown_reason(result.error), result.phase), (reason, phase))


class AcceptedTests(ExchangeTestCase):
    """Exchanges that pass."""

    def test_statement_and_receipt(self) -> None:
        """At signRequest statement and receipt are verified over one connection, with nothing but GETs after it."""
        server = NotaryServer(self.world)
        result = self.run_in_memory(server)
        self.assertIsNone(result.error)
        assert result.statement is not None and result.receipt is not None
        self.assertEqual(str(result.statement.subject), SERVER_ID)
        self.assertTrue(result.statement.bound)
        self.assertEqual(result.receipt.statement_id, result.statement.id)
        self.assertEqual(b"".join(self.body.pieces()), BODY)
        self.assertEqual(server.connections, 1)
        self.assertEqual([head.method for head in server.seen], [b"GET", b"GET", b"GET"])
        self.assertTrue(all(head.host == b"api.test:8443" for head in server.seen))

    def test_signed_together(self) -> None:
        """A receipt of a batch is verified like one that was signed alone, and kept as it was fetched."""
        result = self.run_in_memory(NotaryServer(self.world, together=5))
        self.assertIsNone(result.error)
        assert result.receipt is not None and result.receipt.batch is not None and result.receipt_artifact is not None
        self.assertEqual((result.receipt.batch.index, result.receipt.batch.size), (0, 5))
        self.assertTrue(result.receipt.compared)
        self.assertEqual({"payload", "inclusion", "batch"}, set(json.loads(result.receipt_artifact)))

    def test_levels_below(self) -> None:
        """At workload and logRequest no receipt is fetched."""
        for level in (Level.WORKLOAD, Level.LOG_REQUEST):
            server = NotaryServer(self.world)
            result = self.run_in_memory(server, Demands(level=level))
            self.assertIsNone(result.error)
            self.assertIsNone(result.receipt)
            self.assertEqual(len(server.seen), 2)

    def test_post_with_body(self) -> None:
        """A request body is part of the receipt."""
        server = NotaryServer(self.world)
        result = self.run_in_memory(server, request=request_for(SIGNED, data='{"a": 1}'))
        self.assertIsNone(result.error)
        self.assertEqual((server.seen[0].method, server.bodies[0]), (b"POST", b'{"a": 1}'))

    def test_head(self) -> None:
        """An answer to HEAD has no body, whatever its Content-Length says."""
        result = self.run_in_memory(request=request_for(SIGNED, method="HEAD"))
        self.assertIsNone(result.error)
        self.assertEqual(self.body.size, 0)

    def test_trailers(self) -> None:
        """Trailers are compared with the receipt."""
        result = self.run_in_memory(NotaryServer(self.world, trailers=[(b"X-Checksum", b"7")]))
        self.assertIsNone(result.error)
        assert result.response is not None
        self.assertEqual(result.response.trailers, ((b"X-Checksum", b"7"),))

    def test_stronger_level(self) -> None:
        """A level stronger than the one asked for is accepted."""
        server = NotaryServer(self.world, edit_head=setting(b"Svc-Notarization-Level", b"signRequest"))
        self.assertIsNone(self.run_in_memory(server, Demands()).error)

    def test_http_error_is_no_failure(self) -> None:
        """A verified response of status 500 passes."""
        result = self.run_in_memory(NotaryServer(self.world, status=500))
        self.assertIsNone(result.error)

    def test_redacted(self) -> None:
        """A redacted request header is verified with the salt that the notary discloses."""
        request = curl_request(
            Target.parse(URL),
            method="GET",
            headers=["Authorization: Bearer secret"],
            body=b"",
            level=Level.SIGN_REQUEST,
            nonce=NONCE,
        )
        self.assertIsNone(self.run_in_memory(request=request).error)

    def test_pending_then_there(self) -> None:
        """A pending receipt is requested again after Retry-After, at most a second."""
        context = MemoryContext(NotaryServer(self.world, pending=3, retry_after=b"600"))
        result = self.run_in_memory(context.server, context=context)
        self.assertIsNone(result.error)
        self.assertEqual(context.clock.seconds(), 3.0)

    def test_connection_closed_by_server(self) -> None:
        """Where the server closes in order after each answer, artifacts come over new connections to the same peer."""
        server = NotaryServer(self.world, closes=True, pending=1)
        context = MemoryContext(server)
        result = self.run_in_memory(server, context=context)
        self.assertIsNone(result.error)
        self.assertEqual(server.connections, 4)
        before = context.memory_dialer.previous
        self.assertIsNone(before[0])
        self.assertTrue(all(each is not None and each.peer is self.world.peer for each in before[1:]))

    def test_expected_identity(self) -> None:
        """The expected identity is accepted."""
        demands = dataclasses.replace(SIGNED, expected=(SpiffeID.parse(SERVER_ID),))
        self.assertIsNone(self.run_in_memory(demands=demands).error)

    def test_profiles(self) -> None:
        """A hybrid statement satisfies hybrid, pq and classical."""
        for profile in (Profile.HYBRID, Profile.PQ, Profile.CLASSICAL):
            result = self.run_in_memory(demands=dataclasses.replace(SIGNED, profile=profile))
            self.assertIsNone(result.error, profile)

    def test_not_validated(self) -> None:
        """Without validation an answer without statement passes and nothing else is fetched."""
        server = NotaryServer(self.world, edit_head=dropping(b"Svc-Workload-ID"))
        result = self.run_in_memory(server, dataclasses.replace(SIGNED, validate=False))
        self.assertIsNone(result.error)
        self.assertIsNone(result.statement)
        self.assertEqual(len(server.seen), 1)

    def test_not_validated_with_statement(self) -> None:
        """Without validation a statement that is present is verified, and no receipt is fetched."""
        server = NotaryServer(self.world)
        result = self.run_in_memory(server, dataclasses.replace(SIGNED, validate=False))
        self.assertIsNone(result.error)
        self.assertIsNotNone(result.statement)
        self.assertIsNone(result.receipt)

    def test_plain_http(self) -> None:
        """Over plain http without validation a statement is verified except for its binding, and marked so."""
        server = NotaryServer(self.world)
        demands = Demands(validate=False)
        request = request_for(demands, "http://api.test/")
        result = self.run_in_memory(server, demands, context=MemoryContext(server, secure=False), request=request)
        self.assertIsNone(result.error)
        assert result.statement is not None
        self.assertFalse(result.statement.bound)

    def test_plain_http_needs_no_socket(self) -> None:
        """Over plain http the Workload API is used only where there is a statement."""
        server = NotaryServer(self.world, edit_head=dropping(b"Svc-Workload-ID"))
        demands = Demands(validate=False)
        context = MemoryContext(server, secure=False)
        self.run_in_memory(server, demands, context=context, request=request_for(demands, "http://api.test/"))
        self.assertEqual(context.trusted, 0)


class StatementRefusedTests(ExchangeTestCase):
    """Each reason for which the statement of an answer is refused."""

    def refused(self, reason: str, server: NotaryServer | None = None, demands: Demands = SIGNED) -> ExchangeResult:
        result = self.run_in_memory(server, demands)
        self.assert_failed(result, reason, Phase.STATEMENT)
        self.assertIsNone(result.receipt)
        return result

    def test_statement_missing(self) -> None:
        """An answer without Svc-Workload-ID fails, and no artifact is requested."""
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
            result = self.refused(f"signature_invalid{{{alg}}}", demands=demands)
            assert result.error is not None
            self.assertEqual(result.error.reason, "signature_invalid")

    def test_both_faults(self) -> None:
        """With both faults the statement is missing."""
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
        """A response that names two statements is malformed."""
        twice = NotaryServer(self.world, edit_head=lambda fields: [*fields, (b"svc-workload-id", b"A" * 43)])
        self.assert_failed(self.run_in_memory(twice), "malformed_response", Phase.NETWORK)

    def test_fetch_failed(self) -> None:
        """Any answer of the notary but 200 fails with its status."""
        self.refused("fetch_failed{404}", NotaryServer(self.world, statement_status=404))
        self.refused("fetch_failed{302}", NotaryServer(self.world, statement_status=302))

    def test_id_mismatch(self) -> None:
        """A statement whose payload gives another identifier fails."""
        self.refused("id_mismatch", NotaryServer(self.world, edit_head=setting(b"Svc-Workload-ID", b"A" * 43)))

    def test_malformed(self) -> None:
        """Octets that are no envelope fail."""
        self.refused("malformed", NotaryServer(self.world, edit_statement=lambda _envelope: b"no json"))

    def test_too_large(self) -> None:
        """More octets than an envelope may have are not collected."""
        self.refused("too_large", NotaryServer(self.world, edit_statement=lambda envelope: envelope + b" " * 300_000))

    def test_another_workload(self) -> None:
        """The statement of another workload, signed by that workload, is refused."""
        other_workload = self.world.generation_of(self.world.authority.svid("/ns/pay/sa/other"))
        self.refused("subject_mismatch", NotaryServer(self.world, generation=other_workload))

    def test_replica(self) -> None:
        """The statement of another replica of the same workload is refused."""
        replica = self.world.generation_of(self.world.authority.svid("/ns/pay/sa/api"))
        self.refused("key_mismatch", NotaryServer(self.world, generation=replica))

    def test_identity_unexpected(self) -> None:
        """A workload that is not expected is refused by its statement where the handshake could not."""
        server = NotaryServer(self.world)
        demands = Demands(validate=False, expected=(SpiffeID.parse("spiffe://example.org/other"),))
        context = MemoryContext(server, secure=False)
        result = self.run_in_memory(server, demands, context=context, request=request_for(demands, "http://api.test/"))
        self.assert_failed(result, "identity_unexpected", Phase.STATEMENT)

    def test_issuer_not_authorised(self) -> None:
        """With a central issuer named, a self-issued statement is refused."""
        demands = dataclasses.replace(SIGNED, issuers=(SpiffeID.parse("spiffe://example.org/svc/manager"),))
        self.refused("issuer_not_authorised", demands=demands)

    def test_hybrid_incomplete(self) -> None:
        """A classical statement does not satisfy the profile hybrid."""
        self.world = World(profile=Profile.CLASSICAL)
        self.refused("hybrid_incomplete", NotaryServer(self.world))

    def test_trust_domain_unknown(self) -> None:
        """Without post-quantum roots the profile hybrid fails, and never falls back."""
        server = NotaryServer(self.world)
        context = MemoryContext(server)
        context.anchors = Anchors(self.world.bundles, BundleSet())
        result = self.run_in_memory(server, context=context)
        self.assert_failed(result, "trust_domain_unknown", Phase.STATEMENT)

    def test_pq_roots_named(self) -> None:
        """The file of the post-quantum roots is named: missing or empty, or of another trust domain."""
        other = TestAuthority("other.org", now=NOW, algorithm="ML-DSA-65")
        for roots, said in ((BundleSet(), "is missing or empty"), (other.bundles(), "of other trust domains")):
            server = NotaryServer(self.world)
            context = MemoryContext(server)
            context.anchors, context.pq_file = Anchors(self.world.bundles, roots), "/run/svc/pq-bundle.json"
            result = self.run_in_memory(server, context=context)
            self.assert_failed(result, "trust_domain_unknown", Phase.STATEMENT)
            assert result.error is not None
            self.assertIn(f"/run/svc/pq-bundle.json {said}" if "missing" in said else said, str(result.error))
            self.assertIn("--pq-bundle", result.error.hint)

    def test_expired(self) -> None:
        """After its time a statement is refused, by its certificates first."""
        server = NotaryServer(self.world)
        context = MemoryContext(server)
        context.offset = timedelta(days=2)
        result = self.run_in_memory(server, context=context)
        self.assert_failed(result, "certificate_not_valid_at_time", Phase.STATEMENT)

    def test_bundle_stale(self) -> None:
        """An untrusted chain is reported as a stale bundle while the Workload API is unreachable."""
        server = NotaryServer(self.world)
        context = MemoryContext(server)
        context.anchors = World().anchors
        context.stale_since = context.now()
        result = self.run_in_memory(server, context=context)
        self.assert_failed(result, "bundle_stale", Phase.STATEMENT)

    def test_transport_unbound(self) -> None:
        """Over plain http validation cannot pass, so nothing is sent."""
        server = NotaryServer(self.world)
        result = self.run_in_memory(
            server, context=MemoryContext(server, secure=False), request=request_for(SIGNED, "http://api.test/")
        )
        self.assert_failed(result, "transport_unbound", Phase.STATEMENT)
        self.assertEqual((server.seen, server.connections), ([], 0))


class ReceiptRefusedTests(ExchangeTestCase):
    """Each reason for which the level or the receipt of an answer is refused."""

    def refused(self, reason: str, **knobs: object) -> ExchangeResult:
        result = self.run_in_memory(NotaryServer(self.world, **knobs))  # type: ignore[arg-type]
        self.assert_failed(result, reason, Phase.RECEIPT)
        self.assertIsNotNone(result.statement)
        return result

    def test_level_mismatch(self) -> None:
        """A weaker, unknown or missing level fails."""
        self.refused("level_mismatch", edit_head=setting(b"Svc-Notarization-Level", b"workload"))
        self.refused("level_mismatch", edit_head=setting(b"Svc-Notarization-Level", b"everything"))
        self.refused("level_mismatch", edit_head=dropping(b"Svc-Notarization-Level"))

    def test_receipt_missing(self) -> None:
        """A missing receipt location fails, and one where the notary has nothing."""
        self.refused("receipt_missing", edit_head=dropping(b"Svc-Receipt-Location"))
        self.refused("receipt_missing", receipt_status=404)

    def test_foreign_location(self) -> None:
        """A location outside the notary is not followed."""
        result = self.refused(
            "receipt_missing", edit_head=setting(b"Svc-Receipt-Location", b"https://evil.test/receipt")
        )
        self.assertIn("evil.test", str(result.error))

    def test_location_of_another_request(self) -> None:
        """A location at the notary for another nonce is not followed."""
        other = b"/.well-known/svc-notary/v1/receipts/by-request/AAAAAAAAAAAAAAAAAAAAAA"
        self.refused("nonce_mismatch", edit_head=setting(b"Svc-Receipt-Location", other))

    def test_receipt_pending(self) -> None:
        """A receipt that stays pending fails after half a minute."""
        context = MemoryContext(NotaryServer(self.world, pending=1000, retry_after=None))
        result = self.run_in_memory(context.server, context=context)
        self.assert_failed(result, "receipt_pending", Phase.RECEIPT)
        self.assertEqual(context.clock.seconds(), 30.0)

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
            "header:2": {"request_headers": [(b"user-agent", b"svc/0.2.0"), (b"accept", b"*/*"), (b"x-trace", b"2")]},
            "body": {"request_body": BodySummary.of(b"other")},
        }.items():
            self.refused(f"request_mismatch{{{part}}}", edit_exchange=replaced(**changes))  # type: ignore[arg-type]

    def test_response_mismatch(self) -> None:
        """Each part of the answer that differs is named."""
        for part, changes in {
            "status": {"status": 201},
            "header:0": {"response_headers": [(b"content-type", b"text/html")]},
            "body": {"response_body": BodySummary.of(b"other")},
            "trailer:0": {"response_trailers": [(b"x", b"1")]},
        }.items():
            self.refused(f"response_mismatch{{{part}}}", edit_exchange=replaced(**changes))  # type: ignore[arg-type]

    def test_incomplete_body(self) -> None:
        """A receipt for a body that was cut does not prove a whole one."""
        self.refused(
            "response_mismatch{body}", edit_exchange=replaced(response_body=BodySummary.of(BODY, complete=False))
        )

    def test_other_connection(self) -> None:
        """A receipt for another client or another TLS session is refused."""

        def other_client(exchange: RecordedExchange) -> RecordedExchange:
            return dataclasses.replace(exchange, client=Peer(SpiffeID.parse("spiffe://example.org/x"), "A" * 43))

        self.refused("request_mismatch{client}", edit_exchange=other_client)
        tls = TlsFacts("1.3", "x25519", "TLS_AES_256_GCM_SHA384", False)
        self.refused("request_mismatch{tls}", edit_exchange=replaced(tls=tls))

    def test_time_skew(self) -> None:
        """A receipt from long before the exchange is refused."""
        context = MemoryContext(NotaryServer(self.world))
        context.offset = timedelta(minutes=3)
        result = self.run_in_memory(context.server, context=context)
        self.assert_failed(result, "time_skew", Phase.RECEIPT)

    def test_altered(self) -> None:
        """A receipt that was altered after it was signed is refused."""

        def altered(envelope: bytes) -> bytes:
            document = json.loads(envelope)
            signature = document["signatures"][0]["signature"]
            document["signatures"][0]["signature"] = ("B" if signature[0] == "A" else "A") + signature[1:]
            return json.dumps(document).encode()

        self.refused("signature_invalid{ES256}", edit_receipt=altered)

    def test_statement_instead_of_receipt(self) -> None:
        """A statement is no receipt."""
        statement = self.world.generation.statement.envelope.serialize()
        self.refused("wrong_type", edit_receipt=lambda _envelope: statement)


class NetworkTests(ExchangeTestCase):
    """What fails before anything can be verified."""

    def test_no_connection(self) -> None:
        """An error of dialing is the error of the result."""
        context = MemoryContext(NotaryServer(self.world))
        context.memory_dialer.errors.append(NetworkError("connection_refused", server="api.test:8443"))
        self.assert_failed(self.run_in_memory(context=context), "connection_refused", Phase.NETWORK)

    def test_unexpected_identity_in_the_handshake(self) -> None:
        """An identity that the handshake refuses has the exit status of the statement."""
        context = MemoryContext(NotaryServer(self.world))
        error = ServerIdentityUnexpected(address="a", spiffe_id="spiffe://x/y", expected="z")
        context.memory_dialer.errors.append(error)
        self.assert_failed(self.run_in_memory(context=context), "identity_unexpected", Phase.STATEMENT)

    def test_body_too_large(self) -> None:
        """A body beyond the limit ends the connection."""
        context = MemoryContext(NotaryServer(self.world))
        result = self.run_in_memory(context=context, limit=len(BODY) - 1)
        self.assert_failed(result, "body_too_large", Phase.NETWORK)
        self.assertTrue(context.memory_dialer.transports[0].aborted)

    def test_body_at_the_limit(self) -> None:
        """A body of exactly the limit passes."""
        self.assertIsNone(self.run_in_memory(limit=len(BODY)).error)

    def test_truncated(self) -> None:
        """A response that ends early is an error of the network."""
        server = NotaryServer(self.world, truncate=True)
        result = self.run_in_memory(server, context=MemoryContext(server, ends=True))
        self.assert_failed(result, "connection_closed", Phase.NETWORK)

    def test_artifact_unreachable(self) -> None:
        """A new connection for an artifact that cannot be opened is an error of the network."""
        server = NotaryServer(self.world, closes=True)
        context = MemoryContext(server)
        dialer = context.memory_dialer
        first = dialer.dial

        async def only_once(before: object) -> object:
            if before is not None:
                raise NetworkError("connection_refused", server="api.test:8443")
            return await first(None)

        dialer.dial = only_once  # type: ignore[assignment]
        self.assert_failed(self.run_in_memory(server, context=context), "connection_refused", Phase.NETWORK)

    def test_no_trust(self) -> None:
        """Without a Workload API nothing can be verified; that is an error of the network."""
        context = MemoryContext(NotaryServer(self.world))
        context.trust_errors.append(WorkloadApiUnavailable(socket="s", seconds=1, what="x"))
        self.assert_failed(self.run_in_memory(context=context), "workload_api_unavailable", Phase.NETWORK)
        self.assertEqual(context.server.seen, [])

    def test_no_trust_for_a_statement(self) -> None:
        """Without validation a statement still needs trust; where there is none, that is an error of the network."""
        server = NotaryServer(self.world)
        context = MemoryContext(server, secure=False)
        context.trust_errors.append(WorkloadApiUnavailable(socket="s", seconds=1, what="x"))
        demands = Demands(validate=False)
        result = self.run_in_memory(context=context, demands=demands, request=request_for(demands, "http://api.test/"))
        self.assert_failed(result, "workload_api_unavailable", Phase.NETWORK)

    def test_connection_is_closed(self) -> None:
        """The connection is closed at the end, whatever the result is."""
        for server in (NotaryServer(self.world), NotaryServer(self.world, receipt_status=404)):
            context = MemoryContext(server)
            self.run_in_memory(server, context=context)
            self.assertTrue(all(transport.lost for transport in context.memory_dialer.transports))
