"""
The log of a whole process under ``twistd``: who writes it, where to, and in which format.

Owns what ``--nodaemon`` and ``--logfile`` mean for it.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping

from svc.telemetry.logs import LogFormat, RecordObserver, missing_event, text_line
from svc.telemetry.outlet import Outlet, take_standard_output
from svc.telemetry.records import Origin, RecordBuilder


def process_log(origin: Origin, options: Mapping[str, object], log_format: LogFormat) -> tuple[RecordObserver, Outlet]:
    """
    Open the log of this process; called once, as early as its options are known.

    Args:
        origin: where the records come from.
        options: twistd's own options, ``subOptions.parent`` of a plugin.
        log_format: ``json`` for schema svc.log/1, ``text`` for people.

    Returns:
        The observer for the application, and its outlet, which :class:`~svc.telemetry.logs.LoggedService` starts.
    """
    builder = RecordBuilder(origin, random=os.urandom)
    line = builder.line if log_format == "json" else lambda event: text_line(builder.build(event))
    path = log_path(options)
    descriptor = take_standard_output() if path is None else open_log(path)
    outlet = Outlet(descriptor, lambda count: line(missing_event(count)))
    atexit.register(outlet.flush)
    return RecordObserver(line, builder, outlet.write), outlet


def log_path(options: Mapping[str, object]) -> str | None:
    """
    Find where ``twistd`` was told to log to.

    Args:
        options: twistd's own options.

    Returns:
        The file of ``--logfile``, ``twistd.log`` for a daemon without one, None for standard output.
    """
    name = options.get("logfile") or ("" if options.get("nodaemon") else "twistd.log")
    return name if isinstance(name, str) and name not in ("", "-") else None


def open_log(path: str) -> int:
    """
    Open a log file to append to; a program that rotates it has to copy and truncate it.

    Args:
        path: the file.

    Returns:
        Its descriptor.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
