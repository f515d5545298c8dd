"""Asks the processes and prints what they show: once, or again and again on a terminal or into a pipe."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from svc.cli.errors import CommandFailed, StatusUnavailable, StatusUnreachable
from svc.cli.output import Console
from svc.cli.status.addresses import DEFAULTS, AdminAddress
from svc.cli.status.document import parse_status
from svc.cli.status.fetch import fetch
from svc.cli.status.rendering import Answer, Line, Span, render, written

#: Clears the screen; and for each frame: to its top, and what is left of a longer frame before.
_CLEAR: Final = "\x1b[2J"
_TOP: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


@dataclass(frozen=True, slots=True)
class StatusPlan:
    """
    What is asked and how it is shown.

    Attributes:
        named: whether the user named the addresses; else one where nothing listens is left out.
        interval: seconds between two frames; None for one alone.
    """

    addresses: Sequence[AdminAddress] = DEFAULTS
    named: bool = False
    json: bool = False
    interval: float | None = None


class StatusRun:
    """
    One run of the command.

    Args:
        ask: requests the document of one address.
        sleep: waits between two frames.
        size: the columns and lines of the terminal.
        now: the time that a frame shows.
    """

    def __init__(
        self,
        plan: StatusPlan,
        console: Console,
        *,
        ask: Callable[[AdminAddress], bytes] = fetch,
        sleep: Callable[[float], object] = time.sleep,
        size: Callable[[], os.terminal_size] = shutil.get_terminal_size,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._plan = plan
        self._console = console
        self._ask = ask
        self._sleep = sleep
        self._size = size
        self._now = now
        self._documents: list[dict[str, object]] = []
        #: The errors that were reported last, by address.
        self._reported: dict[str, str] = {}

    def run(self) -> int:
        """
        Print, and return the exit status.

        Raises:
            CommandFailed: no process answered, or with JSON one of them did not.
        """
        interval = self._plan.interval
        return self._once() if interval is None else self._watch(interval)

    def _once(self) -> int:
        answers = self._answers()
        errors = [each.error for each in answers if each.error is not None]
        found = len(errors) < len(answers)
        if self._plan.json:
            self._console.write_text(json.dumps(self._documents, indent=2) + "\n")
        elif found:
            self._console.write_text(self._text(render(answers, self._width)))
        if not found:
            raise self._nothing(errors)
        if errors and self._plan.json:
            self._console.flush()
            raise CommandFailed(errors[0], 1, tuple(str(each) for each in errors[1:]))
        return 1 if errors else 0

    def _watch(self, interval: float) -> int:
        """Print frames until Ctrl-C, which is the way to end it."""
        terminal = self._console.terminal and not self._plan.json
        try:
            if terminal:
                self._console.write_text(_CLEAR)
            while True:
                self._frame(interval, terminal=terminal)
                self._console.flush()
                self._sleep(interval)
        except KeyboardInterrupt:
            return 0

    def _frame(self, interval: float, *, terminal: bool) -> None:
        """Print one frame with one write."""
        answers = self._answers()
        if self._plan.json:
            self._report_changes(answers)
            self._console.write_text("".join(f"{json.dumps(each)}\n" for each in self._documents))
            return
        time_shown = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        lines: list[Line] = [(Span(f"every {interval:g} s, {time_shown}"),), ()]
        body = render(answers, self._width)
        lines += body or [(Span(str(self._nothing([]).error)),)]
        self._console.write_text(self._screen(lines) if terminal else self._text([*lines, ()]))

    def _answers(self) -> list[Answer]:
        self._documents = []
        found = [self._answer(each) for each in self._plan.addresses]
        if self._plan.named:
            return found
        return [each for each in found if not isinstance(each.error, StatusUnreachable)]

    def _answer(self, address: AdminAddress) -> Answer:
        try:
            status, document = parse_status(self._ask(address), address)
        except StatusUnavailable as error:
            return Answer(str(address), error=error)
        self._documents.append(document)
        return Answer(str(address), status)

    def _nothing(self, errors: Sequence[object]) -> CommandFailed:
        tried = ", ".join(map(str, self._plan.addresses))
        return CommandFailed(StatusUnavailable("status_absent", addresses=tried), 1, tuple(map(str, errors)))

    def _report_changes(self, answers: Sequence[Answer]) -> None:
        """Warn once of each address that shows nothing, until that changes."""
        errors = {each.address: str(each.error) for each in answers if each.error is not None}
        for address, error in errors.items():
            if self._reported.get(address) != error:
                self._console.warn(error)
        self._reported = errors

    @property
    def _width(self) -> int | None:
        return self._size().columns if self._console.terminal else None

    def _text(self, lines: Sequence[Line]) -> str:
        return "".join(f"{written(line, colour=self._console.colour)}\n" for line in lines)

    def _screen(self, lines: Sequence[Line]) -> str:
        """A frame in place of the one before, and no longer than the screen."""
        room = self._size().lines - 1
        if len(lines) > room:
            hidden = len(lines) - room + 1
            lines = [*lines[: room - 1], (Span(f"… {hidden} more lines"),)]
        shown = "".join(f"{written(line, colour=self._console.colour)}{_REST_OF_LINE}\n" for line in lines)
        return f"{_TOP}{shown}{_REST_OF_SCREEN}"
