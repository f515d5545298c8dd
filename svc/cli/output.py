"""
The two streams of the command line and what may go to each.

Owns the rules: data goes to standard output, everything else to standard error; each line for people starts with
``svc: ``; a warning is one line whatever the verbosity, and ``SVC_NO_WARNINGS`` silences it; colour only on a terminal
and without ``NO_COLOR``. Knows nothing of what is said.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import BinaryIO, Final

from svc import naming
from svc.cli.errors import OutputClosed, OutputFailed
from svc.cli.flags import parse_bool
from svc.errors import SvcError

_RED: Final = "\x1b[31m"
_YELLOW: Final = "\x1b[33m"
_PLAIN: Final = "\x1b[0m"
_NARROWEST: Final = 60
_WIDEST: Final = 120


class Console:
    """
    Standard output and standard error of one run.

    Args:
        stdout: takes data.
        stderr: takes lines for people.
        environ: the environment; ``NO_COLOR``, ``TERM`` and ``SVC_NO_WARNINGS`` are read from it.
    """

    def __init__(self, stdout: BinaryIO, stderr: BinaryIO, environ: Mapping[str, str]) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._environ = environ
        self.stderr_lost = False

    @property
    def terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return self._stdout.isatty()

    @property
    def width(self) -> int:
        """The columns that help text may fill."""
        if not self.terminal:
            return 100
        return max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))

    @property
    def warnings_wanted(self) -> bool:
        """False where ``SVC_NO_WARNINGS`` is set to something true."""
        return parse_bool(self._environ.get(naming.ENV_NO_WARNINGS, "")) is not True

    def write(self, data: bytes) -> None:
        """
        Write data to standard output.

        Args:
            data: any octets.

        Raises:
            OutputClosed: the reader is gone.
            OutputFailed: the system refused.
        """
        try:
            self._stdout.write(data)
        except BrokenPipeError as error:
            raise OutputClosed from error
        except (OSError, ValueError) as error:
            raise OutputFailed(detail=_system_words(error)) from error

    def write_text(self, text: str) -> None:
        """
        Write text to standard output.

        Args:
            text: whole lines; what UTF-8 cannot carry is escaped.

        Raises:
            OutputClosed: the reader is gone.
            OutputFailed: the system refused.
        """
        self.write(text.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """
        Push out what is buffered.

        Raises:
            OutputClosed: the reader is gone.
            OutputFailed: the system refused.
        """
        try:
            self._stdout.flush()
        except BrokenPipeError as error:
            raise OutputClosed from error
        except (OSError, ValueError) as error:
            raise OutputFailed(detail=_system_words(error)) from error

    def abandon_stdout(self) -> None:
        """Let the interpreter's own flush at exit go nowhere, once the reader of standard output is gone."""
        try:
            descriptor = self._stdout.fileno()
        except (OSError, ValueError):  # a stream in memory has no descriptor and nothing to lose
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)

    def tell(self, text: str) -> None:
        """
        Write lines for people to standard error, as they are.

        Args:
            text: one line or more, without the last line end.
        """
        try:
            self._stderr.write(text.encode("utf-8", "backslashreplace") + b"\n")
            self._stderr.flush()
        except (OSError, ValueError):  # nobody is left to be told
            self.stderr_lost = True

    def notice(self, text: str) -> None:
        """
        Say something that was asked for, such as the identity with ``-i``.

        Args:
            text: the sentence.
        """
        self.tell(f"{self._prefix()}{text}")

    def warn(self, text: str) -> None:
        """
        Warn a person in one line, unless ``SVC_NO_WARNINGS`` is set.

        Args:
            text: the sentence.
        """
        if self.warnings_wanted:
            self.tell(f"{self._prefix(_YELLOW)}{text}")

    def fail(self, error: SvcError, reason: str) -> None:
        """
        Say what went wrong: the sentence with its reason, then the hint.

        Args:
            error: what went wrong.
            reason: the precise reason; empty where the sentence says it all.
        """
        sentence = str(error)
        self.tell(f"{self._prefix(_RED)}{sentence}{f' ({reason})' if reason else ''}")
        if advice := error.advice():
            self.tell(f"     {advice}")

    def _prefix(self, colour: str = "") -> str:
        return f"{colour}svc:{_PLAIN} " if colour and self._colourful() else "svc: "

    def _colourful(self) -> bool:
        if self._environ.get("NO_COLOR") or self._environ.get("TERM") == "dumb":
            return False
        return self._stderr.isatty()


def _system_words(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]
