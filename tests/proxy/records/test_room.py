"""The room that is left for records, and who may have some of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.errors import NotaryStoreUnavailable
from svc.proxy.records.places import Place, RecordPlaces
from svc.proxy.records.room import SCARCE_OCTETS, RecordRoom, RoomReport
from svc.store.errors import StoreError, StoreUnavailable
from svc.store.usage import StoreUsage

MIB = 1024 * 1024
HOUR = 3600.0


class MeasuredStore:
    """Returns what a test says."""

    def __init__(self) -> None:
        self.usage = StoreUsage(0, 1024 * MIB, 1024 * MIB)
        self.failure: StoreError | None = None
        self.count = 0

    def measure(self) -> Deferred[StoreUsage]:
        """Return it at once."""
        self.count += 1
        return succeed(self.usage) if self.failure is None else fail(self.failure)


class RoomTestCase(SynchronousTestCase):
    """Base class: a room, and what it reports."""

    def setUp(self) -> None:
        """Bound it by the disk alone."""
        self.make()

    def make(self, max_octets: int | None = None) -> None:
        """Start to measure."""
        self.clock, self.store = Clock(), MeasuredStore()
        self.reports: list[RoomReport] = []
        self.room = RecordRoom(
            cast("Any", self.store),
            database="notary.db",
            max_octets=max_octets,
            clock=self.clock,
            measured=self.reports.append,
        )
        self.room.startService()
        self.addCleanup(self.room.stopService)

    def measured(
        self, octets: int, free: int | None = None, size: int | None = None, held: Mapping[str, int] | None = None
    ) -> None:
        """Let it measure this."""
        self.store.usage = StoreUsage(octets, free, size, held or {})
        self.clock.advance(1)

    def may(self, client: str, octets: int = MIB) -> bool:
        """Whether a client may have a record."""
        return self.room.refusal(client, octets) is None


class DiskTests(RoomTestCase):
    """The room of the disk."""

    def test_before_a_measurement(self) -> None:
        """Nothing is refused without one."""
        self.store.failure = StoreError()
        room = RecordRoom(
            cast("Any", self.store), database="x", max_octets=None, clock=self.clock, measured=self.reports.append
        )
        self.assertIsNone(room.refusal("a", 2**50))

    def test_one_alone_takes_all_that_is_far_from_the_bound(self) -> None:
        """At 10 % of a large disk, and 256 MiB of a smaller one, and not one octet before."""
        for size, scarce in ((100_000 * MIB, 10_000 * MIB), (1024 * MIB, SCARCE_OCTETS)):
            self.measured(size - scarce, scarce, size, {"a": size - scarce})
            self.assertTrue(self.may("a"))
            self.measured(size - scarce + 1, scarce - 1, size, {"a": size - scarce + 1})
            self.assertFalse(self.may("a"))
            self.assertTrue(self.may("b"))

    def test_who_holds_most_is_refused_first(self) -> None:
        """Twice what is free is the bound, whoever it is; the refusal names who and how much."""
        held = {"a": 500 * MIB, "b": 200 * MIB, "c": 199 * MIB}
        self.measured(899 * MIB, 100 * MIB, 1024 * MIB, held)
        self.assertEqual([False, True, True, True], [self.may(each) for each in "abcd"])
        self.measured(900 * MIB, 100 * MIB - 1, 1024 * MIB, held)
        self.assertEqual([False, False, True, True], [self.may(each) for each in "abcd"])
        refused = self.room.refusal("a", MIB)
        assert refused is not None
        self.assertIn(f"records of a take {500 * MIB} already", str(refused))
        self.assertEqual((503, "notary_unavailable", True), (refused.http_status, refused.reason, refused.retryable))

    def test_a_part_is_left_for_those_with_nothing(self) -> None:
        """However many come one after the other and take what they may, the next one has room."""
        free, held = 255 * MIB, {"first": 700 * MIB}
        for number in range(4):
            client = f"c{number}"
            held[client] = 0
            while True:
                self.measured(sum(held.values()), free, 1024 * MIB, held)
                if not self.may(client):
                    break
                free, held[client] = free - MIB, held[client] + MIB
            self.assertGreater(held[client], 0)
        self.assertTrue(self.may("next"))

    def test_a_full_disk_is_the_business_of_the_store(self) -> None:
        """Where no record fits, nobody is refused here: the store gives up its reserve and says that it is full."""
        self.measured(1000 * MIB, MIB - 1, 1024 * MIB, {"a": 1000 * MIB})
        self.assertTrue(self.may("a"))
        self.measured(1000 * MIB, MIB, 1024 * MIB, {"a": 1000 * MIB})
        self.assertFalse(self.may("a"))
        self.assertTrue(self.may("b"))

    def test_what_is_under_way_counts(self) -> None:
        """From the admission on, through the measurement after which it is in the database, and no longer."""
        self.measured(0, 100 * MIB, 1024 * MIB)
        self.room.take("a", 80 * MIB)
        self.assertFalse(self.may("a"))
        self.assertTrue(self.may("b"))
        self.room.settle("a", 79 * MIB)
        self.assertTrue(self.may("a", 99 * MIB))
        self.assertFalse(self.may("a", 99 * MIB + 1))
        self.room.stored("a", MIB)
        self.assertFalse(self.may("b", 99 * MIB + 1))
        self.measured(MIB, 100 * MIB, 1024 * MIB, {"a": MIB})
        self.assertTrue(self.may("b", 100 * MIB))

    def test_pruned_records_make_room(self) -> None:
        """Who was refused may go on once enough of its records are over."""
        self.measured(900 * MIB, 100 * MIB, 1024 * MIB, {"a": 900 * MIB})
        self.assertFalse(self.may("a"))
        self.measured(600 * MIB, 400 * MIB, 1024 * MIB, {"a": 600 * MIB})
        self.assertTrue(self.may("a"))

    def test_measurement_that_fails(self) -> None:
        """The last one holds on, and the database is not asked again at once."""
        self.measured(900 * MIB, 100 * MIB, 1024 * MIB, {"a": 900 * MIB})
        self.store.failure = StoreUnavailable(path="x", detail="broken")
        count = self.store.count
        self.clock.pump([1.0] * 30)
        self.assertEqual(count + 1, self.store.count)
        self.assertFalse(self.may("a"))
        self.store.failure = None
        self.clock.advance(1)
        self.assertEqual(count + 2, self.store.count)


class MaxBytesTests(RoomTestCase):
    """The room below ``notary.maxBytes``."""

    def test_bound(self) -> None:
        """It is shared as the disk is, and nothing goes beyond it: nothing else refuses that."""
        self.make(1024 * MIB)
        self.measured(768 * MIB, 2**50, 2**51, {"a": 768 * MIB})
        self.assertTrue(self.may("a"))
        self.measured(768 * MIB + 1, 2**50, 2**51, {"a": 768 * MIB})
        self.assertFalse(self.may("a"))
        self.measured(1023 * MIB, 2**50, 2**51, {"a": 768 * MIB})
        self.assertTrue(self.may("b"))
        self.measured(1023 * MIB + 1, 2**50, 2**51, {"a": 768 * MIB})
        self.assertFalse(self.may("b"))
        self.measured(2000 * MIB, 2**50, 2**51, {"a": 768 * MIB})
        self.assertFalse(self.may("b", 1))

    def test_the_narrower_bound_decides(self) -> None:
        """A full disk is one, far below the limit."""
        self.make(1024 * MIB)
        self.measured(300 * MIB, 100 * MIB, 400 * MIB, {"a": 300 * MIB})
        self.assertFalse(self.may("a"))
        self.assertEqual(100 * MIB, self.reports[-1].left)


class ReportTests(RoomTestCase):
    """What operators see."""

    def test_days(self) -> None:
        """Unknown for ten minutes, then by the growth since the start, at last by that of the last day."""
        self.measured(0, 240 * MIB, 1000 * MIB)
        self.assertEqual(math.inf, self.reports[-1].days)
        self.clock.advance(HOUR)
        self.measured(10 * MIB, 240 * MIB, 1000 * MIB)
        self.assertAlmostEqual(1.0, self.reports[-1].days, places=2)
        for hour in range(48):
            self.clock.advance(HOUR - 1)
            self.measured((10 + hour) * MIB, 240 * MIB, 1000 * MIB)
        self.assertAlmostEqual(10.0, self.reports[-1].days, places=0)
        for _hour in range(26):
            self.clock.advance(HOUR)
        self.assertEqual(math.inf, self.reports[-1].days)

    def test_unknown_room(self) -> None:
        """On a server the octets are known, and what is left is not."""
        self.measured(5)
        self.assertEqual(RoomReport(5), self.reports[-1])
        self.assertTrue(self.may("a", 2**50))


class PlacesTests(RoomTestCase):
    """The places of records ask for room, and say what becomes of it."""

    def test_admission(self) -> None:
        """A client without room is refused at once and takes no place; what others have under way comes back."""
        places = RecordPlaces(10, self.clock, 1.0, room=self.room)
        self.measured(0, 100, 1024 * MIB, {"a": 201})
        refused = places.take("a", 1)
        assert isinstance(refused, Deferred)
        self.failureResultOf(refused, NotaryStoreUnavailable)
        self.assertEqual(0, places.total)
        first = places.take("b", 60)
        assert isinstance(first, Place)
        self.assertFalse(self.may("c", 41))
        places.settle(first, 10)
        self.assertTrue(self.may("c", 90))
        places.give_back(first)
        self.assertFalse(self.may("c", 91))
        second = places.take("b", 90)
        assert isinstance(second, Place)
        places.abandon(second)
        self.assertTrue(self.may("c", 90))
