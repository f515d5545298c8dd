"""The words of ``kubectl apply``: which of them name the objects, which one is ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from svc.compartments.argv import read_words
from svc.compartments.errors import CompartmentError

_FILES: Final = frozenset({"filename", "kustomize", "recursive"})
#: The commands below ``apply``.
_BELOW: Final = frozenset({"edit-last-applied", "set-last-applied", "view-last-applied"})


@dataclass(frozen=True, slots=True)
class ApplyFlags:
    """
    What the words behind ``apply`` say.

    Args:
        files: the words that name the objects.
        rest: all other words of kubectl.
        connection: those among them that any command of kubectl takes.
        placed: whether namespace or Kubernetes context are typed.
        force: whether the compartment of the objects is replaced.
    """

    files: tuple[str, ...]
    rest: tuple[str, ...]
    connection: tuple[str, ...]
    placed: bool
    force: bool

    @classmethod
    def read(cls, words: Sequence[str]) -> ApplyFlags | None:
        """
        Read the words behind ``apply``; None where they apply no objects: a command below it, help, no file.

        Raises:
            CompartmentError: ``flag_value_invalid``, or ``flag_unknown``: where such a flag ends decides what is
                applied, and only kubectl knows.
        """
        line = read_words(["apply", *words])
        below = bool(line.places) and line.words[line.places[0]] in _BELOW
        # What follows the name of a command below has flags of its own.
        judged = read_words(line.words[: line.places[0]]) if below else line
        if judged.unknown:
            raise CompartmentError("flag_unknown", verb="apply", flag=judged.unknown[0])
        named = line.has("filename") or line.has("kustomize")
        if below or line.incomplete or line.is_set("help") or not named:
            return None
        rest = [each.word for each in line.flags if each.name not in (*_FILES, "force", "kubectl-force", "help")]
        if line.is_set("kubectl-force"):
            rest.append("--force")
        return cls(
            tuple(each.word for each in line.flags if each.name in _FILES),
            (*rest, *line.arguments),
            tuple(line.connection()),
            line.has("context") or line.has("namespace"),
            line.is_set("force"),
        )
