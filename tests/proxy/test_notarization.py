"""Notarization levels, nonces, records and the release of responses, in memory."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.envelope import MAX_ENVELOPE, Envelope
from svc.envelope.ids import receipt_id
from svc.identity import BundleSet, X509Bundle
from svc.notary.artifact import BatchedReceipt, parse_receipt
from svc.notary.exchange import BodySummary
from svc.notary.level import Level
from svc.notary.receipt import Redaction
from svc.proxy.connection_settings import LimitSettings, TimeoutSettings
from svc.proxy.http.response import MAX_WITHHELD
from svc.proxy.records.budget import Allowance
from svc.store.errors import StoreClosed
from svc.store.records import ReceiptQuery, StoredReceipt
from svc.strictjson import b64u_encode, loads_object
from tests.proxy.rig import AUTHORITY, CALLER, Rig, Wire, lose

NONCE = b"AAAAAAAAAAAAAAAAAAAAAA"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def get(level: str, nonce: bytes | None = None, *, rest: bytes = b"\r\n", method: bytes = b"GET") -> bytes:
    """Build a request with notary headers."""
    head = b"%b /a?b HTTP/1.1\r\nHost: api\r\nSvc-Notarization-Level: %b\r\n" % (method, level.encode())
    return head + (b"Svc-Notary-Nonce: %b\r\n" % nonce if nonce else b"") + rest


def body_of(answer: bytes) -> dict[str, object]:
    """Parse the JSON body of a response."""
    return loads_object(answer.partition(b"\r\n\r\n")[2])


class NotarizationTestCase(SynchronousTestCase):
    """Base class: one inbound listener with a client."""

    def setUp(self) -> None:
        """Create the listener and the client."""
        self.rig = Rig()
        self.client, self.wire = self.rig.client()

    def receipt(self, key: bytes = NONCE) -> dict[str, object]:
        """Fetch the receipt of an exchange on another connection of the same identity."""
        client, wire = self.rig.client()
        client.dataReceived(
            b"GET /.well-known/svc-notary/v1/receipts/by-request/%b HTTP/1.1\r\nHost: api\r\n\r\n" % key
        )
        answer = wire.take()
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
        payload = Envelope.parse(answer.partition(b"\r\n\r\n")[2]).payload
        claims = loads_object(payload)["svc"]
        assert isinstance(claims, dict)
        return claims


class LevelTests(NotarizationTestCase):
    """Which level applies, and which requests are refused."""

    def test_workload(self) -> None:
        """At level workload the response has statement and level, and nothing is recorded."""
        self.client.dataReceived(get("workload"))
        self.rig.respond(OK)
        out = self.wire.take()
        self.assertIn(b"Svc-Workload-ID: " + self.rig.credentials.statement.id.encode(), out)
        self.assertIn(b"Svc-Notarization-Level: workload\r\n", out)
        self.assertNotIn(b"Svc-Receipt-Location", out)
        self.assertEqual(self.rig.notarizer.in_flight, 0)

    def test_cut_at_the_maximum(self) -> None:
        """A listener applies at most its maximum level and reports it."""
        rig = Rig(maximum=Level.WORKLOAD)
        client, wire = rig.client()
        client.dataReceived(get("signRequest", NONCE))
        rig.respond(OK)
        self.assertIn(b"Svc-Notarization-Level: workload\r\n", wire.take())

    def test_request_that_ends_at_the_proxy(self) -> None:
        """A response to OPTIONS with Max-Forwards 0 is recorded like any other, and nothing is forwarded."""
        self.client.dataReceived(get("signRequest", NONCE, method=b"OPTIONS", rest=b"Max-Forwards: 0\r\n\r\n"))
        self.assertIn(b"Svc-Receipt-Location: ", self.wire.take())
        self.assertEqual(self.rig.endpoint.connections, [])
        request = self.receipt()["request"]
        assert isinstance(request, dict)
        self.assertIn(["max-forwards", "0"], request["headers"])

    def test_fields_that_are_not_forwarded(self) -> None:
        """A receipt has the request as sent: with what the proxy removed, without what it added."""
        rig = Rig(forwarded=True)
        client, _wire = rig.client()
        claims = b"X-Forwarded-For: 192.0.2.1\r\nForwarded: for=a\r\n\r\n"
        client.dataReceived(get("signRequest", NONCE, rest=claims))
        self.assertNotIn(b"192.0.2.1", rig.upstream()[1].take())
        rig.respond(OK)
        self.rig = rig
        request = self.receipt()["request"]
        assert isinstance(request, dict)
        self.assertEqual(request["headers"], [["x-forwarded-for", "192.0.2.1"], ["forwarded", "for=a"]])
        self.assertEqual(request["authority"], "api")

    def test_invalid_headers(self) -> None:
        """An unknown level, ``none``, and a malformed nonce give 400 with the reason."""
        for request, reason in (
            (get("SignRequest"), b"level_invalid"),
            (get("none"), b"level_invalid"),
            (get("signRequest", NONCE[:-1]), b"nonce_malformed"),
            (get("signRequest", NONCE[:-1] + b"B"), b"nonce_malformed"),
            (get("signRequest", NONCE + b"A"), b"nonce_malformed"),
        ):
            self.client.dataReceived(request)
            out = self.wire.take()
            self.assertTrue(out.startswith(b"HTTP/1.1 400 "), request)
            self.assertIn(reason, out)
        self.assertEqual(self.rig.endpoint.connections, [])

    def test_no_valid_credentials(self) -> None:
        """Without credentials a request for a level gives 503; a request without one is served."""
        self.rig.rotation.credentials = None
        client, wire = self.rig.client()
        client.dataReceived(get("workload"))
        self.assertIn(b'"code":"notary_unavailable"', wire.take())
        client.dataReceived(b"GET / HTTP/1.1\r\nHost: api\r\n\r\n")
        self.rig.respond(OK)
        self.assertEqual(wire.take(), OK)

    def test_expired_credentials(self) -> None:
        """A request for a receipt gives 503 when the credentials have expired."""
        self.rig.clock.advance(3601)
        self.client.dataReceived(get("workload"))
        self.assertIn(b'"code":"notary_unavailable"', self.wire.take())
        self.assertEqual(self.rig.endpoint.connections, [])

    def test_store_that_cannot_be_written(self) -> None:
        """A request that needs a record gives 503 before it is forwarded."""
        self.rig.store.writable = False
        self.client.dataReceived(get("logRequest"))
        self.assertTrue(self.wire.take().startswith(b"HTTP/1.1 503 "))
        self.assertEqual(self.rig.endpoint.connections, [])

    def test_rate(self) -> None:
        """An identity above its rate gets 429; other identities are served."""
        rig = Rig(rate=1.0, burst=2.0)
        client, wire = rig.client()
        for expected in (b"200", b"200", b"429"):
            client.dataReceived(get("signRequest"))
            if expected == b"200":
                rig.respond(OK)
            self.assertIn(b"HTTP/1.1 " + expected, wire.take())
        other, other_wire = rig.client(AUTHORITY.svid("/ns/web/sa/other"))
        other.dataReceived(get("signRequest"))
        rig.respond(OK)
        self.assertIn(b"HTTP/1.1 200", other_wire.take())
        rig.clock.advance(1.0)
        client.dataReceived(get("signRequest"))
        rig.respond(OK)
        self.assertIn(b"HTTP/1.1 200", wire.take())

    def test_rate_of_records(self) -> None:
        """Unsigned records count too; the refusal has ``Retry-After``, and nothing is forwarded."""
        rig = Rig(rate=0.1, burst=1.0)
        client, wire = rig.client()
        for level in ("logRequest", "signRequest"):
            client.dataReceived(get(level))
            if level == "logRequest":
                rig.respond(OK)
                wire.take()
        out = wire.take()
        self.assertTrue(out.startswith(b"HTTP/1.1 429 "), out)
        self.assertIn(b"\r\nRetry-After: 10\r\n", out)
        self.assertEqual(rig.upstream()[1].take().count(b"HTTP/1.1"), 1)
        client.dataReceived(get("workload"))
        rig.respond(OK)
        self.assertIn(b"HTTP/1.1 200", wire.take())

    def test_held_back(self) -> None:
        """At the rate of its identity a client is not read any more, and served later; refused when that takes long."""
        rig = Rig(rate=0.5, burst=1.0, longest=5.0, timeouts=TimeoutSettings.model_validate({"response": "1s"}))
        client, wire = rig.client()
        client.dataReceived(get("logRequest"))
        rig.respond(OK)
        wire.take()
        clients = [rig.client() for _ in range(4)]
        for each, _wire in clients:
            each.dataReceived(get("logRequest"))
        self.assertEqual([True] * 4, [wire.paused for _client, wire in clients])
        # One that leaves takes no turn of the others, and no limit of the application's time is exceeded meanwhile.
        lose(clients[0][0])
        served = []
        for _second in range(5):
            rig.sweep(1.0)
            for number, (_client, each) in enumerate(clients[1:]):
                if not each.paused and number not in served and rig.upstream()[1].take():
                    rig.respond(OK)
                    self.assertIn(b"HTTP/1.1 200", each.take())
                    served.append(number)
        self.assertEqual([0, 1], served)
        refused = clients[3][1]
        self.assertTrue(refused.take().startswith(b"HTTP/1.1 429 "))
        self.assertEqual((False, []), (refused.paused, rig.clock.getDelayedCalls()))

    def test_octets_of_records(self) -> None:
        """Large records use up the octets of their identity; others are served, and the octets return with time."""
        rig = Rig(octets=Allowance(1000.0, 2**20))
        client, wire = rig.client()
        statuses = []
        for _ in range(40):
            client.dataReceived(get("logRequest", rest=b"X: %b\r\n\r\n" % (b"x" * 30_000)))
            if rig.endpoint.connections and (sent := rig.upstream()[1].take()):
                self.assertIn(b"xxx", sent)
                rig.respond(OK)
            statuses.append(wire.take()[9:12])
        served = statuses.count(b"200")
        self.assertEqual(statuses, [b"200"] * served + [b"429"] * (40 - served))
        # A megabyte holds about thirty of them, less the reserve for the largest one.
        self.assertTrue(20 < served < 35, served)
        rig.clock.advance(200)
        client.dataReceived(get("logRequest"))
        rig.respond(OK)
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 200 "))

    def test_largest_record(self) -> None:
        """At the default limits the largest heads and trailers of both messages still give a receipt that is served."""
        rig = Rig(redaction=Redaction.of(["x"]))
        client, wire = rig.client()
        fields = b"x:\r\n" * 45 + b"Cookie: a\r\n" * 45
        fill = b"Y: %b\r\n" % (b'"' * 31_000)
        client.dataReceived(
            b"POST / HTTP/1.1\r\nHost: api\r\nSvc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: %b\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n%b%b\r\n" % (NONCE, fields, fill)
        )
        rig.respond(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n%b%b\r\n0\r\n\r\n" % (fields, fill))
        self.assertTrue(wire.take().endswith(b"\r\n0\r\n\r\n"))
        self.assertFalse(wire.aborted)
        other, answer = rig.client()
        other.dataReceived(b"GET /.well-known/svc-notary/v1/receipts/by-request/%b HTTP/1.1\r\nHost: a\r\n\r\n" % NONCE)
        self.assertTrue(answer.take().startswith(b"HTTP/1.1 200 "))

    def test_record_that_would_be_too_large(self) -> None:
        """If long certificate chains might make the record too large, the request is refused before it is forwarded."""
        rig = Rig()
        room = MAX_ENVELOPE - rig.context.record_bound.envelope(0, spared=32768 - 4096)
        rig.credentials.__dict__["signature_octets"] = room
        client, wire = rig.client()
        for rest, status in (
            (b"\r\n", b"200"),
            (b"X: %b\r\n\r\n" % (b"x" * 4096), b"431"),
            (b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"431"),
        ):
            client.dataReceived(get("signRequest", rest=rest, method=b"POST"))
            if status == b"200":
                rig.respond(OK)
            out = wire.take()
            self.assertTrue(out.startswith(b"HTTP/1.1 " + status), out)
            self.assertEqual(b'"code":"record_too_large"' in out, status == b"431")
        self.assertEqual(rig.upstream()[1].take().count(b"HTTP/1.1"), 1)
        self.assertEqual((rig.notarizer.in_flight, rig.reporter.failures), (0, ["record_too_large"] * 2))

    def test_queue_of_signatures(self) -> None:
        """While too many records are queued, further requests get 429."""
        for _ in range(8):
            self.rig.places.take("spiffe://prod.example/other", 1)
        self.client.dataReceived(get("signRequest"))
        self.assertIn(b'"code":"notary_rate"', self.wire.take())


class NonceTests(NotarizationTestCase):
    """Each identity can use a nonce once."""

    def test_replay_after_the_record(self) -> None:
        """A recorded nonce gives 409 for the same identity; another identity can use it."""
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.respond(OK)
        self.wire.take()
        self.client.dataReceived(get("signRequest", NONCE))
        self.assertIn(b'"code":"replayed"', self.wire.take())
        other, wire = self.rig.client(AUTHORITY.svid("/ns/web/sa/other"))
        other.dataReceived(get("signRequest", NONCE))
        self.rig.respond(OK)
        self.assertIn(b"HTTP/1.1 200", wire.take())

    def test_replay_in_flight(self) -> None:
        """A nonce whose exchange is running gives 409 on another connection of the same identity."""
        self.client.dataReceived(get("signRequest", NONCE))
        second, wire = self.rig.client()
        second.dataReceived(get("signRequest", NONCE))
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 409 "))


class RecordErrorTests(NotarizationTestCase):
    """What counts as a record that could not be written."""

    def errors(self, rig: Rig | None = None) -> float | None:
        """Read the counter."""
        labels = {"result": "error", "protocol": "http"}
        return (rig or self.rig).registry.get_sample_value("svc_proxy_notary_records_total", labels)

    def test_store_takes_no_records(self) -> None:
        """Each request that is refused because the store is not writable counts as an error, at both levels."""
        self.rig.store.writable = False
        for count, level in enumerate(("logRequest", "signRequest"), start=1):
            self.client.dataReceived(get(level))
            self.assertEqual(self.errors(), count)
        self.client.dataReceived(get("workload"))
        self.assertEqual(self.errors(), 2)

    def test_store_that_fails_to_reserve_a_nonce(self) -> None:
        """A store that fails when the nonce is reserved counts as an error."""
        self.rig.store.reserve = lambda client, nonce: fail(StoreClosed())
        self.client.dataReceived(get("signRequest", NONCE))
        self.assertTrue(self.wire.take().startswith(b"HTTP/1.1 503 "))
        self.assertEqual(self.errors(), 1)

    def test_store_that_does_not_answer_in_time(self) -> None:
        """If a request times out while the store is asked, one error is counted, whatever the store returns later."""
        for answer in (True, StoreClosed()):
            rig = Rig()
            lookup: Deferred[bool] = Deferred()
            rig.store.reserve = lambda client, nonce, lookup=lookup: lookup  # type: ignore[misc]
            client, _wire = rig.client()
            client.dataReceived(get("signRequest", NONCE))
            rig.sweep(61)
            self.assertEqual(self.errors(rig), 1)
            (lookup.callback if answer is True else lookup.errback)(answer)  # type: ignore[arg-type]
            self.assertEqual(self.errors(rig), 1)

    def test_credentials_that_have_ended(self) -> None:
        """Without valid credentials a required record cannot be made: an error."""
        self.rig.clock.advance(3601)
        self.client.dataReceived(get("workload"))
        self.assertEqual(self.errors(), 0)
        self.client.dataReceived(get("signRequest"))
        self.assertEqual(self.errors(), 1)

    def test_failed_commit(self) -> None:
        """A record that was admitted and not committed is one error."""
        self.rig.store.failure = StoreClosed()
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.respond(OK)
        self.assertEqual(self.errors(), 1)

    def test_refusals_for_the_clients_sake(self) -> None:
        """Refusals by a rate, the queue, a nonce or a body limit are not errors of the notary."""
        rig = Rig(rate=0.1, burst=2.0, limits=LimitSettings.model_validate({"body": "16B"}))
        client, wire = rig.client()
        for request, status in (
            (get("signRequest", NONCE), b"200"),
            (get("signRequest", NONCE), b"409"),
            (get("signRequest", rest=b"Content-Length: 99\r\n\r\n", method=b"POST"), b"413"),
        ):
            client.dataReceived(request)
            if status == b"200":
                rig.respond(OK)
            self.assertIn(b"HTTP/1.1 " + status, wire.take())
        other, answer = rig.client()
        for _ in range(2):
            other.dataReceived(get("logRequest"))
            rig.respond(OK)
        self.assertIn(b"HTTP/1.1 429", answer.take())
        for number in range(8):
            rig.places.take(f"spiffe://prod.example/{number}", 1)
        last, answer = rig.client(AUTHORITY.svid("/ns/web/sa/other"))
        last.dataReceived(get("signRequest"))
        self.assertIn(b"HTTP/1.1 429", answer.take())
        self.assertEqual(self.errors(rig), 0)


class UnadmittedTests(NotarizationTestCase):
    """Responses of the proxy while the store looks up a nonce."""

    def setUp(self) -> None:
        """Create a store with a pending look-up, and a small body limit."""
        self.rig = Rig(limits=LimitSettings.model_validate({"body": "16B"}))
        self.client, self.wire = self.rig.client()
        self.lookup: Deferred[bool] = Deferred()
        self.rig.store.nonce_known = lambda client, nonce: self.lookup

    def assert_answered_whole_and_alone(self, status: bytes, *, known: bool = False) -> None:
        """The response is complete without a record, and an admission that arrives later has no effect."""
        answer = self.wire.take()
        self.assertTrue(answer.startswith(b"HTTP/1.1 %b " % status), answer)
        self.assertIn(b"Svc-Notarization-Level: workload\r\n", answer)
        self.assertEqual(body_of(answer)["status"], int(status))
        self.lookup.callback(known)
        self.assertEqual(self.wire.take(), b"")
        self.assertEqual(self.rig.endpoint.connections, [])
        self.assertEqual(self.rig.notarizer.in_flight, 0)
        self.assertTrue(self.client.idle)

    def test_body_that_turns_out_too_large(self) -> None:
        """The request is refused at once, and not forwarded when it is admitted later."""
        rest = b"Transfer-Encoding: chunked\r\n\r\n20\r\n%b\r\n0\r\n\r\n" % (b"x" * 32)
        self.client.dataReceived(get("signRequest", NONCE, rest=rest, method=b"POST"))
        self.assert_answered_whole_and_alone(b"413")

    def test_store_that_does_not_answer_in_time(self) -> None:
        """The request ends like one whose application does not respond in time."""
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.sweep(61)
        self.assert_answered_whole_and_alone(b"504", known=True)
        self.assertFalse(self.wire.paused)

    def test_reading_pauses(self) -> None:
        """Reading pauses until the exchange is admitted, not until the upstream is connected."""
        self.rig.endpoint.manual = True
        self.client.dataReceived(get("signRequest", NONCE))
        self.assertTrue(self.wire.paused)
        self.lookup.callback(False)
        self.assertFalse(self.wire.paused)

    def test_reading_goes_on_after_an_immediate_admission(self) -> None:
        """An exchange that is admitted at once does not pause the client's transport."""
        pauses: list[None] = []
        self.wire.pauseProducing = lambda: pauses.append(None)
        self.lookup.callback(False)
        self.client.dataReceived(get("signRequest", NONCE))
        self.assertEqual(len(self.rig.endpoint.connections), 1)
        self.assertEqual(pauses, [])


class ReleaseTests(NotarizationTestCase):
    """The end of a response waits for its record."""

    def setUp(self) -> None:
        """Create a store that delays commits."""
        super().setUp()
        self.rig.store.hold = True

    def check(self, response: bytes, withheld: bytes, *, method: bytes = b"GET") -> bytes:
        """Assert that all but ``withheld`` arrives before the commit, and ``withheld`` after it."""
        self.client.dataReceived(get("signRequest", NONCE, method=method))
        self.rig.respond(response)
        before = self.wire.take()
        self.assertFalse(withheld and before.endswith(withheld))
        self.rig.store.release()
        after = self.wire.take()
        self.assertEqual(after, withheld)
        return before

    def test_small_response(self) -> None:
        """A small response that arrives at once waits as a whole, so that it is one write."""
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n"
        for response in (OK, chunked):
            self.setUp()
            self.client.dataReceived(get("signRequest", NONCE))
            self.rig.respond(response)
            self.assertEqual(self.wire.take(), b"")
            self.rig.store.release()
            whole = self.wire.take()
            self.assertTrue(whole.startswith(b"HTTP/1.1 200 OK\r\n"))
            self.assertTrue(whole.endswith(response.partition(b"\r\n\r\n")[2]))

    def test_bound_of_small(self) -> None:
        """What arrives together with the end waits as a whole up to the bound; beyond it the last octet alone."""
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
        for size, waiting in ((MAX_WITHHELD + 1, MAX_WITHHELD + 1), (MAX_WITHHELD + 2, 1)):
            self.setUp()
            self.client.dataReceived(get("signRequest", NONCE))
            self.rig.respond(head % size)
            self.wire.take()
            self.rig.respond(b"x" * size)
            self.assertEqual(len(self.wire.take()), size - waiting)
            self.rig.store.release()
            self.assertEqual(len(self.wire.take()), waiting)

    def test_last_octet(self) -> None:
        """Of a body of known length the last octet waits, however much comes before it."""
        self.check(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"x" * 19_999 + b"k", b"k")

    def test_last_octet_of_a_body_in_pieces(self) -> None:
        """Only the very last octet waits, however the body is split."""
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        for piece in (b"a", b"bc"):
            self.rig.respond(piece)
        self.assertTrue(self.wire.take().endswith(b"\r\n\r\nabc"))
        self.rig.respond(b"d")
        self.assertEqual(self.wire.take(), b"")
        self.rig.store.release()
        self.assertEqual(self.wire.take(), b"d")

    def test_last_chunk(self) -> None:
        """Of a chunked body the last chunk and the trailers wait."""
        chunk = b"4e20\r\n" + b"x" * 20_000 + b"\r\n"
        end = b"0\r\nA: b\r\n\r\n"
        self.check(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + end, end)

    def test_event_stream(self) -> None:
        """Each piece of a stream reaches the client as it comes; only the last chunk waits for the record."""
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.assertTrue(self.wire.take().endswith(b"\r\n\r\n"))
        for _ in range(3):
            self.rig.respond(b"9\r\ndata: 1\n\n\r\n")
            self.assertEqual(self.wire.take(), b"9\r\ndata: 1\n\n\r\n")
        self.rig.respond(b"0\r\n\r\n")
        self.assertEqual(self.wire.take(), b"")
        self.rig.store.release()
        self.assertEqual(self.wire.take(), b"0\r\n\r\n")

    def test_head_without_body(self) -> None:
        """A response without a body waits as a whole."""
        self.client.dataReceived(get("signRequest", NONCE, method=b"HEAD"))
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        self.assertEqual(self.wire.take(), b"")
        self.rig.store.release()
        self.assertIn(b"Content-Length: 9\r\n", self.wire.take())

    def test_close_of_http_1_0(self) -> None:
        """If the body ends with the connection, the close waits."""
        self.client.dataReceived(b"GET / HTTP/1.0\r\nHost: api\r\nSvc-Notarization-Level: logRequest\r\n\r\n")
        self.rig.respond(b"HTTP/1.0 200 OK\r\n\r\nab")
        self.rig.lose_upstream()
        self.assertTrue(self.wire.take().endswith(b"ab"))
        self.assertFalse(self.wire.disconnecting)
        self.rig.store.release()
        self.assertTrue(self.wire.disconnecting)

    def test_http_1_0_without_host(self) -> None:
        """The authority of a record is what the client sent: nothing."""
        self.client.dataReceived(b"GET / HTTP/1.0\r\nSvc-Notarization-Level: logRequest\r\n\r\n")
        self.rig.respond(OK)
        self.rig.store.release()
        self.assertTrue(self.wire.take().endswith(b"ok"))
        [stored] = self.successResultOf(self.rig.store.find(ReceiptQuery()))
        self.assertEqual("", json.loads(stored.payload)["svc"]["request"]["authority"])

    def test_switching_protocols(self) -> None:
        """A 101 response waits as a whole; octets are relayed after its release."""
        self.client.dataReceived(get("signRequest", NONCE, rest=b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"))
        self.rig.respond(b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi")
        self.assertEqual(self.wire.take(), b"")
        self.rig.store.release()
        self.assertTrue(self.wire.take().endswith(b"\r\n\r\nhi"))
        self.assertEqual(self.receipt()["outcome"], "upgraded")

    def test_next_request_waits_for_the_release(self) -> None:
        """Request n+1 is not forwarded before response n is released."""
        self.client.dataReceived(get("signRequest", NONCE) + b"GET /b HTTP/1.1\r\nHost: api\r\n\r\n")
        self.rig.respond(OK)
        self.assertNotIn(b"GET /b", self.rig.upstream()[1].take())
        self.rig.store.release()
        self.assertIn(b"GET /b", self.rig.upstream()[1].take())

    def test_upstream_is_free_while_the_record_is_written(self) -> None:
        """The connection to the application is pooled as soon as the response is read."""
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.respond(OK)
        self.assertEqual(self.rig.pool.idle_count, 1)

    def test_failed_commit_aborts(self) -> None:
        """A response whose record cannot be committed never looks complete."""
        self.rig.store.failure = StoreClosed()
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.respond(OK)
        self.assertTrue(self.wire.aborted)
        self.assertEqual(self.wire.take(), b"")
        self.assertEqual(self.rig.reporter.failures, ["notary_unavailable"])


class LateRecordTests(NotarizationTestCase):
    """A record that is not durable in time breaks the response off, and says so when it is written."""

    HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Kind: a\r\n\r\n"
    CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    def late(self, *response: bytes, request: bytes = b"", level: str = "signRequest", leaves: bool = False) -> Any:
        """Respond in parts; return what the client was given, and the record."""
        self.setUp()
        self.rig.store.hold = True
        self.client.dataReceived(request or get(level, NONCE))
        for part in response:
            self.rig.respond(part)
        if leaves:
            lose(self.client)
        given = self.wire.take()
        self.rig.store.expire()
        self.assertEqual((b"", not leaves), (self.wire.take(), self.wire.aborted))
        self.assertEqual(["notary_unavailable"], self.rig.reporter.failures)
        self.assertEqual([], self.rig.reporter.summaries)
        self.rig.store.release()
        [summary] = self.rig.reporter.summaries
        [stored] = self.successResultOf(self.rig.store.find(ReceiptQuery()))
        self.assertEqual((summary.receipt_id, summary.outcome.value), (stored.id, stored.outcome))
        self.assertEqual((0, 1), (self.rig.notarizer.in_flight, len(self.rig.reporter.failures)))
        payload: Any = loads_object(stored.payload)
        self.assertEqual(stored.outcome, payload["svc"]["outcome"])
        if payload["svc"]["response"] is not None:
            self.assertEqual(summary.response_octets, payload["svc"]["response"]["body"]["size"])
        return given.partition(b"\r\n\r\n")[2], payload["svc"]

    def check(self, given: bytes, claims: Any, outcome: str = "server_aborted") -> None:
        """The record says that the client was given this part of a body."""
        self.assertEqual(outcome, claims["outcome"])
        self.assertEqual(200, claims["response"]["status"])
        digest = b64u_encode(hashlib.sha256(given).digest())
        self.assertEqual({"size": len(given), "sha-256": digest, "complete": False}, claims["response"]["body"])

    def test_part_of_a_body(self) -> None:
        """Of a body of known length, which came in parts, the client has what came before the last part."""
        for level in ("signRequest", "logRequest"):
            given, claims = self.late(self.HEAD % 5 + b"abc", b"de", level=level)
            self.assertEqual(b"abc", given)
            self.check(given, claims)

    def test_all_but_the_last_octet(self) -> None:
        """Of much that came at once the client lacks the last octet."""
        given, claims = self.late(self.HEAD % (MAX_WITHHELD + 2), b"x" * (MAX_WITHHELD + 2))
        self.assertEqual(b"x" * (MAX_WITHHELD + 1), given)
        self.check(given, claims)

    def test_chunks(self) -> None:
        """Of a chunked body the client has all chunks but those that came with the end; trailers it has not."""
        end = b"3\r\nend\r\n0\r\nA: b\r\n\r\n"
        given, claims = self.late(self.CHUNKED + b"2\r\nok\r\n", end)
        self.assertEqual(b"2\r\nok\r\n", given)
        self.check(b"ok", claims)
        self.assertEqual([], claims["response"]["trailers"])
        size = MAX_WITHHELD + 1
        _given, claims = self.late(self.CHUNKED, b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size))
        self.check(b"x" * size, claims)

    def test_withheld_as_a_whole(self) -> None:
        """Where nothing was sent the record has no response."""
        upgrade = get("signRequest", NONCE, rest=b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        switch = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        for request, response in (
            (b"", OK),
            (b"", b"HTTP/1.1 204 No Content\r\n\r\n"),
            (get("signRequest", NONCE, method=b"HEAD"), self.HEAD % 9),
            (upgrade, switch),
        ):
            given, claims = self.late(response, request=request)
            self.assertEqual((b"", "server_aborted", None), (given, claims["outcome"], claims["response"]))

    def test_close_of_http_1_0(self) -> None:
        """A body that the close would have ended is cut by a reset; the record does not call it complete."""
        request = b"GET / HTTP/1.0\r\nHost: api\r\nSvc-Notarization-Level: logRequest\r\n\r\n"
        given, claims = self.late(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", b"de", request=request)
        self.check(given, claims)

    def test_client_that_left(self) -> None:
        """The record of a client that left meanwhile has that as its end."""
        given, claims = self.late(self.HEAD % 5 + b"abc", b"de", leaves=True)
        self.check(given, claims, "client_aborted")

    def test_counted(self) -> None:
        """The request counts as one whose record failed; that of how it ended is counted when it is written."""
        self.late(OK)
        counted = [
            self.rig.registry.get_sample_value("svc_proxy_notary_records_total", {"result": result, "protocol": "http"})
            for result in ("error", "success")
        ]
        self.assertEqual([1.0, 1.0], counted)


class RecordTests(NotarizationTestCase):
    """The content of the record."""

    def test_complete_exchange(self) -> None:
        """The record has both messages with their bodies, both identities and the TLS session."""
        self.client.dataReceived(
            get("signRequest", NONCE, method=b"POST", rest=b"Content-Length: 4\r\nA: b \r\n\r\nda")
        )
        self.client.dataReceived(b"ta")
        self.rig.respond(OK)
        record = self.receipt()
        request, response = record["request"], record["response"]
        assert isinstance(request, dict)
        assert isinstance(response, dict)
        self.assertEqual((request["method"], request["path"], request["query"]), ("POST", "/a", "?b"))
        self.assertEqual(request["headers"], [["content-length", "4"], ["a", "b"]])
        self.assertEqual((request["body"]["size"], request["body"]["complete"]), (4, True))
        self.assertEqual(response["status"], 200)
        self.assertEqual((response["body"]["size"], response["body"]["complete"]), (2, True))
        self.assertEqual(record["outcome"], "complete")
        self.assertEqual(record["nonce"], NONCE.decode())
        client = record["client"]
        assert isinstance(client, dict)
        self.assertEqual(client["spiffeID"], str(CALLER.spiffe_id))

    def test_request_that_ended_before_admission(self) -> None:
        """A body that was complete before the nonce was admitted is recorded completely."""
        looked_up: Deferred[bool] = Deferred()
        self.rig.store.nonce_known = lambda client, nonce: looked_up
        self.client.dataReceived(get("signRequest", NONCE, method=b"POST", rest=b"Content-Length: 4\r\n\r\ndata"))
        self.assertEqual(self.rig.endpoint.connections, [])
        looked_up.callback(False)
        self.rig.respond(OK)
        request = self.receipt()["request"]
        assert isinstance(request, dict)
        self.assertEqual(request["body"]["size"], BodySummary.of(b"data").size)
        self.assertTrue(request["body"]["complete"])

    def test_early_answer(self) -> None:
        """A response before the end of the request is recorded with the request octets received so far."""
        self.client.dataReceived(get("signRequest", NONCE, method=b"POST", rest=b"Content-Length: 9\r\n\r\nhalf"))
        self.rig.respond(b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n")
        request = self.receipt()["request"]
        assert isinstance(request, dict)
        self.assertEqual((request["body"]["size"], request["body"]["complete"]), (4, False))

    def test_aborted_by_the_client(self) -> None:
        """A client that disconnected can still fetch the record of its request."""
        self.client.dataReceived(get("signRequest", NONCE))
        lose(self.client)
        record = self.receipt()
        self.assertEqual(record["outcome"], "client_aborted")
        self.assertIsNone(record["response"])

    def test_broken_by_the_application(self) -> None:
        """A truncated response is recorded with the octets that were released."""
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        self.rig.lose_upstream()
        record = self.receipt()
        self.assertEqual(record["outcome"], "server_aborted")
        response = record["response"]
        assert isinstance(response, dict)
        self.assertEqual((response["body"]["size"], response["body"]["complete"]), (4, False))

    def test_refused_application(self) -> None:
        """The proxy's own 502 has a receipt like any response."""
        self.rig.endpoint.refuse = OSError("no")
        self.client.dataReceived(get("signRequest", NONCE))
        self.assertTrue(self.wire.take().startswith(b"HTTP/1.1 502 "))
        response = self.receipt()["response"]
        assert isinstance(response, dict)
        self.assertEqual(response["status"], 502)

    def test_log_request_is_stored_and_not_served(self) -> None:
        """An unsigned record is stored but not served as a receipt."""
        self.client.dataReceived(get("logRequest", NONCE))
        self.rig.respond(OK)
        found = self.successResultOf(self.rig.store.get_by_request(str(CALLER.spiffe_id), NONCE.decode()))
        assert found is not None
        self.assertIsNone(found.envelope)
        self.assertEqual(json.loads(found.payload)["svc"]["level"], "logRequest")
        self.client.dataReceived(
            b"GET /.well-known/svc-notary/v1/receipts/by-request/%b HTTP/1.1\r\nHost: api\r\n\r\n" % NONCE
        )
        self.assertIn(b"HTTP/1.1 404 ", self.wire.take())


class EndpointTests(NotarizationTestCase):
    """The reserved path."""

    def fetch(self, path: bytes, *, method: bytes = b"GET", wire: Wire | None = None) -> bytes:
        """Send one request on the first connection."""
        self.client.dataReceived(b"%b %b HTTP/1.1\r\nHost: api\r\n\r\n" % (method, path))
        return self.wire.take()

    def test_current_statement(self) -> None:
        """Any verified peer gets the statement of its connection's credentials."""
        for path in (b"/current", b"/" + self.rig.credentials.statement.id.encode()):
            answer = self.fetch(b"/.well-known/svc-notary/v1/statements" + path)
            self.assertTrue(answer.startswith(b"HTTP/1.1 200 "))
            envelope = Envelope.parse(answer.partition(b"\r\n\r\n")[2])
            self.assertEqual(envelope.payload, self.rig.credentials.statement.payload)

    def test_root_document(self) -> None:
        """The root document lists the endpoints."""
        document = body_of(self.fetch(b"/.well-known/svc-notary"))
        self.assertEqual((document["v"], document["issuer"]), (1, "spiffe://prod.example/ns/pay/sa/api"))
        self.assertEqual(document["retention"], "P1D")

    def test_every_spelling_is_reserved(self) -> None:
        """The reserved path is never forwarded to the application, however it is encoded."""
        for path in (
            b"/.well-known/svc-notary/v1/x",
            b"/.well-known/%73vc-notary/v1/x",
            b"/a/../.well-known/svc-notary",
            b"//.well-known//svc-notary/v1/x",
            b"http://api/.well-known/svc-notary/v1/x",
        ):
            self.fetch(path)
        self.assertEqual(self.rig.endpoint.connections, [])

    def test_methods(self) -> None:
        """Only GET and HEAD are allowed; a body is refused and the connection closed."""
        self.assertTrue(self.fetch(b"/.well-known/svc-notary", method=b"DELETE").startswith(b"HTTP/1.1 405 "))
        head = self.fetch(b"/.well-known/svc-notary", method=b"HEAD")
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "))
        self.assertTrue(head.endswith(b"\r\n\r\n"))

    def test_store_that_does_not_answer_in_time(self) -> None:
        """A look-up that takes too long gives 504 like a slow application, and the connection is kept."""
        late: Deferred[StoredReceipt | None] = Deferred()
        self.rig.store.get_receipt = lambda receipt_id: late
        self.client.dataReceived(
            b"GET /.well-known/svc-notary/v1/receipts/%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"A" * 43)
        )
        self.rig.sweep(61)
        self.assertTrue(self.wire.take().startswith(b"HTTP/1.1 504 "))
        self.assertFalse(self.wire.paused)
        late.callback(None)
        self.assertEqual(self.wire.take(), b"")

    def test_receipts_of_a_batch(self) -> None:
        """Receipts that were signed together are served as such, with salts, by nonce and by id."""
        self.rig.store.hold = True
        nonces = (NONCE, b"B" * 21 + b"A")
        for nonce in nonces:
            client, _wire = self.rig.client()
            client.dataReceived(get("signRequest", nonce, rest=b"Cookie: a\r\n\r\n"))
            self.rig.respond(OK, len(self.rig.endpoint.connections) - 1)
        self.rig.store.release()
        batches = set()
        for nonce in nonces:
            head, _end, body = self.fetch(b"/.well-known/svc-notary/v1/receipts/by-request/" + nonce).partition(
                b"\r\n\r\n"
            )
            self.assertIn(b"Content-Type: application/vnd.svc.receipt+json\r\n", head)
            found = parse_receipt(body)
            assert isinstance(found, BatchedReceipt)
            batches.add(found.batch)
            self.assertEqual(found.serialize(), body)
            self.assertEqual({"request": {"0"}}, {side: {*salts} for side, salts in found.extra["disclosures"].items()})  # type: ignore[attr-defined]
            again = self.fetch(b"/.well-known/svc-notary/v1/receipts/" + receipt_id(found.payload).encode())
            self.assertEqual(body, again.partition(b"\r\n\r\n")[2])
        self.assertEqual(1, len(batches))

    def test_running_exchange_is_202(self) -> None:
        """While an exchange is running, its receipt is pending: 202."""
        self.client.dataReceived(get("signRequest", NONCE))
        second, wire = self.rig.client()
        second.dataReceived(
            b"GET /.well-known/svc-notary/v1/receipts/by-request/%b HTTP/1.1\r\nHost: api\r\n\r\n" % NONCE
        )
        out = wire.take()
        self.assertTrue(out.startswith(b"HTTP/1.1 202 "))
        self.assertIn(b"Retry-After: ", out)

    def test_exchange_at_another_replica_is_202(self) -> None:
        """While an exchange runs at another replica, its receipt is 202 for its client and 404 for others."""
        path = b"GET /.well-known/svc-notary/v1/receipts/by-request/%b HTTP/1.1\r\nHost: api\r\n\r\n" % NONCE
        self.rig.store.elsewhere.add((str(CALLER.spiffe_id), NONCE.decode()))
        for credentials, status in ((None, b"202 "), (AUTHORITY.svid("/ns/web/sa/other"), b"404 ")):
            client, wire = self.rig.client(*([] if credentials is None else [credentials]))
            client.dataReceived(path)
            self.assertTrue(wire.take().startswith(b"HTTP/1.1 " + status))

    def test_exchange_that_ends_between_two_lookups(self) -> None:
        """A record that becomes durable between the two look-ups is found."""
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.respond(OK)
        found = self.rig.store.get_by_request(str(CALLER.spiffe_id), NONCE.decode())
        answers = [succeed(None), found]
        self.rig.store.get_by_request = lambda client, key: answers.pop(0)  # type: ignore[assignment, return-value]
        client, wire = self.rig.client()
        client.dataReceived(
            b"GET /.well-known/svc-notary/v1/receipts/by-request/%b HTTP/1.1\r\nHost: api\r\n\r\n" % NONCE
        )
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 200 "))

    def test_somebody_elses_receipt_is_404(self) -> None:
        """A receipt is served only to its two parties; others cannot find out that it exists."""
        self.client.dataReceived(get("signRequest", NONCE))
        self.rig.respond(OK)
        found = self.successResultOf(self.rig.store.get_by_request(str(CALLER.spiffe_id), NONCE.decode()))
        assert found is not None
        for key in (b"by-request/" + NONCE, found.id.encode()):
            other, wire = self.rig.client(AUTHORITY.svid("/ns/web/sa/other"))
            other.dataReceived(b"GET /.well-known/svc-notary/v1/receipts/%b HTTP/1.1\r\nHost: api\r\n\r\n" % key)
            self.assertTrue(wire.take().startswith(b"HTTP/1.1 404 "), key)


class CredentialLifetimeTests(NotarizationTestCase):
    """Connections end before their credentials do."""

    def test_eighty_percent_asks_to_connect_anew(self) -> None:
        """After 80 percent of the credentials' lifetime a connection closes after the response."""
        self.rig.sweep(0.8 * 3600 - 1)
        client, wire = self.rig.client()
        self.rig.sweep(0.5)
        client.dataReceived(get("workload"))
        self.rig.respond(OK)
        self.assertNotIn(b"Connection: close", wire.take())
        self.rig.sweep(0.5)
        other, other_wire = self.rig.client()
        self.rig.sweep(0.5)
        other.dataReceived(get("workload"))
        self.rig.respond(OK)
        self.assertIn(b"Connection: close\r\n", other_wire.take())
        self.assertTrue(other_wire.disconnecting)

    def test_running_exchange_is_cut(self) -> None:
        """A minute before the credentials expire a running exchange is cut and recorded as such."""
        self.rig.clock.advance(3500)
        self.rig.context.tick = self.rig.clock.seconds()
        client, wire = self.rig.client()
        client.dataReceived(get("signRequest", NONCE))
        self.rig.sweep(60)
        self.assertTrue(wire.aborted)
        found = self.successResultOf(self.rig.store.get_by_request(str(CALLER.spiffe_id), NONCE.decode()))
        assert found is not None
        self.assertEqual(found.outcome, "credentials_expired")

    def test_reauthorization(self) -> None:
        """After a change of bundles exactly those connections close whose peer would now be refused."""
        other_root = AUTHORITY.rotated()
        self.rig.change(AUTHORITY.bundles())
        self.assertFalse(self.wire.disconnecting)
        self.rig.change(other_root.bundles())
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(len(self.rig.reporter.denials), 1)

    def test_reauthorization_by_a_clock_that_was_set_back(self) -> None:
        """If the clock was set back, a peer that was valid when it was accepted is not refused as not yet valid."""
        long_ago = self.rig.wall() - timedelta(days=400)
        self.rig.context.wall = lambda: long_ago
        (known,), (more,) = AUTHORITY.bundles(), AUTHORITY.rotated().bundles()
        self.rig.change(BundleSet.of(X509Bundle(known.trust_domain, known.anchors + more.anchors)))
        self.assertFalse(self.wire.disconnecting)
        self.rig.change(AUTHORITY.rotated().bundles())
        self.assertTrue(self.wire.disconnecting)

    def test_expired_peer(self) -> None:
        """A connection does not outlive the certificate with which it was opened."""
        _client, wire = self.rig.client(AUTHORITY.svid("/ns/web/sa/short", ttl=timedelta(seconds=30)))
        self.rig.sweep(30.0)
        self.assertFalse(wire.disconnecting)
        self.rig.sweep(1.5)
        self.assertTrue(wire.disconnecting)
