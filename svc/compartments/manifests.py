"""
Objects of Kubernetes with the compartment on them: on the object itself, and on the templates of what it makes.

Selectors are never touched: those of Deployments and StatefulSets cannot be changed once they are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from svc import naming
from svc.compartments.compartment import Compartment

#: An object as JSON has it.
Manifest = dict[str, Any]
#: For each kind, with its group behind it, the places of what has metadata of its own.
Templates = Mapping[str, Iterable[str]]
_TEMPLATES: Final[Templates] = {
    "PodTemplate": ("template",),
    "ReplicationController": ("spec.template",),
    "DaemonSet.apps": ("spec.template",),
    "Deployment.apps": ("spec.template",),
    "ReplicaSet.apps": ("spec.template",),
    "StatefulSet.apps": ("spec.template",),
    "Job.batch": ("spec.template",),
    "CronJob.batch": ("spec.jobTemplate", "spec.jobTemplate.spec.template"),
}
#: The step of a place that stands for each key; lists need no step.
EACH: Final = "*"


def qualified_kind(document: Manifest) -> str:
    """The kind with its group behind it, as in ``kubectl get Deployment.apps``; that of the core has no group."""
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    return f"{document.get('kind', '')}.{group}" if group else str(document.get("kind", ""))


def other_compartments(document: Manifest, compartment: Compartment, templates: Templates) -> list[str]:
    """
    Find what a document says about its compartment that is not true of this one.

    Args:
        templates: those of kinds that are not built in.

    Returns:
        A text for each place.
    """
    found = []
    for place, holder in _holders(document, templates):
        metadata = _mapping(holder, "metadata")
        for part, key, value in _marks(compartment):
            present = _mapping(metadata, part).get(key)
            if present is not None and str(present).upper() != value.upper():
                name = _mapping(document, "metadata").get("name", "")
                at = f" in {place}" if place else ""
                found.append(f"{qualified_kind(document)} {name} has{at} {key}: {present}")
    return found


def mark(
    document: Manifest, compartment: Compartment, templates: Templates, live_template: Manifest | None = None
) -> None:
    """
    Set the label and the annotations of a compartment on a document.

    Args:
        templates: those of kinds that are not built in.
        live_template: the one of a Job that is there. It cannot be changed, so the document's gets what that has.
    """
    for place, holder in _holders(document, templates):
        if place and live_template is not None:
            live = _mapping(live_template, "metadata")
            for part, key, _value in _marks(compartment):
                if key in _mapping(live, part) and key not in _mapping(_mapping(holder, "metadata"), part):
                    _set(holder, part, key, live[part][key])
        else:
            for part, key, value in _marks(compartment):
                _set(holder, part, key, value)


def is_job(document: Manifest) -> bool:
    """Whether the template of a document cannot be changed."""
    return qualified_kind(document) == "Job.batch"


def _marks(compartment: Compartment) -> Iterator[tuple[str, str, str]]:
    yield "labels", naming.LABEL_COMPARTMENT, compartment.label
    for key, value in compartment.annotations.items():
        yield "annotations", key, value


def _holders(document: Manifest, templates: Templates) -> Iterator[tuple[str, Manifest]]:
    """Everything in a document that has metadata, with its place; that of the document itself is empty."""
    yield "", document
    kind = qualified_kind(document)
    for place in (*_TEMPLATES.get(kind, ()), *templates.get(kind, ())):
        for holder in _found(document, place.split(".")):
            yield place, holder


def _found(node: Any, steps: list[str]) -> Iterator[Manifest]:
    if isinstance(node, list):
        for each in node:
            yield from _found(each, steps)
    elif isinstance(node, dict):
        if not steps:
            yield node
        elif steps[0] == EACH:
            for each in node.values():
                yield from _found(each, steps[1:])
        else:
            yield from _found(node.get(steps[0]), steps[1:])


def _mapping(parent: Manifest, key: str) -> Manifest:
    """A mapping in another one; an empty one where it is absent, or no mapping, which the API server refuses."""
    found = parent.get(key)
    return found if isinstance(found, dict) else {}


def _set(holder: Manifest, part: str, key: str, value: object) -> None:
    """Set a label or an annotation; what is no mapping is left for the API server to refuse."""
    found: Any = holder
    for name in ("metadata", part):
        if found.get(name) is None:
            found[name] = {}
        found = found[name]
        if not isinstance(found, dict):
            return
    found[key] = value
