"""
Strict YAML 1.2, so that two readers cannot interpret a document differently.

Accepts documents of mappings with text keys, lists and the scalars of the core schema (YAML 1.2.2, section 10.3.2).
Refuses what readers interpret differently or what expands a small text: duplicate keys, tags, anchors and aliases,
merge keys, directives, several documents where one is expected, numbers with leading zeros, numbers that are not
finite, deep nesting.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from svc.errors import SvcError

MAX_DEPTH: Final = 32
MAX_DOCUMENTS: Final = 1024
MAX_DIGITS: Final = 20

_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL: Final = re.compile(r"0o[0-7]+\Z")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE: Final = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")

#: Line breaks of YAML 1.1 only (section 5.4): where a comment ends depends on the version that a reader implements.
_OTHER_BREAK: Final = re.compile("[\x85\u2028\u2029]")
#: A directive, before the document and among blank lines and comments.
_DIRECTIVE: Final = re.compile(r"\ufeff?(?:[ \t]*(?:#[^\r\n]*)?[\r\n])*%")

_UNUSABLE: Final = re.compile("[\x00\ud800-\udfff]")
#: Characters that JSON need not escape, and that YAML does not accept or treats as the end of a line.
_NOT_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class YamlRefused(SvcError):
    """the YAML document is not acceptable: {defect}"""

    reason = "malformed"
    defect: str


def json_text(value: object, *, indent: int | None = None) -> str:
    """Write JSON that YAML reads as the same."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def loads(text: str, *, max_depth: int = MAX_DEPTH) -> object:
    """
    Parse one YAML document into dict with text keys, list, str, int, float, bool or None; an empty text is None.

    Raises:
        YamlRefused: with ``defect`` naming what was found and where.
    """
    documents = loads_all(text, max_depth=max_depth, max_documents=1)
    return documents[0] if documents else None


def loads_all(text: str, *, max_depth: int = MAX_DEPTH, max_documents: int = MAX_DOCUMENTS) -> list[object]:
    """
    Parse the documents of a YAML stream, separated by ``---``; see :func:`loads`.

    Raises:
        YamlRefused: with ``defect`` naming what was found and where.
    """
    if found := _OTHER_BREAK.search(text):
        raise YamlRefused(defect=f"the character U+{ord(found[0]):04X}, which ends the line for some readers")
    if _DIRECTIVE.match(text):
        raise YamlRefused(defect="a directive: nothing but YAML 1.2 is read")
    documents: list[_Document] = []
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if isinstance(event, DocumentStartEvent):
                if event.version is not None or event.tags:
                    raise _refused("a directive: nothing but YAML 1.2 is read", event)
                if len(documents) == max_documents:
                    raise _refused(
                        "a second document" if max_documents == 1 else f"more than {max_documents} documents", event
                    )
                documents.append(_Document(max_depth))
            elif documents:
                documents[-1].feed(event)
    except YamlRefused:
        raise
    except MarkedYAMLError as error:
        problem = str(error.problem or error.context or "not YAML").split("\n")[0]
        raise YamlRefused(defect=_location(error.problem_mark) + problem) from error
    except Exception as error:
        # The scanner also raises AssertionError, KeyError and others for invalid text.
        raise YamlRefused(defect=str(error).split("\n")[0] or "not YAML") from error
    return [document.value for document in documents]


class _Document:
    """Builds the value of a document from the events of its text, without recursion."""

    def __init__(self, max_depth: int) -> None:
        self.value: object = None
        self._max_depth = max_depth
        self._open: list[dict[str, object] | list[object]] = []
        #: For each open container the key whose value is read next; None for lists and where a key is read next.
        self._keys: list[str | None] = []

    def feed(self, event: Event) -> None:
        """Process the next event of the parser."""
        if isinstance(event, AliasEvent):
            raise _refused(f"the alias *{event.anchor}: aliases are not read, write the value out", event)
        elif isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
            self._feed_node(event)
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            self._open.pop()
            self._keys.pop()

    def _feed_node(self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent) -> None:
        if event.anchor is not None:
            raise _refused(f"the anchor &{event.anchor}: anchors are not read, write the value out", event)
        if event.tag is not None:
            raise _refused(f"the tag {event.tag}: tags are not read", event)
        wants_key = bool(self._open) and isinstance(self._open[-1], dict) and self._keys[-1] is None
        if isinstance(event, ScalarEvent):
            value = _resolved(event) if event.implicit[0] else str(event.value)
            if isinstance(value, str) and _UNUSABLE.search(value):
                raise _refused("a NUL or a lone surrogate", event)
            if wants_key:
                self._set_key(value, event)
            else:
                self._add(value)
            return
        if wants_key:
            raise _refused("a key that is not text", event)
        if len(self._open) == self._max_depth:
            raise _refused(f"nesting deeper than {self._max_depth}", event)
        container: dict[str, object] | list[object] = {} if isinstance(event, MappingStartEvent) else []
        self._add(container)
        self._open.append(container)
        self._keys.append(None)

    def _set_key(self, key: object, event: ScalarEvent) -> None:
        if not isinstance(key, str):
            raise _refused(f"the key {event.value or 'null'} is not text: put it in quotes", event)
        if key == "<<" and event.implicit[0]:
            raise _refused("the merge key <<: write the values out", event)
        if key in self._open[-1]:
            raise _refused(f"the key {key} appears twice", event)
        self._keys[-1] = key

    def _add(self, value: object) -> None:
        if not self._open:
            self.value = value
            return
        parent = self._open[-1]
        if isinstance(parent, list):
            parent.append(value)
            return
        key = self._keys[-1]
        if key is not None:
            parent[key] = value
            self._keys[-1] = None


def _resolved(event: ScalarEvent) -> object:
    """Resolve a plain scalar (section 10.3.2)."""
    text = str(event.value)
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _NOT_FINITE.match(text):
        raise _refused(f"the number {text}, which is not finite", event)
    for pattern, base in ((_INTEGER, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.match(text):
            if base == 10 and len(digits := text.lstrip("+-")) > 1 and digits.startswith("0"):
                raise _refused(f"the number {text}: with a leading zero it is octal for some readers", event)
            if len(text) > MAX_DIGITS:
                raise _refused(f"a number of more than {MAX_DIGITS} digits", event)
            return int(text, 0 if base != 10 else 10)
    if _FLOAT.match(text):
        number = float(text)
        if not math.isfinite(number):
            raise _refused("a number beyond all floating-point numbers", event)
        return number
    return text


def _refused(what: str, event: Event) -> YamlRefused:
    return YamlRefused(defect=_location(event.start_mark) + what)


def _location(mark: object) -> str:
    line, column = getattr(mark, "line", None), getattr(mark, "column", None)
    return f"line {line + 1}, column {column + 1}: " if line is not None and column is not None else ""
