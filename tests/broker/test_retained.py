"""Retained messages, compared with a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.message import Message
from svc.broker.retained import NODE, RetainedMessages
from svc.wire.mqtt import Properties, matches
from tests.broker.topics import FILTERS, TOPICS

OWNERS = st.sampled_from(("", "one", "other"))
CHANGES = st.lists(st.tuples(TOPICS, st.one_of(st.none(), st.binary(min_size=1, max_size=300))), max_size=30)


def octets_of(messages: dict[str, Message]) -> int:
    """What messages take together with the levels of their topics, each of which is there once."""
    nodes = set[tuple[str, ...]]()
    for topic in messages:
        levels = topic.split("/")
        nodes.update(tuple(levels[: depth + 1]) for depth in range(len(levels)))
    return sum(each.size for each in messages.values()) + sum(NODE + len(each[-1]) for each in nodes)


class TreeTests(SynchronousTestCase):
    """Any changes, any filter."""

    @given(CHANGES, st.lists(FILTERS, min_size=1, max_size=5))
    def test_like_matching(self, changes: list[tuple[str, bytes | None]], filters: list[str]) -> None:
        """The tree finds what matching one topic after the other finds; numbers and octets are right."""
        kept, model = RetainedMessages(1000, 1 << 20), dict[str, Message]()
        for topic, payload in changes:
            if payload is None:
                self.assertIs(kept.remove(topic), model.pop(topic, None))
            else:
                message = Message(topic, payload, retain=True)
                self.assertTrue(kept.store(message))
                model[topic] = message
            self.assertEqual((len(kept), kept.octets), (len(model), octets_of(model)))
            self.assertIs(kept.get(topic), model.get(topic))
        for wanted in filters:
            found = [each.topic for each in kept.walk(wanted) if each is not None]
            self.assertEqual(sorted(found), sorted(topic for topic in model if matches(wanted, topic)))

    @given(st.lists(st.tuples(TOPICS, st.booleans(), OWNERS, st.binary(min_size=1, max_size=9)), max_size=30))
    def test_shares(self, changes: list[tuple[str, bool, str, bytes]]) -> None:
        """What each owner has is counted, whoever replaces or deletes it; what has none counts for nobody."""
        kept, model = RetainedMessages(1000, 1 << 20), dict[str, Message]()
        for topic, stored, owner, payload in changes:
            if stored:
                model[topic] = Message(topic, payload, retain=True, owner=owner)
                self.assertTrue(kept.store(model[topic]))
            else:
                kept.remove(topic)
                model.pop(topic, None)
        for owner in ("one", "other"):
            own = {topic: each for topic, each in model.items() if each.owner == owner}
            levels = sum(NODE * len(topic.split("/")) + len(topic) for topic in own)
            octets = sum(each.size for each in own.values()) + levels
            self.assertEqual((len(own), octets), (kept._messages_of.held(owner), kept._octets_of.held(owner)))
        self.assertEqual(kept._messages_of.held(""), 0)

    @given(st.lists(TOPICS, unique=True, max_size=20))
    def test_nothing_is_left(self, topics: list[str]) -> None:
        """A deleted message leaves nothing behind."""
        kept = RetainedMessages(1000, 1 << 20)
        for topic in topics:
            kept.store(Message(topic, b"m"))
        for topic in topics:
            self.assertIsNotNone(kept.remove(topic))
        self.assertEqual((len(kept), kept.octets, kept._root.children), (0, 0, {}))


class LimitTests(SynchronousTestCase):
    """At the bound and beyond."""

    def test_number(self) -> None:
        """As many as the limit are kept; one more is not, but may replace one that is there."""
        kept = RetainedMessages(2, 1 << 20)
        self.assertEqual([kept.store(Message(topic, b"m")) for topic in ("a", "b", "c")], [True, True, False])
        self.assertTrue(kept.store(Message("a", b"other")))
        kept.remove("b")
        self.assertTrue(kept.store(Message("c", b"m")))
        self.assertEqual(len(kept), 2)

    def test_octets(self) -> None:
        """As many octets as the limit are kept, and not one more; where it does not fit, the old message stays."""
        size = Message("a", b"").size + NODE + 1
        kept = RetainedMessages(10, 2 * size + 10)
        self.assertTrue(kept.store(Message("a", b"12345")))
        self.assertTrue(kept.store(Message("b", b"12345")))
        self.assertFalse(kept.store(Message("b", b"123456")))
        found = kept.get("b")
        assert found is not None
        self.assertEqual(found.payload, b"12345")
        self.assertTrue(kept.store(Message("a", b"1234")))
        self.assertTrue(kept.store(Message("b", b"123456")))
        self.assertEqual(kept.octets, 2 * size + 10)

    def test_shared_number(self) -> None:
        """Who has most gets none of the last tenth, but may replace; others and the broker get some."""
        kept = RetainedMessages(100, 1 << 20)
        numbers = dict.fromkeys(("one", "other", ""), 0)
        for owner in numbers:
            while kept.store(Message(f"{owner}{numbers[owner]}", b"m", owner=owner)):
                numbers[owner] += 1
        self.assertEqual(numbers, {"one": 91, "other": 7, "": 2})
        self.assertEqual((kept.most().owner, kept.most().messages), ("one", 91))
        self.assertTrue(kept.store(Message("one0", b"n", owner="one")))
        self.assertFalse(kept.store(Message("new", b"n", owner="third")))
        kept.remove("other0")
        self.assertFalse(kept.store(Message("new", b"n", owner="one")))
        self.assertTrue(kept.store(Message("new", b"n", owner="third")))

    def test_shared_octets(self) -> None:
        """The same with octets, to one; what a longer message adds counts as a new one does."""
        size, limit = Message("a", b"").size + NODE + 1, 1_000_000
        kept = RetainedMessages(10, limit)
        self.assertTrue(kept.store(Message("a", b"m" * (limit - limit // 10 - size), owner="one")))
        self.assertTrue(kept.store(Message("b", b"", owner="one")))
        self.assertFalse(kept.store(Message("b", b"m", owner="one")))
        self.assertTrue(kept.store(Message("a", b"m", owner="one")))
        self.assertTrue(kept.store(Message("a", b"m" * (limit - limit // 10 - 2 * size), owner="one")))
        self.assertTrue(kept.store(Message("c", b"m" * 1000, owner="other")))
        self.assertEqual(kept.most(), ("one", limit - limit // 10, 2))

    def test_most_of_nothing(self) -> None:
        """Where nobody has any, nobody has most."""
        self.assertEqual(RetainedMessages(0, 0).most(), ("", 0, 0))

    def test_octets_of_levels(self) -> None:
        """A level that is new counts, to the octet; one that others use counts once, and goes with the last."""
        deep, deeper = "/".join("a" * 100), "/".join("a" * 102)
        size = Message(deep, b"m").size + 100 * (NODE + 1)
        more = Message(deeper, b"m").size + 2 * (NODE + 1)
        for missing in (0, 1):
            kept = RetainedMessages(10, size + more - missing)
            self.assertTrue(kept.store(Message(deep, b"m")))
            self.assertIs(kept.store(Message(deeper, b"m")), not missing)
            self.assertEqual(kept.octets, size + (0 if missing else more))
            kept.remove(deep)
            self.assertEqual(kept.octets, 0 if missing else size + more - Message(deep, b"m").size)
            kept.remove(deeper)
            self.assertEqual((kept.octets, kept._root.children), (0, {}))

    def test_octets_of_properties(self) -> None:
        """A message of a few octets with a megabyte of properties is one of a megabyte."""
        kept = RetainedMessages(10, 3 << 20)
        large = Properties(user=(("name", "v" * 60_000),) * 17)
        answers = [kept.store(Message(topic, b"m", retain=True, properties=large)) for topic in ("a", "b", "c")]
        self.assertEqual(answers, [True, False, False])
        self.assertGreater(kept.octets, 1 << 20)
