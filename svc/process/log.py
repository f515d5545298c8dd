"""The log of a daemon under ``twistd``: its destination, its format, and how the application uses it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Mapping

from twisted.application.service import IServiceCollection, MultiService
from twisted.logger import ILogObserver
from twisted.python.components import Componentized

from svc.telemetry.log_writer import LogWriter
from svc.telemetry.logs import LogFormat, RecordObserver, missing_event, text_line
from svc.telemetry.records import Origin, RecordBuilder


class LoggedService(MultiService):
    """
    The service at the top of an application; makes ``observer`` the application's log.

    ``twistd`` gets the observer from the application after it has attached the plugin's service and before it logs
    anything; earlier events are replayed to it.
    """

    def __init__(self, observer: RecordObserver, log_writer: LogWriter | None = None) -> None:
        super().__init__()
        self.observer = observer
        self._log_writer = log_writer

    def startService(self) -> None:
        """Start the log's thread, which must not be before ``twistd`` has forked, then the services."""
        if self._log_writer is not None:
            self._log_writer.start()
        super().startService()

    def setServiceParent(self, parent: IServiceCollection) -> None:
        if isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self.observer)
        super().setServiceParent(parent)


def process_log(
    origin: Origin, options: Mapping[str, object], log_format: LogFormat
) -> tuple[RecordObserver, LogWriter]:
    """
    Open the log of this process; called once, as early as its options are known.

    Args:
        origin: the process, for all records.
        options: twistd's own options, ``subOptions.parent`` of a plugin.
        log_format: ``json`` for schema svc.log/1, ``text`` for people.

    Returns:
        The observer and its writer, for :class:`LoggedService`.
    """
    builder = RecordBuilder(origin, random=os.urandom)
    line = builder.line if log_format == "json" else lambda event: text_line(builder.build(event))
    path = log_path(options)
    descriptor = _take_standard_output() if path is None else _open_log(path)
    log_writer = LogWriter(descriptor, lambda count: line(missing_event(count)))
    atexit.register(log_writer.flush)
    return RecordObserver(line, builder, log_writer.write), log_writer


def log_path(options: Mapping[str, object]) -> str | None:
    """The file of ``--logfile``, ``twistd.log`` for a daemon without one, None for standard output."""
    name = options.get("logfile") or ("" if options.get("nodaemon") else "twistd.log")
    return name if isinstance(name, str) and name not in ("", "-") else None


def open_standard_descriptors() -> None:
    """
    Open ``/dev/null`` for standard descriptors that are closed; called before anything else opens a file.

    Otherwise a socket or a database could get the number 1, and standard output would be written to it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number: those below it are open by now.
            os.open(os.devnull, os.O_RDWR)


def _take_standard_output() -> int:
    """
    Return a new descriptor of standard output, and redirect descriptor 1 to standard error.

    So nothing but records reaches standard output, whatever libraries print or write to descriptor 1.
    """
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def _open_log(path: str) -> int:
    # Opened once: a program that rotates the file has to copy and truncate it.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
