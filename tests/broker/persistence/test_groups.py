"""What becomes durable together, and when callbacks are called."""

from __future__ import annotations

from typing import Final

from svc.broker.message import Message
from svc.broker.persistence.operations import Kind
from svc.broker.persistence.writer import ROWS
from svc.sqlite.errors import JournalStuck
from svc.sqlite.groups import ROW
from svc.sqlite.operations import condensed
from svc.wire.mqtt import PacketType
from tests.broker.keeping import KeptCase

PUBACK: Final = PacketType.PUBACK


class GroupTests(KeptCase):
    """What becomes durable together, and when callbacks are called."""

    def test_one_round_is_one_group(self) -> None:
        """Changes of one round are one transaction; changes recorded while it is written are the next one."""
        subscriber, publisher = self.persistent("s", "t"), self.persistent("p")
        subscriber.loses()
        self.kept.settle()
        before = len(self.kept.notes.commits)
        for number in (1, 2, 3):
            publisher.publishes("t", b"m", 1, number)
        self.kept.round()
        self.assertEqual(len(self.kept.thread.tasks), 1)
        publisher.publishes("t", b"m", 1, 4)
        publisher.publishes("t", b"m", 1, 5)
        self.kept.round()
        self.assertEqual(len(self.kept.thread.tasks), 1)
        self.kept.thread.run()
        self.assertEqual(publisher.take(), [])
        self.kept.reactor.deliver()
        self.assertEqual([each.packet_id for each in publisher.take()], [1, 2, 3])
        self.kept.commit()
        self.assertEqual([each.packet_id for each in publisher.take()], [4, 5])
        self.assertEqual(self.kept.notes.commits[before:], [6, 4])

    def test_at_once_when_all_is_durable(self) -> None:
        """A callback is called at once if everything is durable."""
        called: list[int] = []
        self.kept.journal.when_durable(lambda: called.append(1))
        self.assertEqual(called, [1])

    def test_order_of_calls(self) -> None:
        """Callbacks are called in order, also those registered by callbacks; an exception stops no other."""
        journal, called = self.kept.journal, []

        def first() -> None:
            called.append("first")
            journal.when_durable(lambda: called.append("asked by first"))
            raise RuntimeError("a defect")

        journal.received("c", 1)
        journal.when_durable(first)
        journal.when_durable(lambda: called.append("second"))
        self.kept.round()
        journal.when_durable(lambda: called.append("third"))
        journal.received("c", 2)
        journal.when_durable(lambda: called.append("next group"))
        self.kept.thread.run()
        self.kept.reactor.deliver()
        self.assertEqual(called, ["first", "second", "third"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.kept.commit()
        self.assertEqual(called, ["first", "second", "third", "next group", "asked by first"])

    def test_registered_by_a_callback(self) -> None:
        """A callback registered by another one, without new changes, is called after those that wait."""
        journal, called = self.kept.journal, []
        journal.received("c", 1)
        journal.when_durable(lambda: journal.when_durable(lambda: called.append("later")))
        journal.when_durable(lambda: called.append("sooner"))
        self.kept.settle()
        self.assertEqual(called, ["sooner", "later"])

    def test_close_writes_what_waits(self) -> None:
        """The close makes the group being written and the pending group durable, whatever was reported."""
        self.persistent("s", "t").loses()
        publisher = self.persistent("p")
        publisher.publishes("t", b"1", 1, 1)
        self.kept.round()
        publisher.publishes("t", b"2", 1, 2)
        self.kept.close()
        self.assertEqual((self.kept.rows("message"), self.kept.rows("delivery")), (2, 2))
        self.assertEqual(self.kept.reactor.getDelayedCalls(), [])
        self.kept.begin()

    def test_recorded_after_the_close_began(self) -> None:
        """What is recorded while the database closes is reported as left behind, and never counts as durable."""
        publisher = self.persistent("p")
        self.persistent("s", "t").loses()
        publisher.publishes("t", b"1", 1, 1)
        durable: list[None] = []
        closed = self.kept.journal.close()
        groups = self.kept.journal._groups
        groups.record(Kind.DELIVERY_CHANGED, (7, 1, 4), 10)
        groups.when_durable(lambda: durable.append(None))
        self.kept.thread.run()
        self.kept.reactor.deliver()
        self.successResultOf(closed)
        self.assertEqual((self.kept.rows("message"), durable), (1, []))
        self.assertEqual([(1, ROW + 10)], self.kept.notes.left)

    def test_close_after_a_group_whose_end_was_not_reported(self) -> None:
        """A durable message that was acknowledged since is removed, so that the next start succeeds."""
        subscriber, publisher = self.persistent("s", "t"), self.persistent("p")
        publisher.publishes("t", b"1", 1, 1)
        self.kept.round()
        self.kept.thread.run()
        self.assertEqual(self.kept.rows("message"), 1)
        subscriber.answers(PUBACK, 1)
        self.kept.close()
        self.assertEqual((self.kept.rows("message"), self.kept.rows("delivery")), (0, 0))
        self.kept.begin()

    def test_acknowledged_before_it_was_written(self) -> None:
        """A message that was acknowledged before its group was written is not written."""
        subscriber, publisher = self.persistent("s", "t"), self.persistent("p")
        publisher.publishes("t", b"1", 1, 1)
        subscriber.answers(PUBACK, 1)
        kinds = [kind for kind, _rows in condensed(self.kept.journal._groups._growing.operations, ROWS)]
        self.assertEqual(kinds, [])
        self.kept.settle()
        self.assertEqual([each.packet_id for each in publisher.take()], [1])

    def test_condensed(self) -> None:
        """A new delivery is written in its last state; an existing one is updated once."""
        row = (7, "c", 3, 1, 0, "", 0, 0)
        operations = [(Kind.DELIVERY_CHANGED, (5, 1, 9)), (Kind.DELIVERY, row), (Kind.DELIVERY_CHANGED, (7, 1, 4))]
        operations += [(Kind.DELIVERY_CHANGED, (5, 2, 9)), (Kind.RECEIVED, ("c", 1)), (Kind.RELEASED, ("c", 1))]
        self.assertEqual(
            list(condensed(operations, ROWS)),
            [
                (Kind.DELIVERY, [(7, "c", 3, 1, 0, "", 1, 4)]),
                (Kind.DELIVERY_CHANGED, [(5, 2, 9)]),
                (Kind.RECEIVED, [("c", 1)]),
                (Kind.RELEASED, [("c", 1)]),
            ],
        )


class EndTests(KeptCase):
    """A disk that hangs while the journal is closed."""

    def setUp(self) -> None:
        """Create a publisher whose messages are queued for a disconnected subscriber."""
        super().setUp()
        self.persistent("s", "t").loses()
        self.publisher = self.persistent("p")
        self.kept.settle()

    def published(self, packet_id: int) -> None:
        """Publish a message of a thousand octets: two operations."""
        self.publisher.publishes("t", bytes(1000), 1, packet_id)

    def test_given_up(self) -> None:
        """The close fails after ten seconds and reports how much may not be durable; a later result has no effect."""
        self.published(1)
        ended = self.kept.journal.close()
        self.kept.reactor.advance(9.9)
        self.assertNoResult(ended)
        self.kept.reactor.advance(0.1)
        error = self.failureResultOf(ended, JournalStuck).value
        self.assertIn("was not closed within 10.0 s", str(error))
        self.assertEqual(self.kept.notes.left, [(2, Message("t", bytes(1000)).size + 2 * ROW)])
        self.assertEqual(self.kept.notes.errors, ["close"])
        self.kept.thread.run()
        self.kept.reactor.deliver()
        self.assertEqual(len(self.kept.notes.left), 1)
        self.assertEqual(self.kept.reactor.getDelayedCalls(), [])

    def test_what_is_durable_does_not_count(self) -> None:
        """A group that became durable during the close is not reported as left behind."""
        self.published(1)
        self.kept.round()
        self.published(2)
        self.published(3)
        ended = self.kept.journal.close()
        last = self.kept.thread.tasks.pop()
        self.kept.thread.stopped = False
        self.kept.thread.run()
        self.kept.reactor.deliver()
        self.kept.thread.tasks.append(last)
        self.kept.reactor.advance(10)
        self.failureResultOf(ended, JournalStuck)
        self.assertEqual([operations for operations, _octets in self.kept.notes.left], [4])
        self.assertEqual(self.publisher.take(), [])

    def test_in_time(self) -> None:
        """A close in time leaves nothing behind, whatever the thread was doing when the close began."""
        self.published(1)
        self.kept.round()
        self.published(2)
        self.kept.close()
        self.assertEqual((self.kept.notes.left, self.kept.rows("delivery")), ([], 2))
        self.assertEqual(self.kept.reactor.getDelayedCalls(), [])
