"""The definitions of custom resources whose content is a model: their schemas are those that the API server takes."""

from __future__ import annotations

from io import StringIO
from typing import Any, Final

from pydantic import BaseModel
from ruamel.yaml import YAML

from docs.generator.configuration import description, models
from svc.kube.kinds import CLUSTER_POLICIES, POLICIES, Kind
from svc.kube.status import MAX_MESSAGE
from svc.manager.policies.resource import SvcClusterPolicySpec, SvcPolicySpec

#: The kinds, with the short name, the model of ``spec``, and what it is.
RESOURCES: Final[dict[str, tuple[Kind, str, type[BaseModel], str]]] = {
    CLUSTER_POLICIES.plural: (
        CLUSTER_POLICIES,
        "svccp",
        SvcClusterPolicySpec,
        "A policy of the cluster: who may do what in pods of the namespaces that it is about, and what is injected "
        "into them. Unknown keys are refused by the webhook of the manager.",
    ),
    POLICIES.plural: (
        POLICIES,
        "svcp",
        SvcPolicySpec,
        "A policy of one namespace. It only narrows what policies of the cluster allow, where there are any. Unknown "
        "keys are refused by the webhook of the manager.",
    ),
}
#: What the API server takes of a JSON Schema.
_TAKEN: Final = (
    *("type", "description", "format", "pattern", "enum", "items", "properties", "required", "additionalProperties"),
    *("minimum", "maximum", "minLength", "maxLength", "maxItems", "maxProperties"),
)
#: The longest text: an object has 1.5 MiB at most.
_MAX_TEXT: Final = 1 << 20
_CONDITION: Final[dict[str, Any]] = {
    "type": {"type": "string", "description": "What it is about.", "maxLength": 316},
    "status": {"type": "string", "description": "Whether it holds.", "enum": ["True", "False", "Unknown"]},
    "observedGeneration": {
        "type": "integer",
        "format": "int64",
        "minimum": 0,
        "description": "The generation of the policy that was looked at.",
    },
    "lastTransitionTime": {
        "type": "string",
        "format": "date-time",
        "description": "Since when it has this status.",
    },
    "reason": {
        "type": "string",
        "description": "Why, in one word.",
        "minLength": 1,
        "maxLength": 1024,
        "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    },
    "message": {"type": "string", "description": "Why, in a sentence.", "maxLength": MAX_MESSAGE},
}
_STATUS: Final[dict[str, Any]] = {
    "type": "object",
    "description": "What became of it; the manager writes it.",
    "properties": {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation of the policy that the manager looked at last.",
        },
        "matchedNamespaces": {
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "description": "How many namespaces whose pods get the proxy it is about.",
        },
        "conditions": {
            "type": "array",
            "description": "Accepted: it is valid. Programmed: the policy files of its namespaces have it. Conflicted: "
            "other policies take an effect from it. Ready: accepted and programmed.",
            "maxItems": 16,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "description": "One condition.",
                "required": ["type", "status", "lastTransitionTime", "reason", "message"],
                "properties": _CONDITION,
            },
        },
    },
}


def _column(name: str, path: str, text: str, kind: str = "string", **more: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "description": text, **more}


_COLUMNS: Final = [
    _column("Action", ".spec.authorization.action", "What its rules do; Allow where it is empty."),
    _column("Mode", ".spec.authorization.mode", "DryRun where it decides nothing."),
    _column("Namespaces", ".status.matchedNamespaces", "How many namespaces it is about.", "integer"),
    _column("Ready", '.status.conditions[?(@.type=="Ready")].status', "Whether it is in force."),
    _column("Reason", '.status.conditions[?(@.type=="Ready")].reason', "Why, in one word."),
    _column(
        *("Conflicted", '.status.conditions[?(@.type=="Conflicted")].status'),
        "Whether other policies take an effect from it.",
        priority=1,
    ),
    _column("Age", ".metadata.creationTimestamp", "How long it has been there.", "date"),
]


def spec_schema(model: type[BaseModel]) -> dict[str, Any]:
    """
    Return the schema of a model as the API server takes it.

    Args:
        model: of ``spec``.

    Returns:
        The schema; nothing of a document is removed before the webhook sees it.
    """
    document = model.model_json_schema(by_alias=True)
    known = {each.__name__: each for each in models(model)}

    def convert(part: dict[str, Any], said: str = "") -> dict[str, Any]:
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            return {**convert_model(known[name], document["$defs"][name]), **({"description": said} if said else {})}
        if "anyOf" in part:
            (only,) = [each for each in part["anyOf"] if each.get("type") != "null"]
            return convert(only, said)
        found = {key: value for key, value in part.items() if key in _TAKEN}
        if said:
            found["description"] = said
        if "items" in found:
            found["items"] = {"description": "One of them.", **convert(found["items"])}
        if values := list(part.get("patternProperties", {}).values()):
            found["additionalProperties"] = {"description": "One of them.", **convert(values[0])}
        if found.get("type") == "string" and "enum" not in found:
            found.setdefault("maxLength", _MAX_TEXT)
        return found

    def convert_model(of: type[BaseModel], part: dict[str, Any]) -> dict[str, Any]:
        properties = {
            field.alias or name: convert(
                part["properties"][field.alias or name], description(of, name).replace("*Together*", "Together")
            )
            for name, field in of.model_fields.items()
        }
        found = {
            "type": "object",
            "description": " ".join((of.__doc__ or "").split()),
            # The API server would remove unknown keys before the webhook sees them, and a rule would become wider.
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": properties,
        }
        return found | ({"required": part["required"]} if "required" in part else {})

    return convert_model(model, document)


def definition(name: str) -> str:
    """
    Write a definition.

    Args:
        name: the plural.

    Returns:
        The document.
    """
    kind, short, model, text = RESOURCES[name]
    properties = {
        "apiVersion": {"type": "string", "description": "The version of this schema."},
        "kind": {"type": "string", "description": f"{kind.name}."},
        "metadata": {"type": "object"},
        "spec": spec_schema(model),
        "status": _STATUS,
    }
    schema = {"type": "object", "description": text, "required": ["spec"], "properties": properties}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": _COLUMNS,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
        "shortNames": [short],
        "categories": ["svc-platform"],
    }
    scope = "Namespaced" if kind.namespaced else "Cluster"
    document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "scope": scope, "names": names, "versions": [version]},
    }
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.width, yaml.sort_base_mapping_type_on_output = False, 120, False  # type: ignore[assignment]
    yaml.representer.ignore_aliases = lambda _data: True
    stream = StringIO()
    yaml.dump(document, stream)
    return "# Generated from svc/manager/policies/resource.py.\n" + stream.getvalue()
