"""Retained messages, compared with a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.message import Message
from svc.broker.retained import RetainedMessages
from svc.wire.mqtt import matches
from tests.broker.topics import FILTERS, TOPICS

CHANGES = st.lists(st.tuples(TOPICS, st.one_of(st.none(), st.binary(min_size=1, max_size=300))), max_size=30)


class TreeTests(SynchronousTestCase):
    """Any changes, any filter."""

    @given(CHANGES, st.lists(FILTERS, min_size=1, max_size=5))
    def test_like_matching(self, changes: list[tuple[str, bytes | None]], filters: list[str]) -> None:
        """The tree finds what matching one topic after the other finds; numbers and octets are right."""
        kept, model = RetainedMessages(1000, 1 << 20), dict[str, Message]()
        for topic, payload in changes:
            if payload is None:
                self.assertIs(kept.forget(topic), model.pop(topic, None))
            else:
                message = Message(topic, payload, retain=True)
                self.assertTrue(kept.keep(message))
                model[topic] = message
            self.assertEqual((len(kept), kept.octets), (len(model), sum(each.size for each in model.values())))
            self.assertIs(kept.at(topic), model.get(topic))
        for wanted in filters:
            found = [each.topic for each in kept.walk(wanted) if each is not None]
            self.assertEqual(sorted(found), sorted(topic for topic in model if matches(wanted, topic)))

    @given(st.lists(TOPICS, unique=True, max_size=20))
    def test_nothing_is_left(self, topics: list[str]) -> None:
        """What was forgotten leaves nothing behind."""
        kept = RetainedMessages(1000, 1 << 20)
        for topic in topics:
            kept.keep(Message(topic, b"m"))
        for topic in topics:
            self.assertIsNotNone(kept.forget(topic))
        self.assertEqual((len(kept), kept.octets, kept._root.children), (0, 0, {}))


class LimitTests(SynchronousTestCase):
    """At the bound and beyond."""

    def test_number(self) -> None:
        """As many as the limit are kept; one more is not, but may replace one that is there."""
        kept = RetainedMessages(2, 1 << 20)
        self.assertEqual([kept.keep(Message(topic, b"m")) for topic in ("a", "b", "c")], [True, True, False])
        self.assertTrue(kept.keep(Message("a", b"other")))
        kept.forget("b")
        self.assertTrue(kept.keep(Message("c", b"m")))
        self.assertEqual(len(kept), 2)

    def test_octets(self) -> None:
        """As many octets as the limit are kept, and not one more; where it does not fit, the old message stays."""
        size = Message("a", b"").size
        kept = RetainedMessages(10, 2 * size + 10)
        self.assertTrue(kept.keep(Message("a", b"12345")))
        self.assertTrue(kept.keep(Message("b", b"12345")))
        self.assertFalse(kept.keep(Message("b", b"123456")))
        found = kept.at("b")
        assert found is not None
        self.assertEqual(found.payload, b"12345")
        self.assertTrue(kept.keep(Message("a", b"1234")))
        self.assertTrue(kept.keep(Message("b", b"123456")))
        self.assertEqual(kept.octets, 2 * size + 10)
