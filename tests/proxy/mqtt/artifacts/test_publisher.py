"""Statements and receipts on a broker in memory."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.artifact import parse_receipt
from svc.notary.receipt import sign_receipt
from svc.pacing.turns import Turns
from svc.proxy.mqtt.artifacts.connection import CLOSE_SECONDS, MIN_SILENCE, OPENING_SECONDS
from svc.proxy.mqtt.artifacts.publisher import (
    LONGEST_PAUSE,
    MAX_SENT,
    ArtifactPublisher,
    ArtifactPublishers,
    client_id_of,
)
from svc.proxy.mqtt.artifacts.session import KEEP_ALIVE, MAX_IN_FLIGHT
from svc.proxy.mqtt.artifacts.settings import ArtifactSettings
from svc.store.records import StoredReceipt
from svc.wire.mqtt import Connack, Disconnect, Properties, Publish, ReasonCode, Version, encode
from tests.notary.artifacts import Fixture
from tests.proxy.mqtt.broker import START, SUBJECT, ModelBroker, RecordingObserver, limits, statement_of

STATEMENT = "$.svc/workload/S"


class Publication:
    """A publisher at a broker in memory."""

    def __init__(self, broker: dict[str, Any] | None = None, **settings: Any) -> None:
        self.clock = Clock()
        self.broker = ModelBroker(self.clock, **(broker or {}))
        self.observer = RecordingObserver()
        self.publisher = ArtifactPublisher(
            ArtifactSettings(**settings),
            listener="iot",
            upstream="127.0.0.1:1883",
            endpoint=self.broker,
            clock=self.clock,
            turns=Turns(self.clock),
            wall=self.wall,
            random=lambda count: bytes(range(count)),
            jitter=lambda: 1.0,
            observer=self.observer,
        )

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.clock.seconds())

    def start(self, *names: str) -> Publication:
        """Start, and publish statements that end after an hour."""
        self.publisher.start()
        self.publisher.statements([statement_of(each) for each in names or ("S",)])
        self.broker.settle()
        return self

    def advance(self, seconds: float) -> None:
        """Let time pass, in steps that let the broker answer."""
        until = self.clock.seconds() + seconds
        while self.clock.seconds() < until:
            self.clock.advance(min(1.0, until - self.clock.seconds()))
            self.broker.settle()

    def receipts(self, *names: str, batched: bool = False) -> None:
        """Give receipts to the publisher."""
        for name in names:
            self.publisher.receipt(name, b"receipt " + name.encode(), batched=batched)
        self.broker.settle()


class PublicationCase(SynchronousTestCase):
    """Ends every publication, after which no timer is left."""

    def publication(self, broker: dict[str, Any] | None = None, **settings: Any) -> Publication:
        made = Publication(broker, **settings)
        self.addCleanup(self.ended, made)
        return made

    def ended(self, made: Publication) -> None:
        done = made.publisher.stop()
        made.broker.settle()
        made.advance(2 * CLOSE_SECONDS)
        self.successResultOf(done)
        self.assertEqual([], made.clock.getDelayedCalls())


class MessageTests(PublicationCase):
    """What is published, and how."""

    def test_statement(self) -> None:
        """A statement is retained until its end, with the media type of an envelope."""
        made = self.publication().start()
        [message] = made.broker.published
        self.assertEqual((STATEMENT, 1, True), (message.topic, message.qos, message.retain))
        self.assertEqual(statement_of("S").envelope.serialize(), message.payload)
        expected = Properties(content_type="application/jose+json", payload_format=1, message_expiry=3600)
        self.assertEqual(expected, message.properties)
        self.assertEqual((["workload"], [Version.V5]), (made.observer.taken, made.observer.began))
        self.assertTrue(made.publisher.status.publishing)

    def test_receipt(self) -> None:
        """A receipt is not retained; the media type says whether it is batched."""
        made = self.publication().start()
        made.receipts("R1")
        made.receipts("R2", batched=True)
        first, second = made.broker.published[1:]
        self.assertEqual(
            ("$.svc/receipt/R1", b"receipt R1", 1, False), (first.topic, first.payload, first.qos, first.retain)
        )
        self.assertEqual(Properties(content_type="application/jose+json", payload_format=1), first.properties)
        batched = Properties(content_type="application/vnd.svc.receipt+json", payload_format=1)
        self.assertEqual(("$.svc/receipt/R2", batched), (second.topic, second.properties))
        self.assertEqual(["workload", "receipt", "receipt"], made.observer.taken)

    def test_stored(self) -> None:
        """A record is published as its receipt is served, alone or batched, without salts; an unsigned one is not."""
        made, found = self.publication().start(), Fixture()
        draft = found.draft()
        envelope, batch = sign_receipt(draft, found.credentials.signers).serialize(), found.batched()
        base: dict[str, Any] = {
            **dict.fromkeys(("client", "server", "jti", "outcome"), "x"),
            "id": draft.id,
            "nonce": None,
            "issued_at": 1,
            "payload": draft.payload,
            "disclosures": draft.disclosures,
        }
        self.assertTrue(draft.disclosures)
        for record in (
            StoredReceipt(level="logRequest", envelope=None, **base),
            StoredReceipt(level="signRequest", envelope=envelope, **base),
            StoredReceipt(
                level="signRequest",
                envelope=None,
                batch=batch.batch.serialize(),
                inclusion=batch.inclusion.to_octets(),
                **base,
            ),
        ):
            made.publisher.stored(record)
        made.broker.settle()
        alone, batched = made.broker.published[1:]
        self.assertEqual(envelope, alone.payload)
        self.assertEqual(dataclasses.replace(batch, extra={}), parse_receipt(batched.payload))
        self.assertEqual("application/vnd.svc.receipt+json", batched.properties.content_type)

    def test_prefix(self) -> None:
        """All topics are below the configured prefix."""
        made = self.publication(prefix="plant/notary/").start()
        made.receipts("R")
        self.assertEqual(["plant/notary/workload/S", "plant/notary/receipt/R"], made.broker.topics)

    def test_connect(self) -> None:
        """The session starts clean under an identifier of SPIFFE ID and listener."""
        [connect] = self.publication().start().broker.connects
        self.assertTrue(connect.clean_start)
        self.assertEqual((None, None), (connect.username, connect.password))
        self.assertEqual(client_id_of(SUBJECT, "iot"), connect.client_id)
        self.assertRegex(connect.client_id, r"^svc-artifacts-[0-9a-f]{9}$")
        others = {client_id_of(SUBJECT, "other"), client_id_of(SUBJECT + "2", "iot"), connect.client_id}
        self.assertEqual(3, len(others))

    def test_password(self) -> None:
        """The password is read for each connection, and is neither in the settings nor in an error."""
        path = Path(self.mktemp())
        path.write_bytes(b"hunter2")
        path.chmod(0o600)
        made = self.publication(username="svc", passwordFile=str(path)).start()
        path.write_bytes(b"hunter3\r\n")
        made.broker.restart()
        made.advance(1)
        self.assertEqual([b"hunter2", b"hunter3"], [each.password for each in made.broker.connects])
        self.assertEqual("svc", made.broker.connects[0].username)
        path.chmod(0o644)
        made.broker.restart()
        made.advance(1)
        self.assertEqual("file_refused", made.observer.reasons[-1])
        self.assertNotIn("hunter", str(made.observer.failures) + repr(made.publisher._settings))

    def test_nothing_before_a_statement(self) -> None:
        """Without an identity there is no session."""
        made = self.publication()
        made.publisher.start()
        made.receipts("R")
        self.assertEqual([], made.broker.connects)
        made.publisher.statements([statement_of("S")])
        made.broker.settle()
        self.assertEqual([STATEMENT, "$.svc/receipt/R"], made.broker.topics)

    def test_not_started(self) -> None:
        """Nothing is sent before the start."""
        made = self.publication()
        made.publisher.statements([statement_of("S")])
        made.advance(5)
        self.assertEqual([], made.broker.connects)


class GenerationTests(PublicationCase):
    """Statements that come and end."""

    def test_renewed(self) -> None:
        """A former statement stays as long as it is valid, and is removed when it is withdrawn."""
        made = self.publication().start("S")
        made.publisher.statements([statement_of("S"), statement_of("T")])
        made.broker.settle()
        self.assertEqual(["$.svc/workload/S", "$.svc/workload/T"], list(made.broker.retained))
        made.publisher.statements([statement_of("T")])
        made.broker.settle()
        self.assertEqual(["$.svc/workload/T"], list(made.broker.retained))
        self.assertEqual((b"", True), (made.broker.published[-1].payload, made.broker.published[-1].retain))
        self.assertEqual(["workload"] * 2, made.observer.taken)

    def test_same(self) -> None:
        """The same statements again are not published again."""
        made = self.publication().start("S")
        made.publisher.statements([statement_of("S")])
        made.broker.settle()
        self.assertEqual(1, len(made.broker.published))

    def test_expired(self) -> None:
        """A statement is removed at its end, also where the broker knows no expiry, and one that ended is not sent."""
        for versions in ((Version.V5,), (Version.V311,)):
            made = self.publication({"versions": versions})
            made.publisher.start()
            made.publisher.statements([statement_of("S", 1000), statement_of("T", 2000), statement_of("old", 0)])
            made.broker.settle()
            self.assertEqual({STATEMENT, "$.svc/workload/T"}, set(made.broker.retained))
            made.advance(999)
            self.assertEqual(2, len(made.broker.retained))
            made.advance(1)
            self.assertEqual(["$.svc/workload/T"], list(made.broker.retained))
            made.advance(1000)
            self.assertEqual({}, made.broker.retained)

    def test_expiry_counts_down(self) -> None:
        """A statement that is published again later has less time left."""
        made = self.publication().start()
        made.advance(600.5)
        made.broker.restart()
        made.advance(1)
        self.assertEqual([3600, 3000 - 1], [each.properties.message_expiry for each in made.broker.published])

    def test_refused_for_long(self) -> None:
        """Of statements that a broker refuses for a long time a bounded number is remembered, the newest."""
        made = self.publication({"refused": ("$.svc",)}).start()
        for number in range(MAX_SENT + 5):
            made.publisher.statements([statement_of(f"S{number}")])
            made.broker.settle()
        self.assertEqual(MAX_SENT, len(made.publisher._sent))
        self.assertIn(f"S{MAX_SENT + 4}", made.publisher._sent)

    def test_withdrawn_while_away(self) -> None:
        """What ended while the broker was away is removed from what it kept; nothing else is."""
        made = self.publication().start("S")
        made.broker.unreachable = True
        made.broker.restart(keeps=True)
        made.advance(1)
        made.publisher.statements([statement_of("T")])
        made.publisher.statements([statement_of("U")])
        made.broker.unreachable = False
        made.advance(2 * LONGEST_PAUSE)
        self.assertEqual(["$.svc/workload/U"], list(made.broker.retained))
        self.assertEqual([STATEMENT, STATEMENT, "$.svc/workload/U"], made.broker.topics)


class ConnectionTests(PublicationCase):
    """Sessions that end, and those that follow."""

    def test_restarted(self) -> None:
        """After a restart of the broker the statement is there again, and what was not acknowledged comes again."""
        made = self.publication().start()
        made.receipts("R1")
        made.broker.holding = True
        made.receipts("R2", "R3")
        made.broker.restart()
        made.broker.holding = False
        made.advance(1)
        self.assertEqual([STATEMENT], list(made.broker.retained))
        expected = [STATEMENT, "$.svc/receipt/R1", "$.svc/receipt/R2", "$.svc/receipt/R3"]
        self.assertEqual([*expected, STATEMENT, *expected[2:]], made.broker.topics)
        self.assertEqual(["artifacts_broker_closed"], made.observer.reasons)

    def test_backoff(self) -> None:
        """Attempts follow with full jitter: at most 1 s, 2 s, 4 s up to 60 s later; a success starts anew."""
        made = self.publication({"unreachable": True}).start()
        self.assertEqual(["artifacts_broker_unreachable"], made.observer.reasons)
        for seconds in (1, 2, 4, 8, 16, 32, 60, 60):
            before = len(made.observer.failures)
            made.advance(seconds - 0.1)
            self.assertEqual(before, len(made.observer.failures))
            made.advance(0.1)
            self.assertEqual(before + 1, len(made.observer.failures))
        self.assertIn("connection refused", str(made.observer.failures[0]))
        made.broker.unreachable = False
        made.advance(60)
        self.assertTrue(made.publisher.status.publishing)
        made.broker.restart()
        made.advance(1)
        self.assertEqual(2, len(made.observer.began))

    def test_backoff_of_useless_sessions(self) -> None:
        """A broker that accepts sessions and no message is one that cannot be reached."""
        made = self.publication().start()
        made.broker.holding = True
        for seconds in (1, 2, 4, 8, 16):
            made.broker.restart()
            before = len(made.observer.began)
            made.advance(seconds - 0.1)
            self.assertEqual(before, len(made.observer.began))
            made.advance(0.2)
            self.assertEqual(before + 1, len(made.observer.began))

    def test_refused(self) -> None:
        """A broker that refuses the session is reported with its words, and asked again."""
        refusal = Connack(code=ReasonCode.NOT_AUTHORIZED, properties=Properties(reason_string="no grant"))
        made = self.publication({"connack": refusal}).start()
        self.assertEqual(["artifacts_connection_refused"], made.observer.reasons)
        self.assertIn("not authorized (0x87): no grant", str(made.observer.failures[0]))
        made.broker.connack = Connack()
        made.advance(1)
        self.assertEqual([STATEMENT], made.broker.topics)

    def test_ended_by_the_broker(self) -> None:
        """A DISCONNECT of the broker is reported with its reason."""
        made = self.publication().start()
        made.broker.link.answer(Disconnect(ReasonCode.SESSION_TAKEN_OVER))
        made.broker.settle()
        self.assertEqual(["artifacts_session_ended"], made.observer.reasons)
        self.assertIn("session taken over (0x8e)", str(made.observer.failures[0]))

    def test_silent(self) -> None:
        """A broker that does not accept the session in time is given up, not a moment earlier."""
        made = self.publication({"silent": True}).start()
        made.advance(OPENING_SECONDS - 0.1)
        self.assertEqual([], made.observer.reasons)
        made.advance(0.1)
        self.assertEqual(["artifacts_broker_silent"], made.observer.reasons)

    def test_keep_alive(self) -> None:
        """PINGREQ is sent twice within the keep alive, that of the broker where it sets one."""
        for given, period in ((None, KEEP_ALIVE / 2), (10, 5), (0, KEEP_ALIVE / 2), (65535, KEEP_ALIVE / 2)):
            made = self.publication({"connack": limits(server_keep_alive=given)}).start()
            made.advance(3 * period)
            self.assertEqual(3, made.broker.pings)

    def test_silent_later(self) -> None:
        """A broker that no longer answers is given up; one that does not even close is aborted."""
        made = self.publication().start()
        made.broker.silent = made.broker.stalled = True
        made.advance(KEEP_ALIVE + MIN_SILENCE)
        self.assertEqual(["artifacts_broker_silent"], made.observer.reasons)
        self.assertTrue(made.broker.links[0].aborted)

    def test_defect(self) -> None:
        """An unexpected error is logged and shown, and does not end the publication."""
        made = self.publication()
        numbers = iter([[], range(16)])
        made.publisher._random = lambda _count: bytes(next(numbers)) if numbers else b""
        made.broker.connect, connect = (lambda _factory: 1 / 0), made.broker.connect  # type: ignore[assignment, return-value]
        made.start()
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))
        self.assertEqual(["artifacts_unpublished"], made.observer.reasons)
        made.broker.connect = connect
        made.advance(1)
        self.assertEqual([STATEMENT], made.broker.topics)


class OlderBrokerTests(PublicationCase):
    """A broker of MQTT 3.1.1 alone."""

    def older(self, **broker: Any) -> Publication:
        return self.publication({"versions": (Version.V311,), **broker}).start()

    def test_probed(self) -> None:
        """The prefix is proven by a probe, and all is published then, without properties."""
        made = self.older()
        made.receipts("R")
        probe, *rest = made.broker.published
        self.assertEqual(f"$.svc/probe/{client_id_of(SUBJECT, 'iot')}", probe.topic)
        self.assertEqual([STATEMENT, "$.svc/receipt/R"], [each.topic for each in rest])
        self.assertEqual([Version.V5, Version.V311], [each.version for each in made.broker.connects])
        self.assertEqual(([Version.V311], []), (made.observer.began, made.observer.reasons))

    def test_swallowed(self) -> None:
        """A probe that is acknowledged and not delivered is reported in time; nothing else is sent."""
        made = self.older(refused=("$.svc",))
        made.receipts("R")
        made.advance(OPENING_SECONDS - 0.1)
        self.assertEqual([], made.observer.reasons)
        made.advance(0.1)
        self.assertEqual(["artifacts_probe_missing"], made.observer.reasons)
        self.assertEqual(1, len(made.broker.attempted))
        self.assertIn("below $.svc", str(made.observer.failures[0]))
        made.broker.refused = ()
        made.advance(2)
        self.assertEqual([STATEMENT, "$.svc/receipt/R"], made.broker.topics[1:])

    def test_refused_subscription(self) -> None:
        """A broker that refuses the subscription to the probe is reported."""
        made = self.older(unreadable=("$.svc/probe/",))
        self.assertEqual(["artifacts_probe_refused"], made.observer.reasons)

    def test_upgraded(self) -> None:
        """Each attempt begins with MQTT 5.0."""
        made = self.older()
        made.broker.versions = (Version.V5,)
        made.broker.restart()
        made.advance(1)
        self.assertEqual([Version.V311, Version.V5], made.observer.began)


class RefusalTests(PublicationCase):
    """A broker that refuses messages."""

    def test_refused(self) -> None:
        """Refused artifacts are reported and not sent again in this session; after the next connect they are."""
        made = self.publication({"refused": ("$.svc",)}).start()
        made.receipts("R")
        self.assertEqual(["workload", "receipt"], [kind for kind, _error in made.observer.refusals])
        error = made.observer.refusals[0][1]
        self.assertEqual("artifacts_refused", error.reason)
        self.assertEqual(
            "the broker at 127.0.0.1:1883 refuses artifacts below $.svc: not authorized (0x87)", str(error)
        )
        made.advance(100)
        self.assertEqual(2, len(made.broker.attempted))
        made.broker.refused = ()
        made.broker.restart()
        made.advance(1)
        self.assertEqual([STATEMENT], made.broker.topics)

    def test_limits_of_the_broker(self) -> None:
        """What the broker says it does not take is not sent, and reported as its refusal would be."""
        for connack, kinds, words in (
            (limits(retain_available=0), ["workload"], "retain not supported (0x9a)"),
            (limits(maximum_qos=0), ["workload", "receipt"], "qos not supported (0x9b)"),
            (limits(maximum_packet_size=40), ["workload", "receipt"], "packet too large (0x95)"),
        ):
            made = self.publication({"connack": connack}).start()
            made.receipts("R")
            self.assertEqual(kinds, [kind for kind, _error in made.observer.refusals])
            self.assertIn(words, str(made.observer.refusals[0][1]))
            self.assertEqual(2 - len(kinds), len(made.broker.attempted))

    def test_largest_packet(self) -> None:
        """A packet of exactly the broker's maximum is sent, one octet more is refused here."""
        properties = Properties(content_type="application/jose+json", payload_format=1)
        payload = b"x" * 500
        size = len(
            encode(Publish("$.svc/receipt/R", payload, 1, packet_id=1, properties=properties), Version.V5, "client")
        )
        made = self.publication({"connack": limits(maximum_packet_size=size)}).start()
        for data in (payload, payload + b"x"):
            made.publisher.receipt("R", data, batched=False)
        made.broker.settle()
        self.assertEqual([STATEMENT, "$.svc/receipt/R"], made.broker.topics)
        self.assertEqual(["receipt"], [kind for kind, _error in made.observer.refusals])


class QueueTests(PublicationCase):
    """How much waits."""

    def test_receive_maximum(self) -> None:
        """The broker never has more unacknowledged messages than it takes, nor more than the own window."""
        for given, expected in ((1, 1), (5, 5), (None, MAX_IN_FLIGHT), (65535, MAX_IN_FLIGHT)):
            made = self.publication({"connack": limits(receive_maximum=given), "holding": True}).start()
            made.receipts(*(f"R{number}" for number in range(100)))
            for _ in range(200):
                made.broker.release(1)
                made.broker.settle()
            self.assertEqual(expected, made.broker.link.most_unacknowledged)
            self.assertEqual([STATEMENT, *(f"$.svc/receipt/R{number}" for number in range(100))], made.broker.topics)

    def test_bounded(self) -> None:
        """As many receipts wait as configured, whether sent or not; the next one is counted and not published."""
        made = self.publication({"holding": True}, queue=3)
        made.publisher.start()
        made.receipts("R1", "R2", "R3")
        self.assertEqual([], made.observer.drops)
        made.receipts("R4")
        self.assertEqual(["artifacts_dropped"], [each.reason for each in made.observer.drops])
        self.assertEqual(3, made.publisher.status.waiting)
        made.publisher.statements([statement_of("S")])
        made.broker.settle()
        made.broker.release()
        made.broker.settle()
        self.assertEqual(0, made.publisher.status.waiting)
        made.receipts("R5")
        expected = [STATEMENT, *(f"$.svc/receipt/R{number}" for number in (1, 2, 3, 5))]
        self.assertEqual(expected, made.broker.topics)

    def test_together(self) -> None:
        """Receipts of one turn of the reactor leave in one write."""
        made = self.publication().start()
        before = len(made.broker.published)
        for number in range(10):
            made.publisher.receipt(f"R{number}", b"x", batched=True)
        self.assertEqual(before, len(made.broker.published))
        writes: list[bytes] = []
        write = made.broker.link.write
        made.broker.link.write = lambda data: (writes.append(data), write(data))[1]
        made.broker.settle()
        self.assertEqual((1, before + 10), (len(writes), len(made.broker.published)))


class StopTests(PublicationCase):
    """The end."""

    def test_clean(self) -> None:
        """What waits is published, then the session ends in order; the statement stays."""
        made = self.publication().start()
        made.publisher.receipt("R", b"x", batched=False)
        done = made.publisher.stop()
        self.assertNoResult(done)
        made.broker.settle()
        self.successResultOf(done)
        self.assertEqual("$.svc/receipt/R", made.broker.topics[-1])
        self.assertEqual((1, [STATEMENT]), (made.broker.disconnects, list(made.broker.retained)))
        self.assertEqual([0], made.observer.left)
        self.assertEqual([], made.observer.failures)

    def test_in_time(self) -> None:
        """A broker that takes nothing gets a short time; what is left is counted."""
        made = self.publication().start()
        made.broker.holding = made.broker.stalled = True
        made.receipts("R1", "R2")
        done = made.publisher.stop()
        made.advance(CLOSE_SECONDS - 0.1)
        self.assertEqual(0, made.broker.disconnects)
        made.advance(0.1)
        self.assertEqual(1, made.broker.disconnects)
        made.advance(CLOSE_SECONDS)
        self.successResultOf(done)
        self.assertEqual([2], made.observer.left)

    def test_lost_meanwhile(self) -> None:
        """A broker that goes away at the end is not waited for."""
        made = self.publication().start()
        made.broker.holding = True
        made.receipts("R")
        done = made.publisher.stop()
        made.broker.restart()
        made.broker.settle()
        self.successResultOf(done)
        self.assertEqual([1], made.observer.left)

    def test_without_a_session(self) -> None:
        """While an attempt or a pause is under way, before the start, and twice: it ends at once."""
        for broker, settled in (({}, False), ({"unreachable": True}, True)):
            made = self.publication(broker)
            made.publisher.start()
            made.publisher.statements([statement_of("S")])
            if settled:
                made.broker.settle()
            self.successResultOf(made.publisher.stop())
            self.successResultOf(made.publisher.stop())
            made.receipts("R")
            self.assertEqual(([0, 1], []), (made.observer.left, made.observer.drops))
            made.advance(5)
            self.assertEqual([], made.broker.connects)
        self.successResultOf(self.publication().publisher.stop())


class PublishersTests(PublicationCase):
    """The end of all listeners."""

    def test_waits(self) -> None:
        """The end waits for every session, also for one that ends already."""
        publishers = ArtifactPublishers()
        publishers.startService()
        first, second = self.publication().start(), self.publication().start()
        for each in (first, second):
            publishers.add(each.publisher)
        first.publisher.stop()
        done = publishers.stopService()
        first.broker.settle()
        self.assertNoResult(done)
        second.broker.settle()
        self.successResultOf(done)


class PublicationMachine(RuleBasedStateMachine):
    """Any sequence of artifacts, refusals, restarts and times."""

    def __init__(self) -> None:
        super().__init__()
        self.made = Publication({"holding": True}, queue=5)
        self.made.publisher.start()
        self.broker, self.observer = self.made.broker, self.made.observer
        self.number = 0
        self.current: set[str] = set()

    @rule(keep=st.booleans(), seconds=st.integers(1, 5000))
    def renew(self, keep: bool, seconds: int) -> None:
        """Another statement, beside the former ones or instead of them."""
        self.number += 1
        now = self.made.clock.seconds()
        kept = list(self.made.publisher._current.values()) if keep else []
        self.made.publisher.statements([*kept, statement_of(f"S{self.number}", now + seconds)])

    @rule(count=st.integers(1, 4), batched=st.booleans())
    def receive(self, count: int, batched: bool) -> None:
        """Receipts are durable."""
        for _ in range(count):
            self.number += 1
            self.made.publisher.receipt(f"R{self.number}", b"x", batched=batched)

    @rule()
    def settle(self) -> None:
        """Both sides go on."""
        self.broker.settle()

    @rule(count=st.integers(1, 5))
    def release(self, count: int) -> None:
        """The broker acknowledges some messages."""
        self.broker.release(count)
        self.broker.settle()

    @rule(seconds=st.sampled_from([0.5, 3.0, 70.0, 700.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.made.advance(seconds)

    @rule(keeps=st.booleans())
    def restart(self, keeps: bool) -> None:
        """The broker restarts."""
        self.broker.restart(keeps=keeps)

    @rule(versions=st.sampled_from([(Version.V5,), (Version.V311,)]))
    def another_version(self, versions: tuple[Version, ...]) -> None:
        """The broker is exchanged."""
        self.broker.versions = versions
        self.broker.restart()

    @rule(unreachable=st.booleans(), refused=st.sampled_from([(), ("$.svc",), ("$.svc/receipt",)]))
    def trouble(self, unreachable: bool, refused: tuple[str, ...]) -> None:
        """The broker goes away, or refuses topics; with MQTT 3.1.1 that shows in the next session only."""
        self.broker.unreachable, self.broker.refused = unreachable, refused
        if Version.V5 not in self.broker.versions:
            self.broker.restart(keeps=True)

    @precondition(lambda self: self.made.broker.links and self.made.broker.link.open)
    @rule(data=st.binary(min_size=1, max_size=8))
    def misbehave(self, data: bytes) -> None:
        """The broker sends any octets."""
        if self.broker.link.open:
            self.broker.link.protocol.dataReceived(data)

    @invariant()
    def bounded(self) -> None:
        """No more waits than configured, beside statements."""
        messages = [each.id for each in self.made.publisher._receipts]
        connection = self.made.publisher._connection
        if connection is not None:
            messages += [each.id for each in connection.session.unacknowledged if each.kind == "receipt"]
        assert len(messages) <= 5, messages
        assert sorted(set(messages)) == sorted(messages)

    def teardown(self) -> None:
        """In the end all is well again: exactly the valid statements are retained, and no timer is left."""
        self.broker.unreachable, self.broker.refused, self.broker.holding = False, (), False
        self.broker.restart(keeps=True)
        self.broker.settle()
        self.made.advance(130.0)
        now = self.made.wall()
        valid = {f"$.svc/workload/{each.id}" for each in self.made.publisher._current.values() if each.expires > now}
        if self.made.publisher._current:
            assert valid <= set(self.broker.retained), (valid, self.broker.retained)
        if self.broker.connects and self.made.publisher._connection is not None:
            assert not self.made.publisher._receipts
            stale = {each.removeprefix("$.svc/workload/") for each in self.broker.retained} - {
                each.removeprefix("$.svc/workload/") for each in valid
            }
            assert not stale, stale
        done = self.made.publisher.stop()
        self.made.advance(3 * CLOSE_SECONDS)
        assert done.called
        assert self.made.clock.getDelayedCalls() == []


class MachineTests(SynchronousTestCase):
    """Hypothesis."""

    def test_any_sequence(self) -> None:
        """Whatever happens, what waits stays bounded, and in the end the broker retains exactly what is valid."""
        PublicationMachine.TestCase().runTest()
