"""``svc get``: kubectl shows the compartment, and only objects of some compartments where that is wanted."""

from __future__ import annotations

from typing import NoReturn

from svc.cli.compartments.command import Command
from svc.compartments.argv import CommandLine, ours
from svc.compartments.filtering import (
    NOTHING,
    Filter,
    check_filterable,
    column,
    names_objects,
    parse_filter,
    selector_flag,
)


def run(command: Command) -> NoReturn:
    """
    Become ``kubectl get``.

    Raises:
        CompartmentError: the filters cannot be used.
        KubectlMissing, KubectlFailed: the labels cannot be fetched.
    """
    line = command.read()
    wanted = parse_filter(line, command.active.compartment)
    added = column(line)
    if wanted:
        check_filterable(line)
        if names_objects(line):
            _show_named(command, line, wanted, added)
        added.append(selector_flag(line, wanted))
    command.become(line.without(ours("get"), added))


def _show_named(command: Command, line: CommandLine, wanted: Filter, added: list[str]) -> NoReturn:
    """kubectl accepts no selector beside names, so that the labels are looked at first."""
    from svc.cli.compartments.objects import fetch

    arguments = line.arguments
    selecting = {"all-namespaces", "field-selector", "ignore-not-found", "selector"}
    flags = [each.word for each in line.flags if each.name in selecting]
    found = fetch(command, arguments, [*line.connection(), *flags])
    shown = [each for each in found if wanted.accepts(each.label)]
    if shown == found:
        command.become(line.without(ours("get"), added))
    of_one_kind = "/" not in arguments[0]
    if not shown:
        kinds = arguments[:1] if of_one_kind else dict.fromkeys(word.partition("/")[0] for word in arguments)
        command.become(line.rebuilt([",".join(kinds)], ours("get"), [*added, NOTHING]))
    kept = [arguments[0], *(each.name for each in shown)] if of_one_kind else [each.reference for each in shown]
    command.become(line.rebuilt(kept, ours("get"), added))
