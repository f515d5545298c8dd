"""
How a process of ours ends: in order, and with status 0 where it was asked to.

``twistd`` stops on SIGTERM and then dies of that signal, so that a supervisor takes an orderly end for a crash.
"""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from twisted.internet.error import ReactorNotRunning


def end_in_order(reactor: Any) -> None:
    """
    End on SIGTERM with status 0; called once the reactor runs, which sets its own way before.

    Args:
        reactor: what is stopped; a second signal changes nothing.
    """
    signal.signal(signal.SIGTERM, lambda _number, _frame: reactor.callFromThread(_stop, reactor))


def _stop(reactor: Any) -> None:
    with contextlib.suppress(ReactorNotRunning):
        reactor.stop()
