"""A command of kubectl that svc has a part in, as the modules of these commands get it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from svc.compartments.argv import CommandLine, read_words
from svc.compartments.config import Active, Config
from svc.compartments.verbs import with_context

if TYPE_CHECKING:
    from svc.cli.compartments.recorder import Recorder
    from svc.cli.output import Console


class KubectlRefused(Exception):
    """What kubectl was asked it has refused: with this exit status, and with these words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(status, words)
        self.status = status
        self.words = words


@dataclass(frozen=True, slots=True)
class Command:
    """
    A command.

    Args:
        words: as they were typed, the command first.
        active: what is in effect.
        environ: for kubectl.
        console: makes the streams, for what has to be said.
        recorder: for what is decided.
        replace: replaces the process by kubectl with these words.
    """

    words: Sequence[str]
    config: Config
    active: Active
    environ: Mapping[str, str]
    console: Callable[[], Console]
    recorder: Recorder
    replace: Callable[[list[str]], NoReturn]

    def read(self) -> CommandLine:
        """Read the words; where the last one needs a value, kubectl says so, and nothing may be added behind it."""
        line = read_words(self.words)
        if line.incomplete:
            self.become(self.words)
        return line

    def become(self, words: Sequence[str]) -> NoReturn:
        """Replace the process by kubectl, in the context that is in effect."""
        self.replace(with_context(words, self.active))
