"""The filter of nonces, and the embedded store's use of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.store.errors import StoreClosed
from svc.store.nonces import MIN_CAPACITY, NonceFilter
from svc.store.sqlite import SqliteStore
from tests.store.doubles import CLIENT, HeldThread, InlineReactor, InlineThread, receipt

NONCES = st.sets(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=200)


class NonceFilterTests(SynchronousTestCase):
    """What was added is never ruled out."""

    @given(NONCES, NONCES)
    def test_any_nonces(self, added: set[tuple[str, str]], others: set[tuple[str, str]]) -> None:
        """Nothing that was added is ruled out, and nearly everything else is."""
        found = NonceFilter(0)
        for each in added:
            found.add(*each)
        self.assertFalse(any(found.rules_out(*each) for each in added))
        self.assertLessEqual(sum(not found.rules_out(*each) for each in others - added), 2)

    def test_at_capacity(self) -> None:
        """With as many as there is room for, less than one in a hundred others needs a look-up; more are too many."""
        found = NonceFilter(1)
        self.assertEqual(MIN_CAPACITY, found.capacity)
        for number in range(MIN_CAPACITY):
            found.add(CLIENT, str(number))
        self.assertFalse(found.full)
        self.assertLess(sum(not found.rules_out(CLIENT, f"x{number}") for number in range(5000)), 50)
        for number in range(MIN_CAPACITY):
            found.add(CLIENT, str(number))
        self.assertFalse(found.full)
        for number in range(MIN_CAPACITY // 100):
            found.add(CLIENT, f"more{number}")
        self.assertTrue(found.full)


class KnownNonceTests(SynchronousTestCase):
    """Nonces that are certainly not stored are reserved without a look-up; no other is."""

    def setUp(self) -> None:
        """Create a folder, and count look-ups."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder, True)
        self.path = os.path.join(folder, "notary.db")

    def opened(self, **options: Any) -> SqliteStore:
        """Open the store."""
        options.setdefault("start_thread", InlineThread)
        store = SqliteStore(self.path, reactor=InlineReactor(), reserve_size=0, **options)
        store.init()
        return store

    def reserved(self, store: SqliteStore, nonce: str) -> tuple[bool, int]:
        """Whether a nonce is free, and how many look-ups that took."""
        with patch.object(store._reader, "reserve", wraps=store._reader.reserve) as looked_up:
            return self.successResultOf(store.reserve(CLIENT, nonce)), looked_up.call_count

    def test_stored_before(self) -> None:
        """What was stored before the start, in any number of slices, is refused; what was not needs no look-up."""
        store = self.opened()
        for number in range(5):
            self.successResultOf(store.put_receipt(receipt(f"r{number}", nonce=f"n{number}")))
        self.successResultOf(store.close())
        with patch("svc.store.sqlite._SLICE", 2):
            store = self.opened()
        self.assertEqual([(False, 1)] * 5, [self.reserved(store, f"n{number}") for number in range(5)])
        self.assertEqual((True, 0), self.reserved(store, "new"))
        # It may have been stored meanwhile.
        self.assertEqual((True, 1), self.reserved(store, "new"))
        self.assertIsNone(self.successResultOf(store.give_back(CLIENT, "new")))
        self.successResultOf(store.close())
        self.failureResultOf(store.reserve(CLIENT, "another"), StoreClosed)
        self.failureResultOf(store.give_back(CLIENT, "new"), StoreClosed)

    def test_stored_since(self) -> None:
        """A nonce that is stored without a reservation is refused too."""
        store = self.opened()
        self.successResultOf(store.put_receipt(receipt("r1", nonce="n1")))
        self.assertEqual((False, 1), self.reserved(store, "n1"))
        self.successResultOf(store.close())

    def test_while_it_is_filled(self) -> None:
        """Until all nonces are read each is looked up, and what is stored meanwhile is not forgotten."""
        threads: dict[str, HeldThread] = {}
        store = self.opened(start_thread=lambda name, *work: threads.setdefault(name, HeldThread(name, *work)))
        reader, writer = threads["svc-store-reader"], threads["svc-store-writer"]
        first, second = store.reserve(CLIENT, "n1"), store.put_receipt(receipt("r1", nonce="n0"))
        writer.run()
        self.assertIsNone(self.successResultOf(second))
        self.assertNoResult(first)
        while reader.jobs:
            reader.run()
        self.assertTrue(self.successResultOf(first))
        again = [store.reserve(CLIENT, nonce) for nonce in ("n0", "n1", "n2")]
        self.assertTrue(self.successResultOf(again[2]))
        reader.run()
        self.assertFalse(self.successResultOf(again[0]))
        self.assertTrue(self.successResultOf(again[1]))

    def test_growth(self) -> None:
        """A filter that is full is replaced by one with room for twice as many as are stored."""
        with patch("svc.store.nonces.MIN_CAPACITY", 4):
            store = self.opened()
            for number in range(40):
                self.assertEqual(True, self.reserved(store, f"n{number}")[0])
                self.successResultOf(store.put_receipt(receipt(f"r{number}", nonce=f"n{number}")))
        assert store._nonces is not None
        # Which of the two depends on how many nonces a filter that is nearly full did not rule out by chance.
        self.assertIn(store._nonces.capacity, (64, 128))
        self.assertEqual([(False, 1)] * 40, [self.reserved(store, f"n{number}") for number in range(40)])
        self.successResultOf(store.close())

    def test_no_growth_by_what_is_not_stored(self) -> None:
        """However many were added, there is room for twice as many as are stored."""
        with patch("svc.store.nonces.MIN_CAPACITY", 4):
            store = self.opened()
            self.successResultOf(store.put_receipt(receipt("r1", nonce="n1")))
            for number in range(200):
                self.successResultOf(store.reserve(CLIENT, f"x{number}"))
        assert store._nonces is not None
        self.assertEqual(4, store._nonces.capacity)
        self.assertEqual((False, 1), self.reserved(store, "n1"))
        self.successResultOf(store.close())

    def test_growth_between_reservation_and_record(self) -> None:
        """A nonce is refused although the filter was replaced after its reservation and before its record was there."""
        with patch("svc.store.nonces.MIN_CAPACITY", 4):
            store = self.opened()
            for number in range(3):
                self.assertTrue(self.successResultOf(store.reserve(CLIENT, f"n{number}")))
            for number in range(20):
                self.successResultOf(store.reserve(CLIENT, f"x{number}"))
            records = [receipt(f"r{number}", nonce=f"n{number}") for number in range(2)]
            self.successResultOf(store.put_draft("n0", lambda _drafts: [records[0]]))
            self.successResultOf(store.put_receipt(records[1]))
            self.successResultOf(store.put_draft("", lambda _drafts: [receipt("r3")]))
        self.assertEqual([False, False], [self.reserved(store, nonce)[0] for nonce in ("n0", "n1")])
        self.successResultOf(store.close())

    def test_growth_before_a_record_is_committed(self) -> None:
        """So is one whose record was handed over before the filter was replaced, and committed after that."""
        threads: dict[str, HeldThread] = {}
        with patch("svc.store.nonces.MIN_CAPACITY", 4):
            store = self.opened(start_thread=lambda name, *work: threads.setdefault(name, HeldThread(name, *work)))
            reader, writer = threads["svc-store-reader"], threads["svc-store-writer"]
            while reader.jobs:
                reader.run()
            stored = store.put_receipt(receipt("r0", nonce="n0"))
            for number in range(8):
                store.reserve(CLIENT, f"x{number}")
                while reader.jobs:
                    reader.run()
            writer.run()
            self.successResultOf(stored)
            again = store.reserve(CLIENT, "n0")
            while reader.jobs:
                reader.run()
        self.assertFalse(self.successResultOf(again))
