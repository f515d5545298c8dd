"""
Arguments of embedding programs: durations, and keys of the configuration by their names in Python.

Owns the errors of arguments: which one, its value, and what was expected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from svc.embedding.errors import ArgumentInvalid
from svc.proxy.config import NotarySettings
from svc.settings import MAX_DURATION, ConfigInvalid, ValueFormat, parse_duration

#: Seconds, or a text such as ``10s``.
Duration = float | str

_DURATION: Final = "seconds as a number, or a text such as '250ms', '10s' or '5m'; more than 0, at most 36500d"
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def seconds(argument: str, value: Duration) -> float:
    """
    Read a duration.

    Args:
        argument: its name, for the error.
        value: seconds, or a text such as ``10s``.

    Raises:
        ArgumentInvalid: it is neither, or not positive.
    """
    found = value
    if isinstance(value, str):
        try:
            found = parse_duration(value)
        except ValueError:
            found = math.nan
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= MAX_DURATION:
        raise ArgumentInvalid(argument=argument, value=repr(value), expected=_DURATION)
    return float(found)


def count(argument: str, value: int, least: int = 1) -> int:
    """
    Check a number of things.

    Raises:
        ArgumentInvalid: it is no whole number, or less than the least.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentInvalid(argument=argument, value=repr(value), expected=f"a whole number, at least {least}")
    return value


def argument_name(key: str) -> str:
    """The name in Python of a key of the configuration: ``pq_issuer`` for ``pqIssuer``."""
    return _WORD.sub("_", key).lower()


_NOTARY_KEYS: Final[Mapping[str, str]] = {argument_name(key): key for key in NotarySettings.model_fields}


def notary_document(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """
    Write keyword arguments as the section ``notary`` of a configuration file; numbers get their unit.

    Raises:
        ArgumentInvalid: no such argument, or a duration that is none.
    """
    document = {}
    for name, value in arguments.items():
        key = _NOTARY_KEYS.get(name)
        if key is None:
            suggestion = argument_name(name)
            expected = suggestion if suggestion in _NOTARY_KEYS else f"one of {', '.join(sorted(_NOTARY_KEYS))}"
            raise ArgumentInvalid(argument=name, value="no such argument", expected=expected)
        document[key] = _as_in_file(name, key, value)
    return document


def _as_in_file(name: str, key: str, value: Any) -> Any:
    metadata = NotarySettings.model_fields[key].metadata
    kind = next((each.kind for each in metadata if isinstance(each, ValueFormat)), None)
    if kind == "duration":
        return f"{seconds(name, value):.6f}s"
    if kind == "size" and isinstance(value, int) and not isinstance(value, bool):
        return f"{value}B"
    return list(value) if isinstance(value, tuple) else value


def argument_error(error: ConfigInvalid, name_of: Callable[[str], str]) -> ArgumentInvalid:
    """
    Name the argument in place of the key of the configuration.

    Args:
        name_of: the argument of a key.
    """
    problem = error.problems[0]
    expected = re.sub(r"\b[a-z]+[A-Z]\w*", lambda word: argument_name(word[0]), problem.expected)
    if problem.key == "notary":
        return ArgumentInvalid(argument="the arguments", value="given together", expected=expected)
    value = "missing" if problem.value is None else problem.value
    return ArgumentInvalid(argument=name_of(problem.key), value=value, expected=expected)
