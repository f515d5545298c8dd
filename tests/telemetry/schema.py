"""As much of JSON Schema as the schema of log records uses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "svc.log.1.json").read_text())
_KNOWN = {
    "$schema",
    "$id",
    "title",
    "description",
    "type",
    "additionalProperties",
    "required",
    "properties",
    "pattern",
    "enum",
    "const",
    "maxLength",
    "maxProperties",
    "minimum",
}
_TYPES: dict[str, Any] = {
    "object": dict,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def defects(value: object, schema: dict[str, Any], where: str = "$") -> list[str]:
    """List what is wrong with a value; a keyword that is not known here is a defect of the schema."""
    found = [f"{where}: the schema uses {keyword}" for keyword in schema.keys() - _KNOWN]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return [*found, f"{where}: {value!r} is no {kinds}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is not one of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{where}: {value!r} is not {schema['const']!r}")
    if isinstance(value, str):
        if not re.search(schema.get("pattern", ""), value):
            found.append(f"{where}: {value!r} does not match")
        if len(value) > schema.get("maxLength", len(value)):
            found.append(f"{where}: too long")
    if isinstance(value, int) and value < schema.get("minimum", value):
        found.append(f"{where}: too small")
    if isinstance(value, dict):
        found += _object_defects(value, schema, where)
    return found


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _object_defects(value: dict[str, Any], schema: dict[str, Any], where: str) -> list[str]:
    properties = schema.get("properties", {})
    found = [f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    if len(value) > schema.get("maxProperties", len(value)):
        found.append(f"{where}: too many members")
    for name, member in value.items():
        rule = properties.get(name, schema.get("additionalProperties", True))
        if rule is False:
            found.append(f"{where}: {name} is not known")
        elif isinstance(rule, dict):
            found += defects(member, rule, f"{where}.{name}")
    return found
