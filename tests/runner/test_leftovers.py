"""What counts as left in the checkout."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.runner.leftovers import failure, untracked


class FailureTests(SynchronousTestCase):
    """The comparison of before and after."""

    def test_new_files(self) -> None:
        """Files that have come are a failure that names them in order; those that were there or have gone are not."""
        found = failure(frozenset({"a", "gone"}), frozenset({"a", "c", "b/x"}))
        assert found is not None
        [test] = found.tests
        self.assertEqual(("checkout.unchanged", "failed"), (test["test"], test["result"]))
        self.assertEqual(["'b/x'", "'c'"], test["detail"].splitlines()[1:])

    def test_nothing(self) -> None:
        """A run that leaves nothing gives no failure."""
        self.assertIsNone(failure(frozenset({"a", "gone"}), frozenset({"a"})))

    def test_no_repository(self) -> None:
        """An unpacked sdist is not compared."""
        folder = Path(self.mktemp())
        folder.mkdir()
        self.assertIsNone(untracked(folder))
        self.assertIsNone(failure(None, None))
        self.assertIsNone(failure(None, frozenset({"a"})))
