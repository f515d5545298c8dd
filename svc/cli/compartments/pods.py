"""
``svc exec``, ``logs``, ``cp`` and ``port-forward``: kubectl, after a look at the compartment of the pods.

``exec`` is refused for a pod of another compartment, and runs in the very pod that was looked at; the others go on
after a warning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from svc import naming
from svc.cli.compartments.command import Command, KubectlRefused
from svc.compartments.argv import CommandLine, ours
from svc.compartments.errors import CompartmentError
from svc.compartments.targets import Target, best_pod, comparison, copied_pod, foreign


def run_exec(command: Command) -> NoReturn:
    """
    Become ``kubectl exec`` in a pod that is not of another compartment, or in one for which that is permitted.

    Raises:
        CompartmentError: the pod is of another compartment, or cannot be determined.
        KubectlMissing, KubectlFailed: the pod cannot be fetched.
    """
    line = command.read()
    named = [line.words[place] for place in line.places]
    if line.is_set("help") or not (named or line.has("filename")):
        # kubectl prints its help, or says what is missing.
        command.become(line.without(ours("exec")))
    if line.unknown:
        raise CompartmentError("flag_unknown", verb="exec", flag=line.unknown[0])
    [target] = _only(_fetched(command, line, named[0] if named else ""))
    pod = best_pod(_pods(command, line, target))
    if pod is None:
        raise CompartmentError("pod_missing", title=target.title)
    _check(command, line, pod)
    replaced = {*ours("exec"), "namespace"} | (set() if named else {"filename"})
    words = line.rebuilt([pod.name, *named[1:]], replaced, [f"--namespace={pod.namespace}"])
    command.become([*words, *line.words[line.end :]])


def run_with_warning(command: Command) -> NoReturn:
    """
    Become kubectl after a warning about pods of other compartments.

    Raises:
        KubectlMissing, KubectlFailed: the pods cannot be fetched.
    """
    line = command.read()
    if line.unknown:
        command.console().warn(f"{line.unknown[0]} is not known, and no compartment is compared")
    elif not line.is_set("help"):
        current = command.active.compartment
        aimed_at: list[Target] = []
        with contextlib.suppress(KubectlRefused):  # the command is refused as well, in its own words
            aimed_at = list(_aimed_at(command, line))
        others = foreign(aimed_at, current)
        command.recorder.decide("warn" if others else "allow", others or aimed_at)
        for sentence in comparison(others, current):
            command.console().warn(sentence)
    command.become(command.words)


def _check(command: Command, line: CommandLine, pod: Target) -> None:
    current = command.active.compartment
    if not pod.is_foreign(current):
        command.recorder.decide("allow", [pod])
        return
    from svc.cli.compartments.objects import may_override

    evidence = {
        "title": pod.title,
        "label": pod.label,
        "current": current.label,
        "permission": f"{naming.VERB_OVERRIDE} {naming.RESOURCE_COMPARTMENTS}.{naming.DOMAIN}",
    }
    wanted = line.is_set("force")
    permitted = wanted and may_override(command, line.connection())
    command.recorder.decide("forced" if permitted else "deny", [pod])
    if not wanted:
        raise CompartmentError("pod_foreign", **evidence)
    if not permitted:
        raise CompartmentError("override_denied", **evidence)
    command.console().warn(f"{pod.compared(current)}, and --force is given")


def _aimed_at(command: Command, line: CommandLine) -> Iterator[Target]:
    """The pods that a command may be aimed at."""
    from svc.cli.compartments.objects import fetch

    named = line.arguments
    if line.words[0] == "cp":
        for namespace, pod in filter(any, map(copied_pod, named)):
            added = [f"--namespace={namespace}"] if namespace else []
            yield from fetch(command, ["pods", pod], [*line.connection(), *added])
    elif selector := line.last("selector"):
        yield from fetch(command, ["pods"], [*line.connection(), f"--selector={selector}"])
    elif named:
        for target in _fetched(command, line, named[0]):
            yield from _pods(command, line, target)


def _fetched(command: Command, line: CommandLine, name: str) -> list[Target]:
    """The objects that a word names, a pod where it has no kind, or a file without a word."""
    from svc.cli.compartments.objects import fetch

    if name:
        return fetch(command, [name] if "/" in name else ["pods", name], line.connection())
    if line.reads_input():
        raise CompartmentError("target_unclear", verb=line.words[0], detail="standard input is for the command")
    return fetch(command, [], [*line.connection(), *(f"--filename={each}" for each in line.values("filename"))])


def _only(found: list[Target]) -> list[Target]:
    if len(found) != 1:
        raise CompartmentError("target_unclear", verb="exec", detail=f"{len(found)} objects are named")
    return found


def _pods(command: Command, line: CommandLine, target: Target) -> list[Target]:
    """The pods of a workload or of a service, or the pod itself."""
    from svc.cli.compartments.objects import fetch

    if target.kind == "Pod":
        return [target]
    if not target.selector:
        return []
    return fetch(
        command,
        ["pods"],
        [*line.connection(), f"--namespace={target.namespace}", f"--selector={target.selector}"],
    )
