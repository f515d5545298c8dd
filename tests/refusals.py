"""Assertions on the reason of an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError


def assert_refused(
    case: SynchronousTestCase, reason: str, call: Callable[..., Any], *arguments: Any, **options: Any
) -> SvcError:
    """Assert that a call raises an error with this reason, and return the error."""
    error: SvcError = case.assertRaises(SvcError, call, *arguments, **options)
    case.assertEqual(error.reason, reason, str(error))
    return error
