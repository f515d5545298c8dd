"""The public names: each is exported, documented and annotated as a whole."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol, cast

from twisted.trial.unittest import SynchronousTestCase

from docs.generator.interface import PACKAGES, public
from svc.errors import SvcError

#: What llhttp calls; it says what it gives.
CALLBACK = re.compile(r"Parser\.on_\w+\Z")


def functions() -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Each public function, and each method that a public class of ours defines, with whether it is a shell's."""
    seen: set[object] = set()
    for package in PACKAGES:
        for name, thing in public(package):
            if inspect.isfunction(thing):
                yield f"{package}.{name}", thing, False
            elif inspect.isclass(thing) and thing not in seen:
                seen.add(thing)
                for attribute, found in vars(thing).items():
                    if isinstance(found, classmethod | staticmethod):
                        found = found.__func__
                    elif isinstance(found, property):
                        found = found.fget
                    if _is_ours(attribute, found):
                        yield f"{package}.{name}.{attribute}", found, attribute != attribute.lower()


def own_raises(function: Callable[..., Any]) -> set[str]:
    """The classes that the body of a function itself raises, without what it raises in functions inside."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    found: set[str] = set()
    waiting: list[ast.AST] = list(cast(ast.FunctionDef, tree).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            target = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(target, ast.Name) and target.id[:1].isupper():
                found.add(target.id)
        waiting.extend(ast.iter_child_nodes(node))
    return found - {"NotImplementedError"}


def returns_something(function: Callable[..., Any]) -> bool:
    """Whether the annotation promises a value."""
    return str(function.__annotations__.get("return", "None")) not in ("None", "NoReturn")


class ExportTests(SynchronousTestCase):
    """What packages export."""

    def test_every_name_is_there(self) -> None:
        """Each exported name can be had, once, and nothing that begins with an underscore is exported."""
        for package in PACKAGES:
            module = import_module(package)
            self.assertEqual(len(module.__all__), len(set(module.__all__)), package)
            for name in module.__all__:
                self.assertFalse(name.startswith("_"), f"{package}.{name}")
                self.assertIsNotNone(getattr(module, name), f"{package}.{name}")
            with self.assertRaises(AttributeError):
                getattr(module, "no_such_name")  # noqa: B009 (the lazy path is meant)

    def test_packages_load_what_is_asked_for(self) -> None:
        """Importing a package of the shell loads no module of it."""
        for package in ("svc.embedding", "svc.transport", "svc.workload", "svc.notary", "svc.broker", "svc.testing"):
            code = f"import sys, {package}; print([m for m in sys.modules if m.startswith('{package}.')])"
            found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            self.assertEqual(found.stdout.strip(), "[]", package)

    def test_errors_are_ours(self) -> None:
        """Each exported exception has a reason and a sentence."""
        count = 0
        for package in PACKAGES:
            for name, thing in public(package):
                if inspect.isclass(thing) and issubclass(thing, Exception):
                    self.assertTrue(issubclass(thing, SvcError), name)
                    self.assertRegex(getattr(thing, "reason", ""), r"\A[a-z][a-z0-9_]+\Z", name)
                    self.assertTrue(thing.__doc__, name)
                    count += 1
        self.assertGreater(count, 60)


class DocumentationTests(SynchronousTestCase):
    """What is said of each name."""

    maxDiff = None

    def test_classes_and_functions_have_docstrings(self) -> None:
        """Of their own, not of a base class or of what dataclasses make up."""
        for package in PACKAGES:
            for name, thing in public(package):
                if inspect.isclass(thing) or inspect.isfunction(thing):
                    self.assertTrue(thing.__dict__.get("__doc__") or thing.__doc__, f"{package}.{name}")
                    self.assertFalse((thing.__doc__ or "").startswith(f"{name}("), f"{package}.{name}")

    def test_arguments_results_and_errors_are_described(self) -> None:
        """Args, Returns and Raises stand where there are any; interfaces of Twisted are described there."""
        wrong, judged = [], 0
        for name, function, shell in functions():
            text = inspect.getdoc(function) or ""
            owner = name.rsplit(".", 1)[0]
            if name.endswith(".__init__"):
                continue
            if not text:
                wrong.append(f"{name}: no docstring")
            if shell or CALLBACK.search(name) or text.startswith("See ") or _is_protocol(owner):
                continue
            judged += 1
            parameters = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
            attribute = isinstance(inspect.getattr_static(_owner(name), name.rsplit(".", 1)[1], None), property)
            if parameters and "Args:" not in text:
                wrong.append(f"{name}: no Args")
            for each in parameters:
                if not re.search(rf"^\s*\*{{0,2}}{re.escape(each)}: ", text, re.MULTILINE):
                    wrong.append(f"{name}: {each} is not described")
            if returns_something(function) and not attribute and "Returns:" not in text and "Yields:" not in text:
                wrong.append(f"{name}: no Returns")
            raised = own_raises(function)
            if raised and "Raises:" not in text:
                wrong.append(f"{name}: no Raises for {', '.join(sorted(raised))}")
        self.assertEqual(wrong, [])
        self.assertGreater(judged, 100)

    def test_constructors_are_described_at_the_class(self) -> None:
        """Each argument of a constructor that is written out stands under Args of the class."""
        wrong = []
        for package in PACKAGES:
            for name, thing in public(package):
                if inspect.isclass(thing) and "__init__" in vars(thing) and not hasattr(thing, "__dataclass_fields__"):
                    if issubclass(thing, SvcError) or _is_protocol(f"{package}.{name}"):
                        continue
                    text = f"{inspect.getdoc(thing)}\n{thing.__init__.__doc__}"
                    for each in list(inspect.signature(thing.__init__).parameters)[1:]:
                        if not re.search(rf"^\s*\*{{0,2}}{re.escape(each)}: ", text, re.MULTILINE):
                            wrong.append(f"{package}.{name}: {each}")
        self.assertEqual(wrong, [])

    def test_signatures_are_annotated(self) -> None:
        """Every argument and result has its type."""
        wrong = []
        for name, function, _shell in functions():
            parameters = inspect.signature(function).parameters
            wanted = {each for each in parameters if each not in ("self", "cls")} | {"return"}
            missing = wanted - set(function.__annotations__)
            if missing and not getattr(function, "__dataclass_params__", None) and not _made_up(function):
                wrong.append(f"{name}: {', '.join(sorted(missing))}")
        self.assertEqual(wrong, [])


def _made_up(function: Callable[..., Any]) -> bool:
    """Whether a dataclass wrote it."""
    return "<string>" in function.__code__.co_filename


def _is_ours(attribute: str, found: object) -> bool:
    public_name = attribute == "__init__" or not attribute.startswith("_")
    return inspect.isfunction(found) and found.__module__.startswith("svc.") and public_name


def _owner(name: str) -> object:
    owner, _, _ = name.rpartition(".")
    package = next(each for each in sorted(PACKAGES, key=len, reverse=True) if f"{owner}.".startswith(f"{each}."))
    return import_module(package) if owner == package else getattr(import_module(package), owner[len(package) + 1 :])


def _is_protocol(owner: str) -> bool:
    found = _owner(f"{owner}.x") if owner not in PACKAGES else None
    return inspect.isclass(found) and Protocol in found.__mro__ and getattr(found, "_is_protocol", False)
