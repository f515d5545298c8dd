"""The registry of events against the code that emits them, and against the documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.events.registry import ENUMERATIONS, EVENTS

ROOT = Path(__file__).parents[2]
REGISTRY = ROOT / "svc" / "telemetry" / "events"
PAGE = ROOT / "docs" / "telemetry.md"
#: What has the form of an event's name and is a logger's.
LOGGERS = {"svc.authority.library"}
_ENUMERATIONS = {each.__name__: each for each in ENUMERATIONS}
_NAME = re.compile(r"svc(\.[a-z][a-z0-9_]*){2,3}\Z")


def sources() -> Iterator[tuple[Path, ast.Module]]:
    """Every module of the product but those of the registry."""
    for path in sorted((ROOT / "svc").rglob("*.py")):
        if REGISTRY not in path.parents:
            yield path, ast.parse(path.read_text())


def emitted() -> dict[str, set[str]]:
    """The names of events in the code, with their files."""
    found: dict[str, set[str]] = {}
    for path, tree in sources():
        for node in ast.walk(tree):
            for name in _names(node):
                found.setdefault(name, set()).add(path.name)
    return found


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _ENUMERATIONS:
        found = _ENUMERATIONS[node.value.id].__members__.get(node.attr)
        if found is not None:
            yield found.event_name
        elif node.attr.isupper():
            yield f"{node.value.id}.{node.attr}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.match(node.value):
        yield node.value


def is_module(name: str) -> bool:
    """Whether a dotted name is a module's."""
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


class RegistryTests(SynchronousTestCase):
    """``svc/telemetry/events``."""

    def test_every_event_has_an_emitter(self) -> None:
        """Every name of the registry is emitted somewhere."""
        self.assertEqual(set(), set(EVENTS) - set(emitted()))

    def test_every_emitted_name_is_registered(self) -> None:
        """Whatever the code calls an event is registered: another name would become a message of the runtime."""
        named = {name for name in emitted() if not is_module(name)} - LOGGERS
        self.assertEqual(set(), named - set(EVENTS))
        self.assertGreater(len(named), 40)

    def test_every_event_is_documented(self) -> None:
        """docs/telemetry.md has one row for each event, with its category, its severity and when it comes."""
        rows = re.findall(r"^\| `(svc\.[a-z0-9_.]+)` \| (\w+) \| (\w+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
        shown = {name: (category, severity) for name, category, severity, _when in rows}
        wanted = {each.event_name: (each.category.value, each.severity.name) for each in EVENTS.values()}
        self.assertEqual(set(), set(wanted) - set(shown), "no row in docs/telemetry.md")
        self.assertEqual(wanted, shown)
        self.assertEqual(len(wanted), len(rows))
        self.assertEqual([], [name for name, *_kind, when in rows if len(when) < 10])
