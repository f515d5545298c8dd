"""The normative statements of both standards that a codec can decide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import PacketRefused, Publish, matches
from tests.wire.mqtt import packets, page, statements5, statements311
from tests.wire.mqtt.building import after_opening, read
from tests.wire.mqtt.rows import BOM, Statement, publish

STATEMENTS = [*statements311.statements(), *statements5.statements()]


def events_of(statement: Statement, octets: bytes) -> list[object]:
    """Read a packet at the position in the connection that the statement applies to."""
    if statement.opens:
        return list(read(octets, statement.sender, 5 if statement.version == 5 else 4))
    return list(after_opening(octets, statement.sender, statement.version))


class StatementTests(SynchronousTestCase):
    """Each statement with packets that keep and break it."""

    def test_kept(self) -> None:
        """What keeps a statement is read as one packet."""
        for statement in STATEMENTS:
            for octets in statement.keeps:
                events = events_of(statement, octets)
                shown = f"{statement.version} {statement.number} {octets.hex()}: {events}"
                self.assertEqual(len(events), 1, shown)
                self.assertFalse(isinstance(events[0], PacketRefused), shown)

    def test_broken(self) -> None:
        """What breaks a statement is refused with the error of exactly that class."""
        for statement in STATEMENTS:
            for octets, error in statement.breaks:
                events = events_of(statement, octets)
                shown = f"{statement.version} {statement.number} {octets.hex()}: {events}"
                self.assertEqual(len(events), 1, shown)
                self.assertIsInstance(events[0], PacketRefused, shown)
                self.assertIs(type(getattr(events[0], "error", None)), error, shown)

    def test_no_empty_row(self) -> None:
        """No row of the table is empty."""
        for statement in STATEMENTS:
            self.assertTrue(statement.keeps or statement.breaks, statement.number)


class ValueTests(SynchronousTestCase):
    """Statements about the values of a packet."""

    def test_byte_order_mark(self) -> None:
        """[MQTT-1.5.3-3], [MQTT-1.5.4-3]: U+FEFF is a character of a text like any other."""
        for version in (4, 5):
            (packet,) = after_opening(publish(BOM, v5=version == 5), version=version)
            assert isinstance(packet, Publish)
            self.assertEqual(packet.topic, "\ufefft")

    def test_identifier_only_with_qos(self) -> None:
        """[MQTT-2.3.1-5], [MQTT-2.2.1-2]: with QoS 0 what could be an identifier is the payload."""
        (old,) = after_opening(b"\x30\x05\x00\x01t\x00\x07", version=4)
        self.assertEqual(old, Publish("t", b"\x00\x07"))
        (new,) = after_opening(b"\x30\x06\x00\x01t\x00\x00\x07")
        self.assertEqual(new, Publish("t", b"\x00\x07"))


class MatchTests(SynchronousTestCase):
    """[MQTT-4.7.2-1], [MQTT-4.7.3-4] and section 4.7.1: when a filter matches."""

    def test_table(self) -> None:
        """The examples of the standards and their edge cases."""
        rows = [
            ("sport/tennis/player1/#", "sport/tennis/player1", True),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
            ("sport/tennis/player1/#", "sport/tennis/player10", False),
            ("sport/#", "sport", True),
            ("sport/#", "sports", False),
            ("#", "a/b/c", True),
            ("#", "/", True),
            ("sport/tennis/+", "sport/tennis/player1", True),
            ("sport/tennis/+", "sport/tennis/player1/ranking", False),
            ("sport/+", "sport", False),
            ("sport/+", "sport/", True),
            ("+/+", "/finance", True),
            ("/+", "/finance", True),
            ("+", "/finance", False),
            ("+/monitor/Clients", "$SYS/monitor/Clients", False),
            ("#", "$SYS/x", False),
            ("+/x", "$SYS/x", False),
            ("$SYS/#", "$SYS/x", True),
            ("$SYS/+/y", "$SYS/x/y", True),
            ("a/$x/+", "a/$x/b", True),
            ("+/$x", "a/$x", True),
            ("A/b", "a/b", False),
            ("a//b", "a/b", False),
            ("a/+/b", "a//b", True),
            ("\u00e4", "a\u0308", False),
        ]
        for topic_filter, topic, expected in rows:
            self.assertIs(matches(topic_filter, topic), expected, (topic_filter, topic))

    @given(packets.TOPICS)
    def test_itself(self, topic: str) -> None:
        """A topic matches itself as a filter, and with its last level as a wildcard."""
        self.assertTrue(matches(topic, topic))
        levels = topic.split("/")
        if not (len(levels) == 1 and topic.startswith("$")):
            self.assertTrue(matches("/".join([*levels[:-1], "+"]), topic))
            self.assertTrue(matches("/".join([*levels, "#"]), topic))

    @given(packets.FILTERS, packets.TOPICS, st.text("$ab", min_size=1, max_size=3))
    def test_dollar(self, topic_filter: str, topic: str, first: str) -> None:
        """No filter that begins with a wildcard matches a topic that begins with $."""
        if topic_filter[0] in "#+":
            self.assertFalse(matches(topic_filter, "$" + first + topic))


class PageTests(SynchronousTestCase):
    """``docs/mqtt.md``."""

    def test_nothing_is_stale(self) -> None:
        """The page shows the tables of these tests; refresh it with ``python -m tests.wire.mqtt.page``."""
        text = page.PAGE.read_text()
        self.assertEqual(page.refreshed(text), text)
