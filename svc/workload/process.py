"""
How a process of ours begins and ends, as the person who runs it sees it.

A configuration that is not good ends it with one line for each defect and status 1. SIGTERM ends it in order and with
status 0, where ``twistd`` would stop and then die of the signal, so that a supervisor takes an orderly end for a crash.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TextIO, TypeVar

from twisted.internet.error import ReactorNotRunning
from twisted.python.usage import Options, UsageError

from svc import __version__
from svc.errors import SvcError
from svc.settings import ConfigInvalid
from svc.telemetry.outlet import Outlet, open_standard_descriptors
from svc.transport.reactor import install

_SettingsT = TypeVar("_SettingsT")

#: A larger threshold would leave tens of kilobytes of dead objects behind each closed connection.
_YOUNG_OBJECTS: Final = 5000


class ProcessOptions(Options):
    """
    The options of a plugin; a subclass says which file it reads and how.

    After parsing, ``settings`` holds the configuration, and the reactor is installed unless ``--reactor`` chose one.
    """

    synopsis = "[--config FILE] [--check-config]"
    optFlags = [["check-config", None, "Judge the configuration and exit: status 0, or 1 with every problem."]]

    def read(self, path: str) -> object:
        """
        Read the configuration.

        Args:
            path: the file.

        Returns:
            The settings.

        Raises:
            SvcError: it is not good.
        """
        raise NotImplementedError

    def install_reactor(self) -> None:
        """Install the reactor that the process runs on: our epoll reactor, unless a subclass takes another one."""
        install()

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"svc {__version__}")
        sys.exit(0)

    def postOptions(self) -> None:
        """Judge the options, and the configuration where that is all that is asked."""
        open_standard_descriptors()
        if self["log-format"] not in ("json", "text"):
            raise UsageError(f"--log-format {self['log-format']!r}: expected json or text")
        self["settings"] = settings_or_exit(self.read, self["config"])
        if self["check-config"]:
            print(f"{self['config']} is valid")
            sys.exit(0)
        # twistd parses the options of a plugin before anything imports a reactor; with --reactor it has chosen one.
        if "twisted.internet.reactor" not in sys.modules:
            self.install_reactor()


def config_parameters(path: str) -> list[list[str | None]]:
    """
    Give the options with values.

    Args:
        path: the file that is read by default.

    Returns:
        What ``optParameters`` holds.
    """
    return [
        ["config", "c", path, "The configuration, a YAML file."],
        ["log-format", None, "json", "json (schema svc.log/1) or text."],
    ]


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


@contextlib.contextmanager
def resting_collector() -> Iterator[None]:
    """
    Let the collector of cycles rest while much is made that stays, and keep that out of every later collection.

    With a million objects each look at all of them takes seconds, and no thread runs meanwhile.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def settle_memory() -> None:
    """
    Keep what the start made out of every later collection, and collect young objects more seldom than by default.

    To be called once, when everything runs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)


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


def end_with_failure(reactor: Any, outlet: Outlet) -> None:
    """
    End with status 1 once everything that was started is stopped, and told.

    Args:
        reactor: what is stopped.
        outlet: writes the log.
    """

    def end() -> None:
        outlet.flush()
        os._exit(1)

    reactor.addSystemEventTrigger("after", "shutdown", end)
    if reactor.running:
        # It may be stopping already.
        _stop(reactor)
    else:
        reactor.callWhenRunning(reactor.stop)
