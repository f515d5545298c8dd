"""
The log records of the command line: for whoever asked for them with ``-v``.

Owns which verbosity shows what: -2 errors, -1 warnings, 0 info, 1 debug, 2 and more trace of the protocol. How a record
looks is :mod:`svc.telemetry.logs`.
"""

from __future__ import annotations

import io
from typing import Final, cast

from twisted.logger import ILogObserver, LogEvent, globalLogBeginner
from zope.interface import implementer

from svc import __version__
from svc.cli.globals import GlobalOptions
from svc.cli.output import Console
from svc.telemetry.events import Severity
from svc.telemetry.logs import LogFormat, RecordObserver, log_observer
from svc.telemetry.records import Origin

_MINIMA: Final = {-2: Severity.ERROR, -1: Severity.WARN, 0: Severity.INFO, 1: Severity.DEBUG}
#: Twisted's own remarks on factories and ports interest those alone who trace the protocol.
_LIBRARIES: Final = "twisted"


class ConsoleLog(io.RawIOBase):
    """Standard error as the stream that records go to."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def writable(self) -> bool:
        """Records are written."""
        return True

    def write(self, data: object) -> int:
        """Write whole lines."""
        line = bytes(cast(bytes, data))
        self._console.tell(line.decode("utf-8", "backslashreplace").rstrip("\n"))
        return len(line)


@implementer(ILogObserver)
class VerbosityObserver:
    """
    Lets through what the verbosity asks for.

    Args:
        observer: writes records.
        verbosity: the value of ``-v``.
    """

    def __init__(self, observer: RecordObserver, verbosity: int) -> None:
        self._observer = observer
        self._verbosity = verbosity

    def __call__(self, event: LogEvent) -> None:
        """Take one event."""
        level = event.get("log_level")
        remark = level is not None and level.name in ("debug", "info")
        if self._verbosity < 2 and remark and str(event.get("log_namespace", "")).startswith(_LIBRARIES):
            return
        self._observer(event)


def minimum_severity(verbosity: int) -> Severity:
    """
    Say from which severity on records are shown.

    Args:
        verbosity: the value of ``-v``.

    Returns:
        The severity.
    """
    if verbosity >= 2:
        return Severity.TRACE
    return _MINIMA[max(verbosity, -2)]


def make_observer(options: GlobalOptions, console: Console) -> VerbosityObserver:
    """
    Make the observer of one run.

    Args:
        options: verbosity, format and stack traces.
        console: takes the lines on standard error.

    Returns:
        The observer.
    """
    stream = ConsoleLog(console)
    observer = log_observer(
        Origin(component="svc", version=__version__),
        log_format=cast(LogFormat, options.log_format),
        stream=cast(io.BufferedIOBase, stream),  # type: ignore[arg-type]
        minimum=minimum_severity(options.verbosity),
        stacktraces=options.stack_traces,
    )
    return VerbosityObserver(observer, options.verbosity)


def begin_logging(options: GlobalOptions, console: Console) -> None:
    """
    Send the log events of this process to standard error.

    Args:
        options: the global options.
        console: the standard streams.
    """
    globalLogBeginner.beginLoggingTo([make_observer(options, console)], redirectStandardIO=False, discardBuffer=True)
