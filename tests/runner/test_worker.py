"""What a worker refuses in a fast run."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.runner.worker import refuse_processes


class RefusalTests(SynchronousTestCase):
    """The audit hook, which is not installed here: nothing could remove it."""

    def test_start(self) -> None:
        """A start of a process fails, and the error says where such a test belongs."""
        for event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
            error = self.assertRaises(AssertionError, refuse_processes, event, ())
            self.assertIn(f"({event}): it belongs in tests/programs", str(error))

    def test_others(self) -> None:
        """Whatever else the interpreter reports passes."""
        for event in ("open", "import", "socket.connect", "os.forked"):
            refuse_processes(event, ())
