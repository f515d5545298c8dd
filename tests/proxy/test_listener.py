"""One listener and its connections."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.listener import Listener
from tests.proxy.rig import Rig


class Connection:
    """A connection whose sweep can raise."""

    def __init__(self, defect: Exception | None = None) -> None:
        self._defect = defect
        self.swept = 0
        self.aborted: list[str] = []

    def sweep(self, now: float, wall: datetime) -> None:
        """Check the time limits, or raise."""
        self.swept += 1
        if self._defect is not None:
            raise self._defect

    def abort(self, cause: str) -> None:
        """Record the abort."""
        self.aborted.append(cause)


class SweepTests(SynchronousTestCase):
    """The sweep checks the time limits of all connections."""

    def test_defect_in_one_connection(self) -> None:
        """A connection whose check raises is dropped and logged; all others are still checked."""
        rig = Rig()
        listener = Listener(rig.context, cast(Any, rig.endpoint), rig.build)
        bad = Connection(RuntimeError("a defect"))
        connections = [Connection(), bad, Connection()]
        listener._connections.update(cast(Any, connections))
        listener.sweep(1.0, rig.wall())
        self.assertEqual([each.swept for each in connections], [1, 1, 1])
        self.assertEqual([each.aborted for each in connections], [[], ["defect"], []])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
