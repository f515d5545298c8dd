"""The command-line options of a daemon, and how it exits on an invalid configuration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TextIO, TypeVar

from twisted.python.usage import Options, UsageError

from svc import __version__
from svc.errors import SvcError
from svc.process.checking import Check, run_checks
from svc.process.log import open_standard_descriptors
from svc.settings import ConfigInvalid
from svc.transport.fast.reactor import install

_SettingsT = TypeVar("_SettingsT")


class ProcessOptions(Options):
    """
    The options of a ``twistd`` plugin.

    After parsing, ``settings`` holds the configuration, and the reactor is installed unless ``--reactor`` chose one.
    """

    synopsis = "[--config FILE|env:NAME] [--check-config [--offline]]"
    optFlags = [
        [
            "check-config",
            None,
            "Check it, test what it asks for and exit: status 0, or 1 with every problem.",
        ],
        ["offline", None, "With --check-config: check the text alone."],
    ]

    def read(self, path: str) -> object:
        """The validated configuration; raises :class:`SvcError`."""
        raise NotImplementedError

    def checks(self, settings: Any) -> Iterable[Check]:
        """A check of everything that is opened at the start, in that order."""
        raise NotImplementedError

    def install_reactor(self) -> None:
        """Install the reactor that the process runs on: our epoll reactor by default."""
        install()

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"svc {__version__}")
        sys.exit(0)

    def postOptions(self) -> None:
        """Validate the options and the configuration; with ``--check-config`` exit here."""
        open_standard_descriptors()
        if self["log-format"] not in ("json", "text"):
            raise UsageError(f"--log-format {self['log-format']!r}: expected json or text")
        self["settings"] = settings_or_exit(self.read, self["config"])
        if self["offline"] and not self["check-config"]:
            raise UsageError("--offline goes with --check-config")
        if self["check-config"]:
            print(f"{self['config']} is valid")
            good = self["offline"] or run_checks(self.checks(self["settings"]), sys.stdout, sys.stderr)
            sys.exit(0 if good else 1)
        # twistd parses the options of a plugin before anything imports a reactor; with --reactor it has chosen one.
        if "twisted.internet.reactor" not in sys.modules:
            self.install_reactor()


def config_parameters(path: str) -> list[list[str | None]]:
    """``optParameters`` of a daemon whose default configuration file is ``path``."""
    return [
        ["config", "c", path, "The configuration: a YAML file, or env:NAME for an environment variable."],
        ["log-format", None, "json", "json (schema svc.log/1) or text."],
    ]


def settings_or_exit(read: Callable[[str], _SettingsT], path: str) -> _SettingsT:
    """Read the configuration, or exit with status 1 and one line for each defect; called before ``twistd`` logs."""
    try:
        return read(path)
    except ConfigInvalid as error:
        for problem in error.problems:
            print(f"svc: {error.path}: {problem}", file=sys.stderr)
        raise SystemExit(1) from error
    except SvcError as error:
        exit_with(error, sys.stderr)


def exit_with(error: SvcError, stream: TextIO | None = None) -> NoReturn:
    """Print an error with its hint and exit with its status."""
    print_error(error, stream)
    raise SystemExit(error.exit_status) from error


def print_error(error: SvcError, stream: TextIO | None = None) -> None:
    """
    Print an error with its hint.

    The default is the original standard error, since ``twistd``, once it logs, turns ``sys.stderr`` into log records.
    """
    written = stream if stream is not None else sys.__stderr__
    print(f"svc: {error}", file=written)
    if error.hint:
        print(f"     {error.hint}", file=written, flush=True)
