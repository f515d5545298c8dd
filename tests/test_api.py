"""The public names: each is exported, documented and annotated."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from docs.generator.interface import PACKAGES, public
from svc.errors import SvcError


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each public function, and each method that a public class of ours defines."""
    seen: set[object] = set()
    for package in PACKAGES:
        for name, thing in public(package):
            if inspect.isfunction(thing):
                yield f"{package}.{name}", thing
            elif inspect.isclass(thing) and thing not in seen:
                seen.add(thing)
                for attribute, found in vars(thing).items():
                    if isinstance(found, classmethod | staticmethod):
                        found = found.__func__
                    elif isinstance(found, property):
                        found = found.fget
                    if _is_ours(attribute, found):
                        yield f"{package}.{name}.{attribute}", found  # type: ignore[misc]


def described(thing: object, section: str) -> list[str]:
    """The names that a section of a docstring describes, in order."""
    text = inspect.cleandoc(thing.__doc__ or "")
    found = re.search(rf"^{section}:\n((?:(?: .*)?\n)*)", f"{text}\n", re.MULTILINE)
    return re.findall(r"^    \*{0,2}([\w.]+): ", found[1], re.MULTILINE) if found else []


def error_names() -> set[str]:
    """The name of each subclass of SvcError in the modules that are loaded, and the public name of their base."""
    names, pending = {"NotaryError"}, [SvcError]
    while pending:
        kind = pending.pop()
        names.add(kind.__name__)
        pending.extend(kind.__subclasses__())
    return names


class ExportTests(SynchronousTestCase):
    """What packages export."""

    def test_every_name_exists(self) -> None:
        """Each exported name exists, is listed once and does not begin with an underscore."""
        for package in PACKAGES:
            module = import_module(package)
            self.assertEqual(len(module.__all__), len(set(module.__all__)), package)
            for name in module.__all__:
                self.assertFalse(name.startswith("_"), f"{package}.{name}")
                self.assertIsNotNone(getattr(module, name), f"{package}.{name}")
            with self.assertRaises(AttributeError):
                getattr(module, "no_such_name")  # noqa: B009 (the attribute is looked up lazily)

    def test_errors_are_ours(self) -> None:
        """Each exported exception has a reason and a sentence."""
        for package in PACKAGES:
            for name, thing in public(package):
                if inspect.isclass(thing) and issubclass(thing, Exception):
                    self.assertTrue(issubclass(thing, SvcError), name)
                    self.assertRegex(getattr(thing, "reason", ""), r"\A[a-z][a-z0-9_]+\Z", name)
                    self.assertTrue(thing.__doc__, name)


class DocumentationTests(SynchronousTestCase):
    """Docstrings and annotations of each name."""

    maxDiff = None

    def test_classes_and_functions_have_docstrings(self) -> None:
        """Each exported class and function has a docstring, which dataclasses did not generate."""
        for package in PACKAGES:
            for name, thing in public(package):
                if inspect.isclass(thing) or inspect.isfunction(thing):
                    self.assertTrue(thing.__doc__, f"{package}.{name}")
                    self.assertFalse((thing.__doc__ or "").startswith(f"{name}("), f"{package}.{name}")

    def test_described_arguments_exist(self) -> None:
        """Each name under Args is a parameter of the function, or of the constructor of the class."""
        classes = {
            f"{package}.{name}": thing
            for package in PACKAGES
            for name, thing in public(package)
            if inspect.isclass(thing) and described(thing, "Args")
        }
        wrong = []
        for name, thing in (*classes.items(), *functions()):
            parameters = inspect.signature(thing).parameters  # type: ignore[arg-type]
            wrong += [f"{name}: {each}" for each in described(thing, "Args") if each not in parameters]
        self.assertEqual(wrong, [])

    def test_described_errors_exist(self) -> None:
        """Each name under Raises is a built-in exception, a subclass of SvcError, or imported by the module."""
        wrong, ours = [], error_names()
        for name, function in functions():
            for each in described(function, "Raises"):
                if not (hasattr(builtins, each) or each in ours or each.split(".")[0] in function.__globals__):
                    wrong.append(f"{name}: {each}")
        self.assertEqual(wrong, [])

    def test_signatures_are_annotated(self) -> None:
        """Every argument and result has its type."""
        wrong = []
        for name, function in functions():
            parameters = inspect.signature(function).parameters
            wanted = {each for each in parameters if each not in ("self", "cls")} | {"return"}
            missing = wanted - set(function.__annotations__)
            if missing and not getattr(function, "__dataclass_params__", None) and not _is_generated(function):
                wrong.append(f"{name}: {', '.join(sorted(missing))}")
        self.assertEqual(wrong, [])


def _is_generated(function: Callable[..., Any]) -> bool:
    """Whether dataclasses generated the function."""
    return "<string>" in function.__code__.co_filename


def _is_ours(attribute: str, found: object) -> bool:
    public_name = attribute == "__init__" or not attribute.startswith("_")
    return inspect.isfunction(found) and found.__module__.startswith("svc.") and public_name
