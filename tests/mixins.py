"""The base of classes whose tests run in each subclass that is a test case, and in none of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twisted.trial.unittest import TestCase

    TestsMixin = TestCase
else:

    class TestsMixin:
        """Has the methods of a test case, which come from the other base of a subclass."""
