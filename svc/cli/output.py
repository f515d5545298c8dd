"""
Standard output and standard error, and what may go to each.

Owns the rules: data goes to standard output, everything else to standard error; each message for people starts with
``svc: ``; a warning is one line whatever the verbosity, and ``SVC_NO_WARNINGS`` silences it; colour only on a terminal
and without ``NO_COLOR``; with ``--log-format json`` errors, warnings and notices are records.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO, Final

from svc import __version__, naming
from svc.cli.errors import OutputFailed
from svc.cli.flags import parse_bool
from svc.errors import SvcError

_RED: Final = "\x1b[31m"
_YELLOW: Final = "\x1b[33m"
_PLAIN: Final = "\x1b[0m"
_MIN_WIDTH: Final = 60
_MAX_WIDTH: Final = 120
_FILE_WIDTH: Final = 100


class Console:
    """
    Standard output and standard error of one run.

    Args:
        environ: ``NO_COLOR``, ``TERM`` and ``SVC_NO_WARNINGS`` are read from it.
    """

    def __init__(self, stdout: BinaryIO, stderr: BinaryIO, environ: Mapping[str, str]) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._environ = environ
        #: Whether errors, warnings and notices are written as records of schema ``svc.log/1``.
        self.json = False

    @property
    def terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return self._stdout.isatty()

    @property
    def width(self) -> int:
        """The columns that help text may fill."""
        if not self.terminal:
            return _FILE_WIDTH
        return max(_MIN_WIDTH, min(shutil.get_terminal_size().columns, _MAX_WIDTH))

    @property
    def colour(self) -> bool:
        """Whether standard output takes colour."""
        return self._colour_wanted(self._stdout)

    @property
    def warnings_wanted(self) -> bool:
        """False where ``SVC_NO_WARNINGS`` is true."""
        return parse_bool(self._environ.get(naming.ENV_NO_WARNINGS, "")) is not True

    @property
    def stdout(self) -> BinaryIO:
        """Standard output, for data that is written piece by piece."""
        return self._stdout

    @property
    def stderr(self) -> BinaryIO:
        """Standard error, for reports that are the output of a command."""
        return self._stderr

    def write(self, data: bytes) -> None:
        """Write data to standard output."""
        _checked(lambda: self._stdout.write(data))

    def write_text(self, text: str) -> None:
        """Write whole lines to standard output; what UTF-8 cannot encode is escaped."""
        self.write(text.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Write what standard output buffers."""
        _checked(self._stdout.flush)

    def discard_stdout(self) -> None:
        """Discard what standard output still buffers, once it cannot be written."""
        _discard(self._stdout)

    def write_stderr(self, text: str) -> None:
        """Write text without its last line end to standard error; that it cannot be written is no error."""
        try:
            self._stderr.write(text.encode("utf-8", "backslashreplace") + b"\n")
            self._stderr.flush()
        except (OSError, ValueError):  # there is no other stream to report it on
            _discard(self._stderr)

    def notice(self, text: str, *, reason: str = "", hint: str = "", remarks: Iterable[str] = ()) -> None:
        """Write a message that is no error, such as the server's identity with ``-i``."""
        self._message("svc.cli.notice", text, reason=reason, hint=hint, remarks=remarks)

    def warn(self, text: str) -> None:
        """Write a warning of one line, unless ``SVC_NO_WARNINGS`` is set."""
        if self.warnings_wanted:
            self._message("svc.cli.warning", text, colour=_YELLOW)

    def fail(
        self, error: SvcError, reason: str, remarks: Iterable[str] = (), *, traced: BaseException | None = None
    ) -> None:
        """
        Write an error: the sentence with its reason, the hint, then the remarks.

        Args:
            reason: the precise reason; empty where the sentence says everything.
            traced: the exception whose stack trace follows.
        """
        self._message(
            "svc.cli.failed",
            str(error),
            colour=_RED,
            reason=reason,
            hint=error.hint,
            remarks=remarks,
            traced=traced,
        )

    def _message(
        self,
        event: str,
        sentence: str,
        *,
        colour: str = "",
        reason: str = "",
        hint: str = "",
        remarks: Iterable[str] = (),
        traced: BaseException | None = None,
    ) -> None:
        if self.json:
            facts = {"hint": hint, "remark": "; ".join(remarks)}
            self.write_stderr(_record_line(event, sentence, reason, facts, traced))
            return
        prefix = f"{colour}svc:{_PLAIN}" if colour and self._colour_wanted(self._stderr) else "svc:"
        lines = [f"{prefix} {sentence}{f' ({reason})' if reason else ''}"]
        lines += [f"     {line}" for line in (hint, *remarks) if line]
        if traced is not None:
            lines.append("".join(traceback.format_exception(traced)).rstrip("\n"))
        self.write_stderr("\n".join(lines))

    def _colour_wanted(self, stream: BinaryIO) -> bool:
        if self._environ.get("NO_COLOR") or self._environ.get("TERM") == "dumb":
            return False
        return stream.isatty()


def standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """
    Standard output and standard error of the process.

    A standard descriptor that was closed when the process began is opened for reading: without that, the next file or
    socket would get its number, and the output would go there.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
    return (
        sys.stdout.buffer if sys.stdout is not None else open(1, "wb", buffering=0, closefd=False),
        sys.stderr.buffer if sys.stderr is not None else open(2, "wb", buffering=0, closefd=False),
    )


def _record_line(event: str, sentence: str, reason: str, facts: Mapping[str, str], traced: BaseException | None) -> str:
    """A record of schema ``svc.log/1``, without a line end; imports Twisted, which plain text does not need."""
    from twisted.python.failure import Failure

    from svc.telemetry.events.registry import EVENTS
    from svc.telemetry.records import KEY_ATTRIBUTES, KEY_EVENT, KEY_FIELDS, Origin, RecordBuilder

    values: dict[str, object] = {
        KEY_EVENT: EVENTS[event],
        KEY_FIELDS: {"message": sentence, "detail_reason": reason or None},
        KEY_ATTRIBUTES: {name: text for name, text in facts.items() if text},
        "log_time": time.time(),
    }
    if traced is not None:
        values["log_failure"] = Failure(traced, type(traced), traced.__traceback__)
    builder = RecordBuilder(Origin(component="svc", version=__version__), random=os.urandom, stacktraces=True)
    return builder.line(values).decode("ascii").rstrip("\n")


def write_checked(stream: BinaryIO, data: bytes) -> None:
    """Write and flush; raises ``OutputFailed`` where that is not possible."""
    _checked(lambda: (stream.write(data), stream.flush()))


def _checked(write: Callable[[], object]) -> None:
    try:
        write()
    except BrokenPipeError as error:
        raise OutputFailed("output_closed") from error
    except (OSError, ValueError) as error:
        raise OutputFailed(detail=_error_text(error)) from error


def _discard(stream: BinaryIO) -> None:
    """Send what the interpreter flushes at exit to the null device."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # a stream in memory has no descriptor and nothing to lose
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        return "it is closed"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]
