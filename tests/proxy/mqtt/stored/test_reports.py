"""Metrics, log records and readiness of the buffer of messages and of the sessions that are forwarded."""

from __future__ import annotations

from datetime import UTC, datetime
from errno import ENOSPC

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock

from svc.proxy.mqtt.stored.buffer.errors import MessageBufferError
from svc.proxy.mqtt.stored.buffer.limits import BufferLimits
from svc.proxy.mqtt.stored.buffer.records import DeadLetter, SessionKey
from svc.proxy.mqtt.stored.buffer.sharing import BufferShares
from svc.proxy.mqtt.stored.reports import CONDITION, IDENTITY_SHARE, LOG_INTERVAL, BufferReports, SessionReports
from svc.telemetry.events.base import Event
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import Health
from svc.telemetry.metrics import ProxyMetrics
from svc.wire.mqtt import Connect, ReasonCode, ReturnCode
from tests.proxy.mqtt.stored.buffering import message
from tests.proxy.parts import LogTestCase

PATH = "/var/lib/svc/buffer.db"
KEY = SessionKey("iot", "meter-1", "spiffe://prod.example/meter")
UNREADABLE = MessageBufferError("mqtt_buffer_unreadable", database="buffer", path=PATH, what="meter-1", detail="x")


class BufferReportsTests(LogTestCase):
    """What operators see."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.registry = CollectorRegistry()
        self.health = Health((), now=lambda: datetime(2026, 11, 21, tzinfo=UTC))
        self.reports = BufferReports(ProxyMetrics(self.registry).mqtt(), self.health, PATH, self.clock)
        self.shares = BufferShares(BufferLimits())
        self.session = SessionReports(self.reports, KEY, 0, self.shares)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"svc_proxy_mqtt_{name}", labels)

    def attributes(self, event: Event) -> dict[str, object]:
        return {name: value for name, value in self.only(event).attributes.items() if value is not None}

    def test_life(self) -> None:
        """The buffer is opened with what a former process left, and closed."""
        self.reports.opened(2, 7, 0)
        self.assertEqual({"sessions": 2, "messages": 7, "path": PATH}, self.attributes(ProxyEvent.BUFFER_OPENED))
        self.assertEqual(7, self.value("buffer_messages_queued"))
        self.reports.listener_gone("former", 3)
        self.assertEqual({"listener": "former", "messages": 3}, self.attributes(ProxyEvent.BUFFER_WAITS))
        self.reports.left_behind(4, 500)
        self.assertEqual({"operations": 4, "octets": 500, "path": PATH}, self.attributes(ProxyEvent.BUFFER_LEFT_BEHIND))
        self.reports.closed()
        self.assertEqual({"path": PATH}, self.attributes(ProxyEvent.BUFFER_CLOSED))

    def test_refuses_and_accepts(self) -> None:
        """A buffer that accepts nothing fails a condition, not a required one, until it accepts again; both logged."""
        self.reports.accepting_changed(None)
        self.assertEqual([], self.logged)
        self.reports.accepting_changed(UNREADABLE)
        condition = self.health.condition(CONDITION)
        self.assertEqual((False, False), (condition.required, condition.holds))
        self.assertEqual(str(UNREADABLE), self.reports.trouble)
        self.assertEqual(UNREADABLE.reason, self.only(ProxyEvent.BUFFER_REFUSES).fields["detail_reason"])
        self.reports.accepting_changed(None)
        self.assertTrue(self.health.condition(CONDITION).holds)
        self.assertEqual({"path": PATH}, self.attributes(ProxyEvent.BUFFER_ACCEPTS))
        self.reports.closing()
        self.reports.accepting_changed(UNREADABLE)
        self.assertTrue(self.health.condition(CONDITION).holds)
        self.only(ProxyEvent.BUFFER_REFUSES)

    def test_database(self) -> None:
        """Errors of the database are logged once a minute; damage, and what lies aside, each time."""
        for _number in range(3):
            self.reports.db_error("put", f"error {ENOSPC}")
        self.assertEqual({"op": "put", "path": PATH}, self.attributes(ProxyEvent.BUFFER_FAILED))
        self.clock.advance(LOG_INTERVAL)
        self.reports.db_error("put")
        self.assertEqual([None, 2], [each.attributes["repeated"] for each in self.of(ProxyEvent.BUFFER_FAILED)])
        self.reports.damaged(PATH)
        self.assertEqual({"path": PATH}, self.attributes(ProxyEvent.BUFFER_DAMAGED))
        self.reports.set_aside(PATH, f"{PATH}.1")
        self.assertEqual({"path": PATH, "aside": f"{PATH}.1"}, self.attributes(ProxyEvent.BUFFER_SET_ASIDE))
        self.reports.lies_aside(["a", "b"])
        self.assertEqual({"databases": 2, "newest": "b"}, self.attributes(ProxyEvent.BUFFER_LIES_ASIDE))

    def test_replay(self) -> None:
        """A replay is what waits when the broker is back; it ends with the last of it. Nothing waiting is no replay."""
        self.session.upstream_connected()
        self.session.queued(1)
        self.session.queued(-1)
        self.assertEqual([], self.logged)
        for _message in range(3):
            self.session.stored()
            self.session.queued(1)
        self.assertEqual((3, 3), (self.value("buffer_messages_queued"), self.value("buffer_messages_durable_total")))
        self.assertEqual(0, self.value("buffer_messages_stored_total"))
        self.session.upstream_connected()
        for qos in (0, 1):
            self.session.forwarded(qos)
        self.assertEqual(1, self.value("buffer_messages_stored_total"))
        self.assertEqual(3, self.attributes(ProxyEvent.REPLAY_BEGAN)["messages"])
        for _message in range(3):
            self.assertEqual([], self.of(ProxyEvent.REPLAY_ENDED))
            self.session.queued(-1)
        self.assertEqual(3, self.attributes(ProxyEvent.REPLAY_ENDED)["messages"])
        self.assertEqual(0, self.value("buffer_messages_queued"))

    def test_acknowledgements(self) -> None:
        """They are counted by who gave them."""
        self.session.acked("upstream")
        self.session.acked("middleware")
        self.session.acked("middleware")
        counted = [self.value("buffer_messages_acked_total", source=each) for each in ("upstream", "middleware")]
        self.assertEqual([1, 2], counted)

    def test_closed_connections(self) -> None:
        """Why a connection that the broker accepted was closed is logged, each reason once a minute."""
        for _attempt in range(3):
            self.session.link_failed("session_kept", 0)
            self.session.link_failed("disconnected", ReasonCode.SESSION_TAKEN_OVER)
        kept, closed = self.of(ProxyEvent.FORWARDING_FAILED)
        self.assertEqual("session_kept", kept.fields["detail_reason"])
        self.assertEqual("the broker closed the connection: session_taken_over", closed.fields["detail"])

    def test_many_clients_of_one_identity(self) -> None:
        """Of one identity few records of an event are made, by whatever identifiers and topics; another has its own."""
        for number in range(2 * IDENTITY_SHARE):
            session = SessionReports(self.reports, KEY._replace(client_id=f"meter-{number}"), 0, self.shares)
            session.refused("messages")
            self.session.dead_letter(f"t/{number}", "rejected", 0x87)
        self.assertEqual(IDENTITY_SHARE, len(self.of(ProxyEvent.BUFFER_FULL)))
        self.assertEqual(IDENTITY_SHARE, len(self.of(ProxyEvent.BUFFER_DEAD_LETTER)))
        other = KEY._replace(owner="spiffe://prod.example/other")
        SessionReports(self.reports, other, 0, self.shares).refused("messages")
        self.assertEqual(IDENTITY_SHARE + 1, len(self.of(ProxyEvent.BUFFER_FULL)))
        self.clock.advance(LOG_INTERVAL)
        session.refused("messages")
        self.assertEqual(IDENTITY_SHARE, self.of(ProxyEvent.BUFFER_FULL)[-1].attributes["repeated"])

    def test_share(self) -> None:
        """Where identities share what is left, the record of a refused message names who has most."""
        anonymous = KEY._replace(owner="")
        self.shares.messages.take(KEY.holder, 2)
        self.shares.messages.take(anonymous.holder, 3)
        self.session.refused("share")
        record = self.only(ProxyEvent.BUFFER_FULL)
        self.assertEqual("share", record.fields["detail_reason"])
        named = {each: record.attributes[each] for each in ("owner", "most", "most_octets")}
        self.assertEqual({"owner": KEY.owner, "most": "listener iot", "most_octets": 3}, named)

    def test_decisions_of_an_operator(self) -> None:
        """Each dead letter that an operator decides on is logged."""
        for number in range(2 * IDENTITY_SHARE):
            letter = DeadLetter(KEY, Connect("c"), False, message(topic=f"t/{number}"), 0.0, "rejected", 0x87)
            self.reports.dead_letter_over(letter, "delete")
        self.assertEqual(2 * IDENTITY_SHARE, len(self.of(ProxyEvent.BUFFER_DEAD_LETTER_OVER)))

    def test_broker_away(self) -> None:
        """Attempts are counted by their result; a budget that is used up, and refusals, are logged too."""
        self.session.reconnected(True)
        self.session.reconnected(False)
        counted = [self.value("upstream_reconnections_total", result=each) for each in ("success", "error")]
        self.assertEqual([1, 1], counted)
        self.session.replay_failed()
        self.assertEqual(1, self.value("buffer_replay_failures_total"))
        self.assertEqual("meter-1", self.attributes(ProxyEvent.REPLAY_FAILED)["client_id"])
        for code, name in ((ReasonCode.BANNED, "banned"), (ReturnCode.NOT_AUTHORIZED, "not_authorized")):
            self.session.connack_rejected(code)
            self.assertEqual(1, self.value("upstream_connack_rejected_total", reason=name))
        self.session.upstream_failed(UNREADABLE)
        self.session.page_failed(UNREADABLE)
        self.session.credentials_missing()
        self.session.held(ReasonCode.QUOTA_EXCEEDED)
        reasons = [each.fields["detail_reason"] for each in self.of(ProxyEvent.FORWARDING_FAILED)]
        self.assertEqual(["upstream_refused", UNREADABLE.reason, "credentials_missing", "message_refused"], reasons)

    def test_dead_letters(self) -> None:
        """They are counted by cause, and logged with client and topic once a minute for each."""
        self.reports.opened(0, 0, 3)
        for topic in ("a", "b", "a"):
            self.session.dead_letter(topic, "rejected", ReasonCode.NOT_AUTHORIZED)
        self.session.dead_letter("a", "age", 0)
        counted = [self.value("dead_letters_total", cause=each) for each in ("rejected", "age", "too_large")]
        self.assertEqual([3, 1, 0], counted)
        self.assertEqual(7, self.value("dead_letters_kept"))
        logged = [each.attributes for each in self.of(ProxyEvent.BUFFER_DEAD_LETTER)]
        self.assertEqual(
            [("meter-1", "a"), ("meter-1", "b"), ("meter-1", "a")],
            [(each["client_id"], each["topic"]) for each in logged],
        )
        self.assertEqual(["not_authorized", "not_authorized", None], [each.get("code") for each in logged])
        letter = DeadLetter(KEY, Connect("meter-1"), False, message(topic="a"), 0.0, "rejected", 0x87)
        self.reports.dead_letter_over(letter, "send")
        self.reports.dead_letter_over(None, "delete")
        self.assertEqual(5, self.value("dead_letters_kept"))
        over = self.of(ProxyEvent.BUFFER_DEAD_LETTER_OVER)
        decisions = [(each.fields["detail_reason"], each.attributes.get("topic")) for each in over]
        self.assertEqual([("send", "a"), ("delete", None)], decisions)
        self.reports.dead_letter_kept(letter, "no_room")
        self.assertEqual("no_room", self.only(ProxyEvent.BUFFER_DEAD_LETTER_KEPT).fields["detail_reason"])
        self.session.dead_letters_full("a")
        self.assertEqual("a", self.attributes(ProxyEvent.BUFFER_DEAD_LETTERS_FULL)["topic"])

    def test_messages(self) -> None:
        """What is not accepted, dropped or sent again is logged once a minute for each client and reason."""
        for _number in range(2):
            self.session.refused("octets")
            self.session.dropped("rejected", ReasonCode.NOT_AUTHORIZED)
            self.session.session_lost(2)
        self.assertEqual("octets", self.only(ProxyEvent.BUFFER_FULL).fields["detail_reason"])
        self.assertEqual("not_authorized", self.attributes(ProxyEvent.BUFFER_MESSAGE_DROPPED)["code"])
        self.assertEqual(2, self.attributes(ProxyEvent.BUFFER_SESSION_LOST)["resent"])
        SessionReports(self.reports, KEY._replace(client_id="meter-2"), 0, self.shares).refused("octets")
        self.assertEqual(2, len(self.of(ProxyEvent.BUFFER_FULL)))
