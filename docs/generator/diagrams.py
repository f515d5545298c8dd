"""Diagrams of what the code itself says: layers of packages, steps and life-cycles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from configparser import ConfigParser
from enum import Enum
from itertools import pairwise
from typing import Any

from docs.generator.docstrings import attribute_comments
from docs.generator.pages import TOP, PageBroken, table
from svc.proxy.http import exchange as http_exchange
from svc.proxy.records import release_points
from svc.workload import interface


def layers() -> str:
    """
    Draw the layers that import-linter enforces.

    Returns:
        A Mermaid flow chart, the highest layer first.

    Raises:
        PageBroken: the contract is not there, or not exhaustive.
    """
    setup = ConfigParser()
    setup.read(TOP / "setup.cfg")
    contract = setup["importlinter:contract:layers"]
    if not contract.getboolean("exhaustive"):
        raise PageBroken("the contract of layers leaves packages out")
    found = [[name.strip() for name in line.split("|")] for line in contract["layers"].split("\n") if line.strip()]
    lines = ["flowchart TB"]
    for number, names in enumerate(found):
        lines.append(f'  subgraph layer{len(found) - 1 - number}[" "]')
        lines.append("    direction LR")
        lines.extend(f'    {name}["svc.{name}"]' for name in names)
        lines.append("  end")
    lines.extend(f"  layer{number} --> layer{number - 1}" for number in range(len(found) - 1, 0, -1))
    return _fenced(lines)


def recorded_steps() -> str:
    """
    Draw the steps of a recorded exchange.

    Returns:
        A Mermaid state diagram in the order of the enumeration, and what the source says of each.
    """
    members = list(release_points.ReleasePoint)
    lines = [
        "stateDiagram-v2",
        f"  [*] --> {members[0].name}: small or no body",
        f"  [*] --> {members[1].name}: a larger body",
    ]
    lines.extend(f"  {before.name} --> {after.name}" for before, after in pairwise(members))
    said = attribute_comments(release_points.ReleasePoint)
    rows = [(f"`{each.name}`", f"`{each.value}`", said[each.name]) for each in members]
    return _fenced([*lines, f"  {members[-1].name} --> [*]"]) + "\n" + table(("step", "in tests", ""), rows)


def exchange() -> str:
    """
    Draw the life of an exchange.

    Returns:
        A Mermaid state diagram.
    """
    drawn = _states(
        http_exchange.TRANSITIONS, http_exchange.ExchangeStage.BEGINNING, http_exchange.ExchangeStage.FINISHED
    )
    said = attribute_comments(http_exchange.ExchangeStage)
    rows = [(f"`{stage.value}`", said[stage.name]) for stage in http_exchange.ExchangeStage]
    return drawn + "\n" + table(("stage", ""), rows)


def source() -> str:
    """
    Draw the life of a source of credentials.

    Returns:
        A Mermaid state diagram.
    """
    return _states(interface.PHASE_CHANGES, "starting", "stopped")


def _states(transitions: Mapping[tuple[Any, Any], Any], first: object, last: object) -> str:
    together: dict[tuple[str, str], list[str]] = {}
    for (before, what), afters in transitions.items():
        for after in afters if isinstance(afters, tuple) else (afters,):
            said = str(what.value) if isinstance(what, Enum) else str(what)
            together.setdefault((_name(before), _name(after)), []).append(said)
    lines = ["stateDiagram-v2", f"  [*] --> {_name(first)}"]
    lines.extend(f"  {before} --> {after}: {'<br>'.join(whats)}" for (before, after), whats in together.items())
    return _fenced([*lines, f"  {_name(last)} --> [*]"])


def _name(state: object) -> str:
    text = str(state.value) if isinstance(state, Enum) else str(state)
    if not re.fullmatch(r"\w+", text):
        raise PageBroken(f"{text!r} is no name of a state")
    return text


def _fenced(lines: list[str]) -> str:
    for line in lines:
        # Mermaid ends a label at either of them.
        if ";" in line or line.count(":") > 1:
            raise PageBroken(f"no label: {line}")
    return "".join(f"{line}\n" for line in ("```mermaid", *lines, "```"))
