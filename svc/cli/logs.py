"""
The log records of the command line.

Owns which verbosity shows what: -2 errors, -1 warnings, 0 info, 1 debug, 2 and more trace of the protocol. The format
of a record is :mod:`svc.telemetry.logs`.
"""

from __future__ import annotations

import io
from typing import Final, cast

from twisted.logger import ILogObserver, LogEvent, globalLogBeginner
from zope.interface import implementer

from svc import __version__
from svc.cli.globals import GlobalOptions
from svc.cli.output import Console
from svc.telemetry.events.base import Severity
from svc.telemetry.logs import LogFormat, RecordObserver, log_observer
from svc.telemetry.records import Origin

_MINIMA: Final = {-2: Severity.ERROR, -1: Severity.WARN, 0: Severity.INFO, 1: Severity.DEBUG}
#: Twisted's own messages on factories and ports are shown with the trace of the protocol only.
_LIBRARIES: Final = "twisted"


class ConsoleLog(io.RawIOBase):
    """Standard error as the stream of log records."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        """Write whole lines."""
        line = bytes(cast(bytes, data))
        self._console.write_stderr(line.decode("utf-8", "backslashreplace").rstrip("\n"))
        return len(line)


@implementer(ILogObserver)
class VerbosityObserver:
    """Drops Twisted's own messages below verbosity 2."""

    def __init__(self, observer: RecordObserver, verbosity: int) -> None:
        self._observer = observer
        self._verbosity = verbosity

    def __call__(self, event: LogEvent) -> None:
        level = event.get("log_level")
        remark = level is not None and level.name in ("debug", "info")
        if self._verbosity < 2 and remark and str(event.get("log_namespace", "")).startswith(_LIBRARIES):
            return
        self._observer(event)


def make_observer(options: GlobalOptions, console: Console) -> VerbosityObserver:
    """Make the log observer of one run, which writes to standard error."""
    verbosity = options.verbosity
    observer = log_observer(
        Origin(component="svc", version=__version__),
        log_format=cast(LogFormat, options.log_format),
        stream=cast(io.BufferedIOBase, ConsoleLog(console)),  # type: ignore[arg-type]
        minimum=Severity.TRACE if verbosity >= 2 else _MINIMA[max(verbosity, -2)],
        stacktraces=options.stack_traces,
    )
    return VerbosityObserver(observer, verbosity)


def begin_logging(options: GlobalOptions, console: Console) -> None:
    """Send the log events of this process to standard error."""
    globalLogBeginner.beginLoggingTo([make_observer(options, console)], redirectStandardIO=False, discardBuffer=True)
