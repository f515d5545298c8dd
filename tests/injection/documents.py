"""
Pods before and after the injection: the files of ``golden/``, and what applies a patch.

A file has ``pod``, and ``injected`` or ``refused`` (reason and message), and ``warnings`` where there are some. After a
change write the results anew, then look at what changed and run the tests::

    .venv/bin/python -m tests.injection.documents
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from svc.injection import InjectionRefused, InjectionSettings, inject
from svc.settings import parse

FOLDER = Path(__file__).parent / "golden"
TRUST_DOMAIN = "example.org"
SETTINGS = parse(
    """
    image: registry.example.org/svc:1.0
    source: 5f0c3b7a
    pqIssuer: svc-authority.svc-system.svc:8444
    pqIssuerID: spiffe://example.org/svc/authority
    notarization: workload
    """,
    InjectionSettings,
)
Document = dict[str, Any]


def patched(document: Any, operations: Iterable[Mapping[str, Any]]) -> Any:
    """Apply ``add`` and ``remove`` of RFC 6902 to a copy of a document, strictly."""
    document = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].removeprefix("/").split("/")
        ]
        target = document
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if operation["op"] == "remove":
            del target[int(last)]
        elif operation["op"] != "add":
            raise ValueError(f"an operation that is not known: {operation}")
        elif isinstance(target, list):
            place = len(target) if last == "-" else int(last)
            if not 0 <= place <= len(target):
                raise ValueError(f"no place in the list: {operation}")
            target.insert(place, copy.deepcopy(operation["value"]))
        else:
            target[last] = copy.deepcopy(operation["value"])
    return document


def injected(pod: Document, settings: InjectionSettings = SETTINGS) -> Document:
    """Inject into a pod."""
    result: Document = patched(pod, inject(pod, settings, TRUST_DOMAIN).operations)
    return result


def result_of(pod: Document) -> Document:
    """What a file of ``golden/`` says beside the pod."""
    try:
        found = inject(pod, SETTINGS, TRUST_DOMAIN)
    except InjectionRefused as error:
        return {"refused": {"reason": error.reason, "message": str(error)}}
    warnings = {"warnings": list(found.warnings)} if found.warnings else {}
    return {**warnings, "injected": patched(pod, found.operations)}


def proxy_of(pod: Document) -> Document:
    """The container of the proxy, which is the first init container."""
    container: Document = pod["spec"]["initContainers"][0]
    return container


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables with a value."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def golden() -> dict[str, Document]:
    """The documents of ``golden/`` by the name of their file."""
    return copy.deepcopy(_golden())


@cache
def _golden() -> dict[str, Document]:
    yaml = YAML(typ="safe", pure=True)
    return {path.stem: yaml.load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))}


def _literal(value: Any) -> Any:
    """Write texts of several lines as such."""
    if isinstance(value, dict):
        return {name: _literal(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_literal(each) for each in value]
    return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value


def write_all() -> None:
    """Write the results of all files anew."""
    yaml = YAML()
    yaml.width = 200
    yaml.indent(mapping=2, sequence=4, offset=2)
    for name, document in golden().items():
        with (FOLDER / f"{name}.yaml").open("w") as file:
            yaml.dump({"pod": document["pod"], **_literal(result_of(document["pod"]))}, file)


if __name__ == "__main__":
    write_all()
