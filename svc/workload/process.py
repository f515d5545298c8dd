"""
How a process of ours begins and ends, as the person who runs it sees it.

A configuration that is not good ends it with one line for each defect and status 1. SIGTERM ends it in order and with
status 0, where ``twistd`` would stop and then die of the signal, so that a supervisor takes an orderly end for a crash.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TextIO, TypeVar

from twisted.internet.error import ReactorNotRunning

from svc.errors import SvcError
from svc.settings import ConfigInvalid

_SettingsT = TypeVar("_SettingsT")


def settings_or_exit(read: Callable[[str], _SettingsT], path: str) -> _SettingsT:
    """
    Read the configuration or end the process with one line for each defect; called before ``twistd`` logs.

    Args:
        read: reads it.
        path: the file.

    Returns:
        The settings.

    Raises:
        SystemExit: with status 1.
    """
    try:
        return read(path)
    except ConfigInvalid as error:
        for problem in error.problems:
            print(f"svc: {path}: {problem}", file=sys.stderr)
        raise SystemExit(1) from error
    except SvcError as error:
        die(error, sys.stderr)


def die(error: SvcError, stream: TextIO | None = None) -> NoReturn:
    """
    End the process with the sentence of an error and its hint.

    Args:
        error: what went wrong.
        stream: where it is written; by default the true standard error, since ``twistd``, once it logs, turns
            ``sys.stderr`` into log records.

    Raises:
        SystemExit: with the error's status.
    """
    written = stream if stream is not None else sys.__stderr__
    print(f"svc: {error}", file=written)
    if error.advice():
        print(f"     {error.advice()}", file=written, flush=True)
    raise SystemExit(error.exit_status) from error


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
