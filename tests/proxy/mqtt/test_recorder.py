"""Records of PUBLISH: admission, acknowledgement, repetition on the same and on another connection, and their end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.exchange import BodySummary, ExchangeOutcome
from svc.notary.publish import AckedBy
from svc.proxy.errors import NonceReplayed, NotaryRate, NotaryUnavailable, ProxyError, PublishRefused, RecordTooLarge
from svc.proxy.mqtt.recorder import (
    EXCHANGE_OCTETS,
    SUSPENDED_SECONDS,
    PublishExchange,
    PublishRecorder,
    PublishRecords,
    publish_nonce,
)
from svc.proxy.records.release_points import ReleasePoint
from svc.store.errors import StoreUnavailable
from svc.wire.mqtt import (
    Acknowledgement,
    PacketType,
    Properties,
    QoS,
    ReasonCode,
    Version,
)
from tests.peers.waiting import rounds
from tests.proxy.mqtt.records import (
    BOUND,
    CREDENTIALS,
    LOG,
    NONCES,
    OWNER,
    RENEWED,
    SIGN,
    RecordRig,
    begun,
    completed,
    puback,
    publish,
    pubrec,
)


class RecordTests(SynchronousTestCase):
    """One message and its record."""

    def setUp(self) -> None:
        """Create the records and one connection."""
        self.rig = RecordRig()
        self.recorder = self.rig.recorder()

    def test_each_qos(self) -> None:
        """The record says what was published and how it was acknowledged; QoS 0 has no acknowledgement."""
        for qos, response in ((0, None), (1, puback()), (2, pubrec())):
            rig = RecordRig()
            recorder = rig.recorder()
            exchange = begun(recorder, publish(cast(QoS, qos), content_type="text/plain"))
            self.assertEqual([], rig.stored())
            receipt_id = completed(recorder, exchange, response)
            (stored,), (claims,) = rig.stored(), rig.claims()
            self.assertEqual(stored.id, receipt_id)
            self.assertEqual(
                {
                    "packet": "PUBLISH",
                    "version": "5.0",
                    "clientId": "meter-1",
                    "topic": "meters/1/power",
                    "qos": qos,
                    "retain": False,
                    "packetId": 7 if qos else None,
                    "properties": [["content-type", "text/plain"]],
                },
                {name: value for name, value in claims["request"].items() if name != "body"},
            )
            answer = {"reasonCode": 0, "reasonName": "Success", "ackedBy": "upstream"}
            packet = {1: "PUBACK", 2: "PUBREC"}.get(qos)
            self.assertEqual({"packet": packet, **answer} if packet else None, claims["response"])
            self.assertEqual(("complete", "signRequest"), (claims["outcome"], claims["level"]))
            self.assertEqual((1.0, 0.0), self.records_of(rig))
            self.assertEqual(1, rig.metrics.level["signRequest"].value)
            self.assertEqual(0, rig.notarizer.in_flight)

    def records_of(self, rig: RecordRig) -> tuple[float, float]:
        """Records written and failed, as counted."""
        return rig.metrics.records_written.value, rig.metrics.records_failed.value

    def test_log_request(self) -> None:
        """At the level logRequest the record has no signature, and no identifier is given."""
        exchange = begun(self.recorder, publish(), level=LOG)
        self.assertIsNone(completed(self.recorder, exchange, puback(), AckedBy.MIDDLEWARE))
        (stored,), (claims,) = self.rig.stored(), self.rig.claims()
        self.assertFalse(stored.signed)
        self.assertEqual("middleware", claims["response"]["ackedBy"])
        self.assertEqual(1, self.rig.metrics.level["logRequest"].value)

    def test_refused_by_broker(self) -> None:
        """A message that the broker refuses has a record with the reason; a PUBREC that refuses ends the exchange."""
        receipt_id = completed(self.recorder, begun(self.recorder, publish(2)), pubrec(code=0x87))
        (claims,) = self.rig.claims()
        self.assertEqual((0x87, "Not authorized"), (claims["response"]["reasonCode"], claims["response"]["reasonName"]))
        self.assertEqual(0, self.recorder.in_flight)
        again = completed(self.recorder, begun(self.recorder, publish(2, dup=True)), pubrec())
        self.assertNotEqual(receipt_id, again)

    def test_durable_before_done(self) -> None:
        """Completion is reported when the record is durable, not before."""
        results: list[Any] = []
        exchange = begun(self.recorder, publish())
        self.rig.store.hold = True
        assert isinstance(exchange, PublishExchange)
        self.recorder.complete(exchange, puback(), AckedBy.UPSTREAM, results.append)
        self.assertEqual([], results)
        self.rig.store.release()
        self.assertEqual([self.rig.stored()[0].id], results)
        self.assertEqual(0, self.recorder.in_flight)

    def test_store_fails(self) -> None:
        """A record that is not written is a failure, counted and reported; the repetition is another exchange."""
        exchange = begun(self.recorder, publish(), NONCES[0])
        self.rig.store.failure = StoreUnavailable(path="notary.db", detail="disk full")
        result = completed(self.recorder, exchange, puback())
        assert isinstance(result, Failure)
        self.assertIsInstance(result.value, NotaryUnavailable)
        self.assertEqual((0.0, 1.0), self.records_of(self.rig))
        ((reason, peer, detail),) = self.rig.reporter.failed
        self.assertEqual(("notary_unavailable", OWNER), (reason, peer))
        self.assertIn("could not be committed", detail)
        self.rig.store.failure = None
        again = completed(self.recorder, begun(self.recorder, publish(dup=True), NONCES[0]), puback())
        self.assertEqual(self.rig.stored()[0].id, again)

    def test_late(self) -> None:
        """A record that is late acknowledges nothing and says so; the repetition has the nonce and its own record."""
        for level, response in ((SIGN, puback()), (LOG, puback()), (SIGN, pubrec())):
            rig = RecordRig()
            recorder = rig.recorder()
            rig.store.hold = True
            qos: QoS = 1 if response.type is PacketType.PUBACK else 2
            results: list[Any] = []
            exchange = begun(recorder, publish(qos), NONCES[0], level)
            assert isinstance(exchange, PublishExchange)
            recorder.complete(exchange, response, AckedBy.UPSTREAM, results.append)
            rig.store.expire()
            self.assertIsInstance(results[0].value, NotaryUnavailable)
            self.assertEqual((0, 1), (recorder.in_flight, len(results)))
            recorder.complete(exchange, response, AckedBy.UPSTREAM, results.append)
            self.assertIsInstance(results[1].value, NotaryUnavailable)
            again = begun(recorder, publish(qos, dup=True), NONCES[0], level)
            assert isinstance(again, PublishExchange)
            recorder.complete(again, response, AckedBy.UPSTREAM, results.append)
            rig.store.release()
            self.assertEqual(
                [("complete", True), ("server_aborted", False)],
                sorted((each["outcome"], each["response"] is not None) for each in rig.claims()),
            )
            [acknowledged] = [each for each in rig.stored() if each.nonce is not None]
            self.assertEqual("complete", acknowledged.outcome)
            self.assertEqual([acknowledged.id if level is SIGN else None], results[2:])
            self.assertEqual({None, 0}, {each.code for each in rig.reporter.messages})
            self.assertEqual(
                ((2.0, 1.0), 0, 1), (self.records_of(rig), rig.notarizer.in_flight, len(rig.reporter.failed))
            )

    def test_late_without_acknowledgement(self) -> None:
        """With QoS 0 nothing is withheld: the record is written, however late."""
        self.rig.store.hold = True
        results: list[Any] = []
        exchange = begun(self.recorder, publish(0))
        assert isinstance(exchange, PublishExchange)
        self.recorder.complete(exchange, None, AckedBy.UPSTREAM, results.append)
        self.rig.store.expire()
        self.assertIsInstance(results[0].value, NotaryUnavailable)
        self.rig.store.release()
        self.assertEqual(["complete"], [each["outcome"] for each in self.rig.claims()])

    def test_refusals(self) -> None:
        """Why a message is not admitted, with the reason code of its acknowledgement; nothing is in flight then."""
        rig = RecordRig(burst=1)
        recorder = rig.recorder()
        recorder.abandon(cast(PublishExchange, begun(recorder, publish())))
        refusals: list[tuple[type[ProxyError], ReasonCode, object]] = [
            (NotaryRate, ReasonCode.QUOTA_EXCEEDED, begun(recorder, publish())),
        ]
        self.rig.store.writable = False
        refused = begun(self.recorder, publish())
        refusals.append((NotaryUnavailable, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, refused))
        self.assertEqual((0.0, 1.0), self.records_of(self.rig))
        self.rig.store.writable = True
        completed(self.recorder, begun(self.recorder, publish(), NONCES[0]), puback())
        refused = begun(self.recorder, publish(packet_id=8), NONCES[0])
        refusals.append((NonceReplayed, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, refused))
        for kind, code, error in refusals:
            self.assertIsInstance(error, kind)
            assert isinstance(error, ProxyError)
            self.assertEqual(code, error.mqtt_reason)
        self.assertEqual((0, 0), (rig.notarizer.in_flight, self.rig.notarizer.in_flight))
        self.assertEqual(["notary_unavailable", "replayed"], [each[0] for each in self.rig.reporter.failed])

    def test_held_back(self) -> None:
        """At the rate of its client a message is admitted later, and not at all when its connection has ended."""
        rig = RecordRig(burst=1, longest=5000)
        recorder, results = rig.recorder(), list[PublishExchange | ProxyError]()
        begun(recorder, publish())
        recorder.begin(publish(0), SIGN, None, results.append)
        self.assertEqual([], results)
        rig.clock.advance(1000)
        self.assertIsInstance(results.pop(), PublishExchange)
        recorder.begin(publish(2, 9), SIGN, None, results.append)
        recorder.disconnected(ExchangeOutcome.CLIENT_ABORTED)
        self.assertEqual(([], []), (results, rig.clock.getDelayedCalls()))

    def test_bounds(self) -> None:
        """Topic with properties, their number and the client identifier are recorded up to their limits."""
        rest = len("meters/1/power") + 5 + len("k")
        largest = publish(user=(("k", "v" * (BOUND.head - rest)),))
        larger = publish(user=(("k", "v" * (BOUND.head - rest + 1)),))
        most = publish(packet_id=8, user=(("k", ""),) * BOUND.properties)
        more = publish(packet_id=8, user=(("k", ""),) * (BOUND.properties + 1))
        reserved = publish(packet_id=9, user=(("svc-x", "y" * 2**15), ("k", "")))
        for packet in (largest, most, reserved):
            self.assertIsInstance(begun(self.recorder, packet), PublishExchange)
        for packet in (larger, more):
            self.assertIsInstance(begun(self.recorder, packet), RecordTooLarge)
        named = self.rig.recorder(client_id="é" * (BOUND.client_id // 2))
        self.assertIsInstance(begun(named, publish()), PublishExchange)
        self.assertIsInstance(begun(self.rig.recorder(client_id="x" * 65), publish()), RecordTooLarge)

    def test_long_chains(self) -> None:
        """Where the chains in use take more room than usual, each message is compared with what they leave."""
        rig = RecordRig()
        rig.records.bound = replace(BOUND, head=70_000)
        self.assertTrue(rig.records.bound.fits)
        recorder = rig.recorder()
        CREDENTIALS.__dict__["signature_octets"] = 215_000
        self.addCleanup(CREDENTIALS.__dict__.pop, "signature_octets")
        self.assertIsInstance(begun(recorder, publish()), PublishExchange)
        error = begun(recorder, publish(packet_id=8, user=(("k", "v" * 15_000),)))
        assert isinstance(error, RecordTooLarge)
        self.assertIn("215000", error.hint)

    def test_abandoned(self) -> None:
        """A message of which nothing was forwarded leaves no record, and its nonce is free again."""
        exchange = begun(self.recorder, publish(), NONCES[0])
        assert isinstance(exchange, PublishExchange)
        self.recorder.abandon(exchange)
        self.recorder.abandon(exchange)
        self.assertEqual((0, 0), (self.recorder.in_flight, self.rig.notarizer.in_flight))
        self.assertIsInstance(begun(self.recorder, publish(packet_id=8), NONCES[0]), PublishExchange)
        self.assertEqual([], self.rig.stored())

    def test_repetition_abandoned(self) -> None:
        """A message that was forwarded before leaves its record, though its repetition is not forwarded."""
        begun(self.recorder, publish())
        self.recorder.disconnected(ExchangeOutcome.CLIENT_ABORTED)
        recorder = self.rig.recorder()
        exchange = begun(recorder, publish(dup=True))
        assert isinstance(exchange, PublishExchange)
        recorder.abandon(exchange)
        self.assertEqual(["client_aborted"], [each["outcome"] for each in self.rig.claims()])
        self.assertEqual((0, 0), (recorder.in_flight, self.rig.notarizer.in_flight))

    def test_credentials(self) -> None:
        """Without credentials that serve the notary, or with such that have ended, no message is admitted."""
        for found in (None, CREDENTIALS):
            recorder = self.rig.recorder(credentials=lambda found=found: found)
            if found is not None:
                self.rig.clock.advance((CREDENTIALS.close_at - self.rig.now()).total_seconds())
            self.assertIsInstance(begun(recorder, publish()), NotaryUnavailable)
        self.assertEqual((0.0, 2.0), self.records_of(self.rig))
        self.rig.clock.rightNow -= 1
        self.assertIsInstance(begun(recorder, publish()), PublishExchange)

    def test_open_exchanges(self) -> None:
        """Beyond the limit the oldest message that waits for PUBREL is forgotten, and none without record."""
        recorder = self.rig.recorder(limit=3)
        first = [begun(recorder, publish(2, packet_id)) for packet_id in (1, 2, 3)]
        receipts = [completed(recorder, first[number], pubrec(number + 1)) for number in (1, 2)]
        begun(recorder, publish(2, 4))
        self.assertEqual(3, recorder.in_flight)
        self.assertIs(first[0], begun(recorder, publish(2, 1, dup=True)))
        self.assertEqual(receipts[1], completed(recorder, begun(recorder, publish(2, 3, dup=True)), pubrec(3)))
        self.assertNotIn(completed(recorder, begun(recorder, publish(2, 2, dup=True)), pubrec(2)), receipts)

    def test_reported(self) -> None:
        """Each record is reported once where records are audited, with what became of it."""
        completed(self.recorder, begun(self.recorder, publish()), puback(code=0x10))
        self.rig.store.failure = StoreUnavailable(path="notary.db", what="disk full")
        begun(self.recorder, publish(2), level=LOG)
        self.recorder.disconnected(ExchangeOutcome.SERVER_ABORTED)
        self.rig.records.close()
        written, lost = self.rig.reporter.messages
        self.assertEqual((self.rig.stored()[0].id, 0x10, 1), (written.receipt_id, written.code, written.qos))
        self.assertEqual((OWNER, "meters/1/power", 4), (written.peer, written.topic, written.octets))
        self.assertEqual((None, None, LOG), (lost.receipt_id, lost.code, lost.level))
        self.assertEqual(ExchangeOutcome.SERVER_ABORTED, lost.outcome)
        self.rig.store.failure = None
        self.rig.reporter.recorded_exchanges = False
        completed(other := self.rig.recorder(), begun(other, publish()), puback())
        self.assertEqual(2, len(self.rig.reporter.messages))

    def test_handed_on(self) -> None:
        """Signed records are handed on when they are durable, after those that wait; others are not."""
        order: list[object] = []
        records = PublishRecords(
            self.rig.notarizer,
            self.rig.metrics,
            cast(Any, self.rig.reporter),
            BOUND,
            wall=self.rig.now,
            seconds=self.rig.clock.seconds,
            stored=lambda record: order.append(record.id),
            released=order.append,
        )
        self.rig.records = records
        recorder = self.rig.recorder()
        for level in (SIGN, LOG):
            exchange = begun(recorder, publish(), level=level)
            assert isinstance(exchange, PublishExchange)
            recorder.complete(exchange, puback(), AckedBy.UPSTREAM, lambda _result: order.append("released"))
        committed = ReleasePoint.RECEIPT_COMMITTED
        signed = next(each.id for each in self.rig.stored() if each.level == "signRequest")
        self.assertEqual([committed, "released", signed, committed, "released"], order)

    def test_clock_set_back(self) -> None:
        """Nothing ends before it began, whatever the clock says."""
        exchange = begun(self.recorder, publish())
        self.rig.clock.rightNow -= 60
        completed(self.recorder, exchange, puback())
        (claims,) = self.rig.claims()
        self.assertEqual(claims["time"]["received"], claims["time"]["completed"])


class NonceTests(SynchronousTestCase):
    """The user property ``svc-nonce``."""

    def test_syntax(self) -> None:
        """One of 22 characters, or none."""
        self.assertIsNone(publish_nonce(Properties()))
        self.assertIsNone(publish_nonce(Properties(user=(("Svc-Nonce", "x"), ("k", "v")))))
        self.assertEqual(NONCES[1], publish_nonce(Properties(user=(("k", "v"), ("svc-nonce", NONCES[1])))))
        for values in (("",), (NONCES[1][:-1],), (NONCES[1] + "A",), (NONCES[1][:-1] + "B",), (NONCES[1], NONCES[1])):
            error = self.assertRaises(
                PublishRefused, publish_nonce, Properties(user=tuple(("svc-nonce", each) for each in values))
            )
            self.assertEqual("nonce_malformed", error.reason)

    def test_recorded_under_nonce(self) -> None:
        """The record is found by the client's nonce, which is in the payload and not among the properties."""
        rig = RecordRig()
        recorder = rig.recorder()
        packet = publish(user=(("svc-nonce", NONCES[0]), ("k", "v")))
        receipt_id = completed(recorder, begun(recorder, packet, publish_nonce(packet.properties)), puback())
        found: list[Any] = []
        rig.store.get_by_request(OWNER, NONCES[0]).addCallback(found.append)
        self.assertEqual(receipt_id, found[0].id)
        (claims,) = rig.claims()
        self.assertEqual(
            (NONCES[0], [["user-property", ["k", "v"]]]), (claims["nonce"], claims["request"]["properties"])
        )

    def test_late_admission(self) -> None:
        """A client that leaves during the look-up of its nonce is not called back, and leaves nothing behind."""
        rig = RecordRig()
        recorder = rig.recorder()
        later: list[Deferred[bool]] = []
        rig.store.answers = later
        results: list[Any] = []
        recorder.begin(publish(), SIGN, NONCES[0], results.append)
        self.assertEqual([], results)
        recorder.disconnected(ExchangeOutcome.CLIENT_ABORTED)
        later[0].callback(True)
        self.assertEqual(([], 0, []), (results, rig.notarizer.in_flight, rig.stored()))


class RepetitionTests(SynchronousTestCase):
    """PUBLISH with DUP."""

    def setUp(self) -> None:
        """Create the records and one connection."""
        self.rig = RecordRig()
        self.recorder = self.rig.recorder()

    def reconnected(self, **changes: Any) -> PublishRecorder:
        """Lose the connection; return the recorder of the next one."""
        self.recorder.disconnected(ExchangeOutcome.CLIENT_ABORTED)
        return self.rig.recorder(**changes)

    def test_qos_2_until_release(self) -> None:
        """Each repetition before PUBREL yields the same receipt, on this connection and on the next; none after it."""
        first = completed(self.recorder, begun(self.recorder, publish(2)), pubrec())
        again = begun(self.recorder, publish(2, dup=True))
        self.assertEqual(first, completed(self.recorder, again, pubrec()))
        other = self.reconnected()
        self.assertEqual(first, completed(other, begun(other, publish(2, dup=True)), pubrec()))
        self.assertEqual(1, len(self.rig.stored()))
        other.release(7)
        self.assertNotEqual(first, completed(other, begun(other, publish(2, dup=True)), pubrec()))
        self.assertEqual(2, len(self.rig.stored()))

    def test_release_on_next_connection(self) -> None:
        """PUBREL on the next connection ends the exchange."""
        completed(self.recorder, begun(self.recorder, publish(2)), pubrec())
        other = self.reconnected()
        other.release(7)
        self.assertEqual((0, 1), (self.rig.records.suspended, len(self.rig.stored())))

    def test_within_connection(self) -> None:
        """A repetition with QoS 1 before PUBACK is the same exchange, and both get the one receipt."""
        self.rig.store.hold = True
        exchange = begun(self.recorder, publish())
        again = begun(self.recorder, publish(dup=True))
        self.assertIs(exchange, again)
        results: list[Any] = []
        for each in (exchange, again):
            assert isinstance(each, PublishExchange)
            self.recorder.complete(each, puback(), AckedBy.UPSTREAM, results.append)
        self.rig.store.release()
        self.assertEqual([self.rig.stored()[0].id] * 2, results)
        later = begun(self.recorder, publish(dup=True))
        self.assertIsNot(exchange, later)

    def test_not_acknowledged(self) -> None:
        """A message that was not acknowledged waits for its repetition; the receipt is about the new connection."""
        begun(self.recorder, publish(1), NONCES[0])
        other = self.reconnected(credentials=lambda: RENEWED, tls=None)
        self.assertEqual((1, 1), (self.rig.records.suspended, self.rig.notarizer.in_flight))
        self.rig.clock.advance(SUSPENDED_SECONDS - 1)
        self.rig.records.sweep(self.rig.clock.seconds())
        completed(other, begun(other, publish(1, dup=True), NONCES[0]), puback())
        (stored,), (claims,) = self.rig.stored(), self.rig.claims()
        self.assertEqual((NONCES[0], RENEWED.statement.id), (stored.nonce, stored.statement_id))
        self.assertEqual(("complete", None), (claims["outcome"], claims["tls"]))
        self.assertEqual((0, 0), (self.rig.records.suspended, self.rig.notarizer.in_flight))

    def test_never_repeated(self) -> None:
        """A message that is not repeated is recorded with the outcome of its connection and the time of its end."""
        begun(self.recorder, publish(2), NONCES[0])
        self.rig.clock.advance(5)
        self.recorder.disconnected(ExchangeOutcome.SERVER_ABORTED)
        self.rig.clock.advance(SUSPENDED_SECONDS)
        self.rig.records.sweep(self.rig.clock.seconds())
        (claims,) = self.rig.claims()
        self.assertEqual(("server_aborted", None), (claims["outcome"], claims["response"]))
        self.assertEqual("2026-11-21T12:00:05.000000Z", claims["time"]["completed"])
        self.assertEqual(0, self.rig.notarizer.in_flight)
        other = self.rig.recorder()
        self.assertIsInstance(begun(other, publish(2, dup=True), NONCES[0]), NonceReplayed)

    def test_close(self) -> None:
        """The end of the process records what still waits."""
        begun(self.recorder, publish(2))
        begun(self.recorder, publish(1, 8))
        self.recorder.disconnected(ExchangeOutcome.CLIENT_ABORTED)
        self.rig.records.close()
        self.assertEqual(["client_aborted"] * 2, [each["outcome"] for each in self.rig.claims()])
        self.assertEqual((0, 0), (self.rig.records.suspended, self.rig.notarizer.in_flight))

    def test_left_after_close(self) -> None:
        """Connections may end after the listener is closed: what they leave is recorded at once."""
        begun(self.recorder, publish(2))
        self.rig.records.close()
        self.recorder.disconnected(ExchangeOutcome.SERVER_ABORTED)
        self.assertEqual(["server_aborted"], [each["outcome"] for each in self.rig.claims()])
        self.assertEqual((0, 0), (self.rig.records.suspended, self.rig.notarizer.in_flight))

    def test_room(self) -> None:
        """What waits is bounded by octets: the oldest exchange is recorded and forgotten."""
        octets = EXCHANGE_OCTETS + len("meters/1/power")
        self.rig = RecordRig(max_suspended_octets=2 * octets)
        self.recorder = self.rig.recorder()
        for packet_id in (1, 2):
            begun(self.recorder, publish(1, packet_id))
        other = self.reconnected()
        self.assertEqual((2, 0), (self.rig.records.suspended, len(self.rig.stored())))
        begun(other, publish(1, 3))
        other.disconnected(ExchangeOutcome.CLIENT_ABORTED)
        self.assertEqual(2, self.rig.records.suspended)
        (claims,) = self.rig.claims()
        self.assertEqual(1, claims["request"]["packetId"])

    def test_other_message(self) -> None:
        """Another message with the same packet identifier is no repetition: what was under way is recorded."""
        for changed, nonce in (
            (publish(2), NONCES[0]),
            (publish(2, dup=True, body=b"other"), NONCES[0]),
            (publish(2, dup=True, content_type="x"), NONCES[0]),
            (publish(1, dup=True), NONCES[0]),
            (publish(2, dup=True), None),
        ):
            for reconnect in (False, True):
                self.setUp()
                first = begun(self.recorder, publish(2), NONCES[0])
                recorder = self.reconnected() if reconnect else self.recorder
                self.assertIsNot(first, begun(recorder, changed, nonce), changed)
                (claims,) = self.rig.claims()
                self.assertEqual("client_aborted", claims["outcome"])

    def test_stronger_level(self) -> None:
        """A repetition for which a signed record is demanded is not part of an exchange without one."""
        for nonce in (None, NONCES[0]):
            self.setUp()
            first = begun(self.recorder, publish(2), nonce, LOG)
            self.assertIs(first, begun(self.recorder, publish(2, dup=True), nonce, LOG))
            other = self.reconnected()
            again = begun(other, publish(2, dup=True), nonce)
            if nonce is not None:
                # The record of the first exchange has the nonce.
                self.assertIsInstance(again, NonceReplayed)
                continue
            self.assertIsNotNone(completed(other, again, pubrec()))
            self.assertEqual({"logRequest", "signRequest"}, {each.level for each in self.rig.stored()})
        self.setUp()
        completed(self.recorder, begun(self.recorder, publish(1), NONCES[0], LOG), puback())
        self.assertIsInstance(begun(self.recorder, publish(1, dup=True), NONCES[0]), NonceReplayed)
        found = begun(self.recorder, publish(1, dup=True), NONCES[0], LOG)
        self.assertIsNone(completed(self.recorder, found, puback()))

    def test_other_client(self) -> None:
        """Exchanges of another identity, or of another client identifier, are not found."""
        for changes in ({"owner": "spiffe://prod.example/other"}, {"client_id": "meter-2"}):
            self.setUp()
            first = begun(self.recorder, publish(2))
            other = self.reconnected(**changes)
            self.assertIsNot(first, begun(other, publish(2, dup=True)))
            self.assertEqual(1, self.rig.records.suspended)

    def test_no_identifier(self) -> None:
        """What a client without identifier leaves is recorded at once."""
        self.recorder = self.rig.recorder(version=Version.V311, client_id="")
        begun(self.recorder, publish(1))
        self.recorder.disconnected(ExchangeOutcome.CLIENT_ABORTED)
        (claims,) = self.rig.claims()
        self.assertEqual(("client_aborted", "3.1.1"), (claims["outcome"], claims["request"]["version"]))
        self.assertEqual(0, self.rig.records.suspended)

    def test_left_during_commit(self) -> None:
        """A client that leaves during the commit gets the same receipt for its repetition, with QoS 1 too."""
        for qos, response in ((1, puback()), (2, pubrec())):
            self.setUp()
            self.rig.store.hold = True
            results: list[Any] = []
            exchange = begun(self.recorder, publish(cast(QoS, qos)))
            assert isinstance(exchange, PublishExchange)
            self.recorder.complete(exchange, response, AckedBy.UPSTREAM, results.append)
            other = self.reconnected()
            self.rig.store.release()
            self.assertEqual([], results)
            again = completed(other, begun(other, publish(cast(QoS, qos), dup=True)), response)
            self.assertEqual([again], [each.id for each in self.rig.stored()])

    def test_repeated_after_failure(self) -> None:
        """A message whose record failed after its client left is another exchange when it is repeated."""
        self.rig.store.hold = True
        exchange = begun(self.recorder, publish(2))
        assert isinstance(exchange, PublishExchange)
        self.rig.store.failure = StoreUnavailable(path="notary.db", detail="disk full")
        other = self.reconnected()
        self.recorder.complete(exchange, pubrec(), AckedBy.UPSTREAM, lambda _result: None)
        self.rig.store.failure, self.rig.store.hold = None, False
        self.assertTrue(exchange.over)
        again = begun(other, publish(2, dup=True))
        self.assertIsNot(exchange, again)
        receipt_id = completed(other, again, pubrec())
        self.assertEqual([receipt_id], [each.id for each in self.rig.stored()])

    def test_failed_before_completion(self) -> None:
        """A message that was released before its PUBREC, and whose record failed then, is not acknowledged."""
        exchange = begun(self.recorder, publish(2))
        assert isinstance(exchange, PublishExchange)
        self.rig.store.failure = StoreUnavailable(path="notary.db", detail="disk full")
        self.recorder.release(exchange.message.packet_id)
        results: list[Any] = []
        self.recorder.complete(exchange, pubrec(), AckedBy.UPSTREAM, results.append)
        self.assertIsInstance(results[0].value, NotaryUnavailable)
        self.assertEqual((1, 0), (len(results), self.recorder.in_flight))

    def test_failed_after_disconnection(self) -> None:
        """An exchange whose record failed after its client left is over."""
        self.rig.store.hold = True
        exchange = begun(self.recorder, publish(2))
        assert isinstance(exchange, PublishExchange)
        self.recorder.complete(exchange, pubrec(), AckedBy.UPSTREAM, lambda _result: None)
        other = self.reconnected()
        self.rig.store.close()
        self.rig.clock.advance(SUSPENDED_SECONDS)
        self.rig.records.sweep(self.rig.clock.seconds())
        self.assertEqual(0, self.rig.records.suspended)
        self.assertIsInstance(begun(other, publish(2, dup=True)), NotaryUnavailable)

    def test_after_crash(self) -> None:
        """A repetition whose nonce has a record of the same message yields its receipt, in another process too."""
        packet = publish(1, user=(("authorization", "Bearer x"), ("k", "v")), correlation_data=b"\x00\xff")
        first = completed(self.recorder, begun(self.recorder, packet, NONCES[0]), puback())
        restarted = PublishRecords(
            self.rig.notarizer,
            self.rig.metrics,
            cast(Any, self.rig.reporter),
            BOUND,
            wall=self.rig.now,
            seconds=self.rig.clock.seconds,
        )
        other = self.rig.recorder()
        other._records = restarted
        packet.dup = True
        again = begun(other, packet, NONCES[0])
        self.assertEqual(first, completed(other, again, puback()))
        self.assertEqual(1, len(self.rig.stored()))
        packet.payload = b"other"
        self.assertIsInstance(begun(other, packet, NONCES[0]), NonceReplayed)
        packet.payload, packet.properties = b"21.5", Properties(user=(("authorization", "Bearer y"), ("k", "v")))
        self.assertIsInstance(begun(other, packet, NONCES[0]), NonceReplayed)
        self.rig.store.lookup_failure = StoreUnavailable(path="notary.db", detail="gone")
        self.assertIsInstance(begun(other, packet, NONCES[0]), NotaryUnavailable)


class AnyOrder(RuleBasedStateMachine):
    """Whatever a client publishes, repeats, releases and however it reconnects, its records stay consistent."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = RecordRig(max_suspended_octets=3 * (EXCHANGE_OCTETS + 32))
        self.rig.store.hold = True
        self.recorder = self.rig.recorder()
        self.exchanges: list[PublishExchange] = []

    @rule(
        packet_id=st.integers(1, 3),
        qos=st.sampled_from([0, 1, 2]),
        dup=st.booleans(),
        body=st.sampled_from([b"a", b"b"]),
    )
    def publishes(self, packet_id: int, qos: QoS, dup: bool, body: bytes) -> None:
        """A PUBLISH arrives and is admitted."""
        exchange = begun(self.recorder, publish(qos, packet_id, dup=dup, body=body))
        assert isinstance(exchange, PublishExchange)
        assert exchange.message.body == BodySummary.of(body)
        self.exchanges.append(exchange)

    @precondition(lambda self: self.exchanges)
    @rule(data=st.data(), code=st.sampled_from([0, 0x10, 0x87]))
    def acknowledges(self, data: st.DataObject, code: int) -> None:
        """The broker acknowledges one of the messages of this connection, perhaps twice."""
        exchange = data.draw(st.sampled_from(self.exchanges))
        message = exchange.message
        response = None
        if message.qos:
            kind = PacketType.PUBACK if message.qos == 1 else PacketType.PUBREC
            response = Acknowledgement(kind, message.packet_id, code)  # type: ignore[arg-type]
        if exchange.reservation is not None or exchange.recorded:
            self.recorder.complete(exchange, response, AckedBy.UPSTREAM, self._completed)

    def _completed(self, result: str | Failure | None) -> None:
        assert isinstance(result, str) and result in {each.id for each in self.rig.stored()}

    @rule()
    def commits(self) -> None:
        """The disk is done."""
        self.rig.store.release()

    @rule(packet_id=st.integers(1, 3))
    def releases(self, packet_id: int) -> None:
        """PUBREL arrives."""
        self.recorder.release(packet_id)

    @rule()
    def reconnects(self) -> None:
        """The connection ends, and the client connects again."""
        for exchange in self.exchanges:
            if not exchange.message.qos and exchange.reservation is not None:
                self.recorder.abandon(exchange)
        self.exchanges = []
        self.recorder.disconnected(ExchangeOutcome.CLIENT_ABORTED)
        self.recorder = self.rig.recorder()

    @rule(seconds=st.sampled_from([1.0, SUSPENDED_SECONDS]))
    def waits(self, seconds: float) -> None:
        """Time passes."""
        self.rig.clock.advance(seconds)
        self.rig.records.sweep(self.rig.clock.seconds())

    @invariant()
    def bounded(self) -> None:
        """No more waits than may."""
        assert self.rig.records.suspended <= 3
        assert self.recorder.in_flight <= 3

    def teardown(self) -> None:
        """In the end nothing is in flight, and every record has the shape of the format."""
        self.reconnects()
        self.rig.records.close()
        self.rig.store.release()
        assert self.rig.notarizer.in_flight == 0
        self.rig.claims()


class AnyOrderTests(SynchronousTestCase):
    """Any order of events."""

    def test_any_order(self) -> None:
        """Whatever a client publishes, repeats, releases and however it reconnects."""
        run_state_machine_as_test(
            AnyOrder, settings=settings(max_examples=rounds(40, 2000), stateful_step_count=25, deadline=None)
        )
