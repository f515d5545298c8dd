"""
The words of ``kubectl apply``, by the rules of pflag: which of them name the objects, which one is ours.

Only where a flag ends is known here: what its value means, and whether there is such a flag, is up to kubectl.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from svc.compartments.argv import read_boolean

#: Flags that do not take the next word: booleans, and those whose value is optional.
ALONE: Final = frozenset({
    "all", "allow-missing-template-keys", "cascade", "disable-compression", "dry-run", "force", "force-conflicts",
    "help", "insecure-skip-tls-verify", "kubectl-force", "match-server-version", "openapi-patch", "overwrite", "prune",
    "recursive", "server-side", "show-managed-fields", "validate", "wait", "warnings-as-errors",
})  # fmt: skip
#: Flags of every command that reach the API server: as whom, with which credentials, which one.
CONNECTION: Final = frozenset({
    "as", "as-group", "as-uid", "as-user-extra", "cache-dir", "certificate-authority", "client-certificate",
    "client-key", "cluster", "context", "disable-compression", "insecure-skip-tls-verify", "kubeconfig", "kuberc",
    "match-server-version", "namespace", "password", "request-timeout", "server", "tls-server-name", "token", "user",
    "username",
})  # fmt: skip
SHORT: Final = {
    "f": "filename", "h": "help", "k": "kustomize", "l": "selector", "n": "namespace", "o": "output", "R": "recursive",
    "s": "server", "v": "v",
}  # fmt: skip
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
            CompartmentError: ``flag_value_invalid``.
        """
        files: list[str] = []
        rest: list[str] = []
        connection: list[str] = []
        names: set[str] = set()
        arguments: list[str] = []
        force = False
        for name, flag in _flags(words):
            names.add(name)
            if not name:
                arguments += flag
            if name == "force":
                _name, equals, value = flag[0].partition("=")
                force = read_boolean("force", value if equals else None)
            elif name in _FILES:
                files += flag
            elif name == "kubectl-force":
                rest.append(flag[0].replace("--kubectl-force", "--force", 1))
            else:
                rest += flag
                connection += flag if name in CONNECTION else ()
        below = bool(arguments) and arguments[0] in _BELOW
        if below or "help" in names or names.isdisjoint({"filename", "kustomize"}):
            return None
        placed = not names.isdisjoint({"context", "namespace"})
        return cls(tuple(files), tuple(rest), tuple(connection), placed, force)


def _flags(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Split words into flags, each with its name and its words; arguments have no name. Short flags are taken apart."""
    pending = list(reversed(words))
    while pending:
        word = pending.pop()
        if word == "--":
            yield "", [word, *reversed(pending)]
            return
        if word.startswith("--"):
            name, equals, _value = word[2:].partition("=")
            alone = bool(equals) or name in ALONE or not pending
            yield name, [word] if alone else [word, pending.pop()]
        elif word.startswith("-") and len(word) > 1:
            yield from _short(word[1:], pending)
        else:
            yield "", [word]


def _short(letters: str, pending: list[str]) -> Iterator[tuple[str, list[str]]]:
    while letters:
        letter, letters = letters[0], letters[1:]
        name = SHORT.get(letter, "")
        if not name or letters.startswith("="):
            # Of an unknown flag nobody knows where it ends: kubectl refuses it.
            yield name or "unknown", [f"-{letter}{letters}"]
            return
        if name not in ALONE:
            value = [letters] if letters else [pending.pop()] if pending else []
            yield name, [f"-{letter}", *value]
            return
        yield name, [f"-{letter}"]
