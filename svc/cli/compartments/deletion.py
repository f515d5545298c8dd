"""
``svc delete``: kubectl, after a look at the compartments of what is to be deleted.

Objects of other compartments are named and have to be confirmed. ``--force`` is ours and skips that; kubectl's own is
``--kubectl-force``.
"""

from __future__ import annotations

import sys
from typing import Final, NoReturn

from svc.cli.compartments.command import Command
from svc.compartments.argv import CommandLine, ours
from svc.compartments.errors import CompartmentError
from svc.compartments.filtering import names_objects
from svc.compartments.targets import Target, comparison, foreign

#: The octets of objects that are read from standard input.
MAX_INPUT: Final = 16 * 1024 * 1024
#: The flags that say what is deleted, as get has them too.
_SELECTING: Final = frozenset({
    "all-namespaces", "field-selector", "filename", "kustomize", "recursive", "selector",
})  # fmt: skip


def run(command: Command) -> NoReturn:
    """
    Become ``kubectl delete``.

    Raises:
        CommandFailed: for CompartmentError: there are objects of other compartments, and nobody can be asked.
        CompartmentError: it was not confirmed, or what is to be deleted cannot be determined.
        KubectlMissing, KubectlFailed: the objects cannot be fetched.
    """
    line = command.read()
    words = line.without(ours("delete"), ["--force"] if line.is_set("kubectl-force") else [])
    if line.is_set("force"):
        command.recorder.decide("forced", [])
    elif not line.is_set("help"):
        _check(command, line)
    command.become(words)


def _check(command: Command, line: CommandLine) -> None:
    if line.unknown:
        raise CompartmentError("flag_unknown", verb="delete", flag=line.unknown[0])
    if line.has("raw"):
        raise CompartmentError("target_unclear", verb="delete", detail="--raw names an address")
    selecting = {each.name for each in line.flags} & (_SELECTING | {"all"}) - {"all-namespaces", "recursive"}
    if not (names_objects(line) or selecting):
        return  # kubectl says what is missing
    from svc.cli.compartments.kubectl import feed
    from svc.cli.compartments.objects import fetch

    data = _standard_input() if line.reads_input() else None
    flags = [each.word for each in line.flags if each.name in _SELECTING]
    found = fetch(command, line.arguments, [*line.connection(), *flags, "--ignore-not-found"], data or b"")
    if others := foreign(found, command.active.compartment):
        _confirm(command, line, others, len(found))
    else:
        command.recorder.decide("allow", found)
    if data is not None:
        feed(data)


def _confirm(command: Command, line: CommandLine, others: list[Target], total: int) -> None:
    console = command.console()
    sentences = comparison(others, command.active.compartment)
    if line.last("dry-run") in ("client", "server"):
        command.recorder.decide("warn", others)
        for sentence in sentences:
            console.warn(sentence)
        return
    if line.reads_input() or sys.stdin is None or not sys.stdin.isatty():
        from svc.cli.errors import CommandFailed

        command.recorder.decide("deny", others)
        error = CompartmentError("delete_unconfirmed", others=len(others), total=total)
        raise CommandFailed(error, remarks=tuple(sentences))
    for sentence in sentences:
        console.notice(sentence)
    console.stderr.write(f"delete {total} objects, {len(others)} of them in other compartments? [y/N] ".encode())
    console.stderr.flush()
    confirmed = sys.stdin.readline().strip().lower() in ("y", "yes")
    command.recorder.decide("warn" if confirmed else "deny", others)
    if not confirmed:
        raise CompartmentError("delete_declined")


def _standard_input() -> bytes:
    data = sys.stdin.buffer.read(MAX_INPUT + 1) if sys.stdin is not None else b""
    if len(data) > MAX_INPUT:
        detail = f"standard input has more than {MAX_INPUT} octets"
        raise CompartmentError("target_unclear", verb="delete", detail=detail)
    return data
