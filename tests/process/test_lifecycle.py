"""The garbage collector during a start, and the ordered end."""

from __future__ import annotations

import gc

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.process.lifecycle import (
    FreedMemory,
    pause_gc,
    return_memory,
    stop_if_running,
    stop_in_order,
    when_finished,
)


class CollectorTests(SynchronousTestCase):
    """The garbage collector of this process."""

    def setUp(self) -> None:
        """Objects that these tests freeze are unfrozen at the end."""
        self.assertTrue(gc.isenabled())
        self.addCleanup(gc.enable)
        self.addCleanup(gc.unfreeze)

    def test_paused(self) -> None:
        """It is paused meanwhile, and objects made then are excluded from later collections."""
        frozen = gc.get_freeze_count()
        with pause_gc():
            self.assertFalse(gc.isenabled())
            kept = [[number] for number in range(1000)]
        self.assertTrue(gc.isenabled())
        self.assertGreaterEqual(gc.get_freeze_count() - frozen, len(kept))

    def test_failure(self) -> None:
        """After a failure it is enabled again."""
        with self.assertRaises(KeyError), pause_gc():
            raise KeyError("a failure")
        self.assertTrue(gc.isenabled())  # type: ignore[unreachable]

    def test_disabled(self) -> None:
        """Where it was disabled, it stays disabled."""
        gc.disable()
        with pause_gc():
            pass
        self.assertFalse(gc.isenabled())


class StopTests(SynchronousTestCase):
    """The ordered end."""

    def test_order(self) -> None:
        """Each step starts when the one before has ended; a failed step is reported and does not prevent the next."""
        first: Deferred[None] = Deferred()
        ran: list[str] = []
        failures: list[Failure] = []

        def broken() -> None:
            ran.append("broken")
            raise KeyError("a failure")

        stopped = Deferred.fromCoroutine(
            stop_in_order((lambda: first, broken, lambda: ran.append("last")), failures.append)
        )
        self.assertEqual([], ran)
        first.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(["broken", "last"], ran)
        self.assertEqual([KeyError], [each.type for each in failures])

    def test_running_services_only(self) -> None:
        """A service that does not run, or was never made, is not stopped."""
        service = Service()
        stop_if_running(None)
        stop_if_running(service)
        service.startService()
        stop_if_running(service)
        self.assertFalse(service.running)

    def test_several_wait(self) -> None:
        """Each caller that waits for the end gets a Deferred of its own."""
        running: Deferred[None] = Deferred()
        waiting = [when_finished(running) for _number in range(2)]
        running.callback(None)
        for each in waiting:
            self.assertIsNone(self.successResultOf(each))


class FreedMemoryTests(SynchronousTestCase):
    """When freed memory is returned to the system."""

    def test_many_closed_connections(self) -> None:
        """At half of a crowd, and not before; the next crowd a minute later at the earliest."""
        freed = FreedMemory()
        self.assertFalse(freed.due(200, 0.0))
        self.assertFalse(freed.due(101, 1.0))
        self.assertTrue(freed.due(100, 2.0))
        self.assertFalse(freed.due(200, 3.0))
        self.assertFalse(freed.due(0, 61.9))
        self.assertTrue(freed.due(0, 62.0))
        self.assertFalse(freed.due(0, 200.0))

    def test_few(self) -> None:
        """Fewer than 64 connections are no crowd."""
        freed = FreedMemory()
        self.assertFalse(freed.due(63, 0.0))
        self.assertFalse(freed.due(0, 1.0))
        self.assertFalse(freed.due(64, 2.0))
        self.assertTrue(freed.due(0, 3.0))

    def test_return(self) -> None:
        """It can be called, whatever C library there is."""
        return_memory()
