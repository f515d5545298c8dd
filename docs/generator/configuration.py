"""The keys of the configuration files: a table for each mapping, and a JSON Schema for editors."""

from __future__ import annotations

import json
import re
import textwrap
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs.generator.docstrings import attribute_docstrings
from docs.generator.pages import PageBroken, table
from svc.agent.config import AgentSettings
from svc.authority.config import AuthoritySettings
from svc.broker.config import BrokerSettings
from svc.chart.values import ChartValues
from svc.compartments.document import ContextsSettings
from svc.manager.config import ManagerSettings
from svc.policyfiles.cases import CasesDocument
from svc.policyfiles.document import API_VERSION, DenyListDocument, PolicyDocument
from svc.process.settings import DaemonSettings
from svc.proxy.config import ProxySettings
from svc.registrar.config import RegistrarSettings
from svc.settings import ValueFormat

FILES: dict[str, type[BaseModel]] = {
    "proxy": ProxySettings,
    "authority": AuthoritySettings,
    "broker": BrokerSettings,
    "agent": AgentSettings,
    "manager": ManagerSettings,
    "registrar": RegistrarSettings,
    "contexts": ContextsSettings,
}


#: The kinds of policy documents; `SvcClusterPolicy` has the keys of `SvcPolicy`.
DOCUMENTS: dict[str, type[BaseModel]] = {
    "SvcPolicy": PolicyDocument,
    "SvcDenyList": DenyListDocument,
    "SvcPolicyTest": CasesDocument,
}
#: The values of the chart.
CHART: dict[str, type[BaseModel]] = {"values": ChartValues}


def schema_file(file: str) -> str:
    """
    Name the file of a schema.

    Args:
        file: as for :func:`schema`.

    Returns:
        The name in ``svc/data/schemas``, or in ``svc/data/chart``.
    """
    if file in CHART:
        return f"{file}.schema.json"
    return f"{file}.config.json" if file in FILES else f"{file}.json"


def models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """
    List the mappings of a file.

    Args:
        root: the model of the whole file.

    Returns:
        The models, the root first, each once.
    """
    found = [root]
    for model in found:
        for field in model.model_fields.values():
            found.extend(each for each in _models_in(field.annotation) if each not in found)
    return found


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def keys(model: type[BaseModel]) -> str:
    """
    Write the table of one mapping; keys that all daemons have come last.

    Args:
        model: its model.

    Returns:
        The table.

    Raises:
        PageBroken: a key has no description.
    """
    rows = []
    own = model.__annotations__ if issubclass(model, DaemonSettings) else model.model_fields
    for name in dict.fromkeys([*(each for each in own if each in model.model_fields), *model.model_fields]):
        field = model.model_fields[name]
        kind = _kind(field.annotation, field.metadata)
        rows.append((f"`{field.alias or name}`", kind, _default(field), description(model, name)))
    return table(("key", "type and limits", "default", "meaning"), rows)


def description(model: type[BaseModel], name: str) -> str:
    """
    The description of a key.

    Args:
        model: the mapping.
        name: the key.

    Returns:
        The text.

    Raises:
        PageBroken: there is none.
    """
    found = attribute_docstrings(model).get(name)
    if not found:
        raise PageBroken(f"{model.__module__}.{model.__name__}.{name} has no description: write a string below it")
    return found


def _kind(annotation: Any, metadata: list[Any]) -> str:
    annotation, metadata = _unwrapped(annotation, metadata)
    written = _written(metadata)
    origin, inner = get_origin(annotation), get_args(annotation)
    if written is not None:
        kind = written.kind
    elif origin is Literal:
        kind = ", ".join(f"`{each}`" for each in inner)
    elif origin is tuple:
        kind = f"list: {_kind(inner[0], [])}"
    elif origin is dict:
        kind = "mapping of mappings" if list(_models_in(inner[1])) else "mapping of texts"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        kind = "mapping"
    elif origin in (Union, types.UnionType):
        kind = " or ".join(_kind(each, []) for each in inner)
    else:
        kind = {bool: "`true`, `false`", int: "whole number", str: "text"}[annotation]
    bounds = _bounds(metadata, str if written is None else written.show, "entries" if origin is tuple else "characters")
    return f"{kind}, {bounds}" if bounds else kind


def _bounds(metadata: list[Any], show: Any, counted: str) -> str:
    low = next((each.ge for each in metadata if isinstance(each, Ge)), None)
    high = next((each.le for each in metadata if isinstance(each, Le)), None)
    longest = next((each.max_length for each in metadata if isinstance(each, MaxLen)), None)
    if low is not None and high is not None:
        return f"{show(low)} to {show(high)}"
    if low is not None or high is not None:
        raise PageBroken("a number with one bound only")
    return f"at most {longest} {counted}" if longest is not None else ""


def _unwrapped(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    """Take ``Annotated`` and ``| None`` off."""
    metadata = list(metadata)
    while True:
        origin, inner = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            annotation, metadata = inner[0], [*annotation.__metadata__, *metadata]
        elif origin in (Union, types.UnionType) and type(None) in inner and len(inner) == 2:
            annotation = next(each for each in inner if each is not type(None))
        else:
            return annotation, metadata


def _written(metadata: list[Any]) -> ValueFormat | None:
    found = [each for each in metadata if isinstance(each, ValueFormat)]
    return found[-1] if found else None


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, BaseModel):
        given = value.model_dump(exclude_unset=True)
        return f"`{json.dumps(given, sort_keys=True)}`" if given else "see there"
    return f"`{_shown(field, value)}`"


def _shown(field: FieldInfo, value: Any) -> str:
    written = _written(_unwrapped(field.annotation, field.metadata)[1])
    if written is not None:
        return written.show(value)
    return json.dumps(value) if isinstance(value, bool) else str(value)


def schema(file: str) -> str:
    """
    Write the JSON Schema of a configuration file.

    Args:
        file: such as ``proxy``, the kind of a policy document, or ``values``.

    Returns:
        The document.
    """
    root = (FILES | DOCUMENTS | CHART)[file]
    document = root.model_json_schema()
    for model in models(root):
        part = document if model is root else document["$defs"][model.__name__]
        part.pop("title", None)
        part["description"] = " ".join((model.__doc__ or "").split())
        for name, field in model.model_fields.items():
            _describe(part["properties"][field.alias or name], model, name, field)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://svc.internal/schemas/{schema_file(file)}",
        "title": _title(file),
    }
    return json.dumps({**head, **document}, indent=2, ensure_ascii=False) + "\n"


def _title(file: str) -> str:
    if issubclass(model := (FILES | DOCUMENTS | CHART)[file], DaemonSettings):
        return f"Configuration of svc-{file}"
    return f"{file} of {API_VERSION}" if file in DOCUMENTS else " ".join((model.__doc__ or "").split())


def _describe(part: dict[str, Any], model: type[BaseModel], name: str, field: FieldInfo) -> None:
    part.pop("title", None)
    part.pop("default", None)
    part["description"] = description(model, name).replace("*Together*", "Together")
    if field.is_required():
        return
    value = field.get_default(call_default_factory=True)
    if isinstance(value, str | bool | int | float) and not isinstance(value, BaseModel):
        written = _written(_unwrapped(field.annotation, field.metadata)[1])
        part["default"] = value if written is None else written.show(value).strip('"')


def chart_values() -> str:
    """
    Write ``values.yaml`` of the chart: each key with its default, and what it means.

    Returns:
        The document.
    """
    head = "# Generated from svc/chart/values.py, as values.schema.json and the tables of docs/chart.md.\n\n"
    return head + "".join(_values(ChartValues.model_construct(), ""))


def _values(values: BaseModel, indent: str) -> Iterator[str]:
    model = type(values)
    for name, field in model.model_fields.items():
        inner = next(_models_in(field.annotation), None)
        value = getattr(values, name, None)
        if value is None and not field.is_required():
            # No amount of that kind.
            continue
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", description(model, name))
        yield from (f"{indent}# {line}\n" for line in textwrap.wrap(text, 116 - len(indent)))
        if inner is not None:
            mapping = list(_values(inner.model_construct() if value is None else value, f"{indent}  "))
            yield f"{indent}{name}:\n" if mapping else f"{indent}{name}: {{}}\n"
            yield from mapping
        elif field.is_required():
            yield f"{indent}# {name}: required\n"
        else:
            written = _written(_unwrapped(field.annotation, field.metadata)[1])
            shown = value if written is None else written.show(value).strip('"')
            yield f"{indent}{name}: {json.dumps(shown)}\n"
