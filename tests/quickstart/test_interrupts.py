"""What an interrupt does to a command that the quickstart starts."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import cast

from twisted.trial.unittest import SynchronousTestCase

from svc.quickstart.__main__ import Quickstart
from svc.quickstart.processes import Running


class FakeRunning:
    """A process that the quickstart started."""

    ended = False

    def end(self) -> None:
        """Record that it was ended."""
        self.ended = True


class EndTests(SynchronousTestCase):
    """The end of a run that did its work."""

    def test_interrupted_just_before_the_end(self) -> None:
        """An interrupt between the work and the end of the processes leaves neither a process nor the folder."""
        checkout = Path(self.mktemp())
        quickstart = Quickstart(Namespace(keep=False), checkout)
        process = FakeRunning()
        folder, end = quickstart._folder, quickstart._end
        interrupts = [KeyboardInterrupt()]

        def demonstrate() -> None:
            quickstart._processes.append(cast(Running, process))
            (folder / "reports.txt").touch()

        def interrupted(*, remove: bool) -> None:
            if interrupts:
                raise interrupts.pop()
            end(remove=remove)

        self.patch(quickstart, "_demonstrate", demonstrate)
        self.patch(quickstart, "_end", interrupted)
        self.assertRaises(KeyboardInterrupt, quickstart.run)
        self.assertEqual((True, False), (process.ended, folder.exists()))
