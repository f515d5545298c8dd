"""
Reads a status document (``svc.status/1``) that another process has sent.

The document is not trusted: the members that :class:`~svc.process.status.Status` has must have their types, and others
are ignored, so that a newer process can have more of them. Texts are as they came, to be escaped where they are shown.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from svc.cli.status.addresses import AdminAddress
from svc.cli.status.fetch import MAX_DOCUMENT, foreign
from svc.process.status import SCHEMA, Status, member_name
from svc.strictjson import JsonRefused, loads_object
from svc.telemetry.health import Condition

_T = TypeVar("_T")

_NAMES: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
#: What a condition leaves out while it holds.
_CONDITION: Final = {"reason": "", "message": ""}


class _Malformed(ValueError):
    """What is wrong with a document."""


def parse_status(data: bytes, address: AdminAddress) -> tuple[Status, dict[str, object]]:
    """
    Read the document that came from an address.

    Returns:
        The status, and the document itself.

    Raises:
        StatusUnavailable: with the first defect.
    """
    try:
        document = loads_object(data, max_bytes=MAX_DOCUMENT, fractions=True)
        for name, expected in (("schema", SCHEMA), ("v", 1)):
            if document.get(name) != expected:
                raise _Malformed(f"its {name} is {document.get(name)!r}, not {expected!r}")
        return _read(Status, document, ""), document
    except JsonRefused as error:
        raise foreign(address, f"its answer is not acceptable JSON: {error.defect}") from error
    except _Malformed as error:
        raise foreign(address, str(error)) from error


def _read(kind: type[_T], members: Mapping[str, object], where: str) -> _T:
    if kind is Condition:
        members = {**_CONDITION, **members, "holds": members.get("ok")}
    found: dict[str, object] = {}
    for name, member, expected, required in _fields(kind):  # type: ignore[arg-type]  # classes are hashable
        value = members.get(member)
        if value is not None:
            found[name] = _value(expected, value, f"{where}{member}")
        elif required:
            raise _Malformed(f"{where}{member} is missing")
    return kind(**found)


@cache
def _fields(kind: type[Any]) -> tuple[tuple[str, str, Any, bool], ...]:
    """Name, member, type and whether it is required, of each field."""
    hints = get_type_hints(kind)
    missing = dataclasses.MISSING
    return tuple(
        (each.name, member_name(each.name), hints[each.name], each.default is each.default_factory is missing)
        for each in dataclasses.fields(kind)
    )


def _value(expected: Any, value: object, where: str) -> object:
    if get_origin(expected) in (Union, types.UnionType):
        expected = next(each for each in get_args(expected) if each is not type(None))
    origin, inner = get_origin(expected), get_args(expected)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(inner[0], each, f"{where}[{number}]") for number, each in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {name: _value(inner[1], each, f"{where}.{name}") for name, each in value.items()}
    if dataclasses.is_dataclass(expected) and isinstance(value, dict):
        return _read(expected, value, f"{where}.")  # type: ignore[arg-type]  # a class, not an instance
    if expected is datetime and isinstance(value, str):
        return _instant(value, where)
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if expected in _NAMES and type(value) is expected:
        return value
    raise _Malformed(f"{where} is not {_expected_name(expected)}")


def _expected_name(expected: Any) -> str:
    if get_origin(expected) is tuple:
        return "a list"
    return "a time" if expected is datetime else _NAMES.get(expected, "an object")


def _instant(text: str, where: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is None:
            raise ValueError("it has no time zone")
        return instant.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _Malformed(f"{where} is not a time with a time zone") from error
