"""What the plugins of ``twistd`` are made of. Imported by every ``twistd``, so it imports next to nothing."""

from __future__ import annotations

import signal
from typing import Any

from twisted.application.service import ServiceMaker


class DaemonMaker(ServiceMaker):
    """
    A plugin whose process ignores the signals that it will handle, from the moment on in which ``twistd`` chooses it.

    Without a handler SIGHUP and SIGUSR1 end a process, and a reload or a drain may be asked for at any time.
    """

    @property
    def options(self) -> Any:
        """The class of its options."""
        for number in (signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        return super().options
