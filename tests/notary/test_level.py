"""Tests of :mod:`svc.notary.level`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.errors import LevelMismatch
from svc.notary.level import Level, LevelUnknown, check_level, effective_level

LEVELS = st.sampled_from(list(Level))


class LevelTests(SynchronousTestCase):
    """Levels have words and an order."""

    def test_words(self) -> None:
        """Each word is read back; another case is no level."""
        for level in Level:
            self.assertIs(level, Level.parse(str(level)))
        for text in ("signrequest", "", "SIGNREQUEST", None, 1):
            self.assertRaises(LevelUnknown, Level.parse, text)

    def test_recorded(self) -> None:
        """Records begin at logRequest."""
        self.assertEqual([False, False, True, True], [level.recorded for level in Level])

    @given(LEVELS, LEVELS, LEVELS)
    def test_in_force(self, demanded: Level, asked: Level, maximum: Level) -> None:
        """The stronger level applies, limited by the maximum."""
        level = effective_level(demanded=demanded, asked=asked, maximum=maximum)
        self.assertTrue(maximum.covers(level))
        self.assertTrue(level is maximum or (level.covers(demanded) and level.covers(asked)))
        self.assertIn(level, (demanded, asked, maximum))


class CheckLevelTests(SynchronousTestCase):
    """The client checks the level that the response names."""

    def test_stronger_is_accepted(self) -> None:
        """A response may prove more than was asked for."""
        self.assertIs(Level.SIGN_REQUEST, check_level(Level.WORKLOAD, "signRequest"))

    def test_refused(self) -> None:
        """A weaker, unknown or absent level is level_mismatch."""
        for answered in ("workload", "sign", None, ""):
            error = self.assertRaises(LevelMismatch, check_level, Level.LOG_REQUEST, answered)
            self.assertEqual("level_mismatch", error.detail_reason)
