"""
The documents that the proxies of a namespace read: policies in, the content of a ConfigMap out. Pure.

A policy that is no longer valid stays as it was compiled last, so that no defect widens or narrows what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from svc import naming
from svc.errors import Reason, SvcError
from svc.kube.client import Object
from svc.kube.kinds import CONFIG_MAPS
from svc.manager.policies.resource import Key, PolicyResource
from svc.policyfiles.files import MAX_ALL_RULES
from svc.policyfiles.published import MAX_PUBLISHED, PublishedPolicies, PublishedRefused
from svc.strictyaml import MAX_DOCUMENTS, json_text, loads_all

#: What a ConfigMap can hold, with room for what else is in the object.
MAX_TEXT: Final = MAX_PUBLISHED - 16 * 1024
_HEAD: Final = "# Written by svc-manager from SvcClusterPolicy and SvcPolicy objects: change those.\n"

_LARGE: Final = "its proxies keep those of before: use path prefixes, templates and several values in one rule"

Document = Mapping[str, Any]


class CompiledTooLarge(SvcError):
    """the policies of a namespace cannot be given to its proxies"""

    reason = "policies_too_large"
    hint = _LARGE
    reasons = {
        "policies_too_large": Reason(
            "the policies of {namespace} have {size} octets, at most {limit} are possible", _LARGE
        ),
        "policies_too_many": Reason("{count} policies are about {namespace}, at most {limit} are possible", _LARGE),
        "policy_rules_too_many": Reason(
            "the policies of {namespace} have {count} rules together, at most {limit} are possible", _LARGE
        ),
    }


def order(key: Key) -> tuple[str, str, str]:
    """Return what policies are sorted by: those of the cluster come first, then by name."""
    kind, namespace, name = key
    return namespace, kind, name


def documents_for(
    policies: Iterable[PolicyResource],
    namespace: str,
    labels: Mapping[str, str],
    kept: Mapping[Key, Document],
) -> list[Document]:
    """
    Return the documents of a namespace.

    Args:
        policies: those that are valid, of all namespaces.
        namespace: its name.
        labels: of the namespace.
        kept: the documents that it has of policies that are not valid any more.
    """
    found = {
        each.key: each.document
        for each in policies
        if each.document is not None and each.selects_namespace(namespace, labels)
    }
    merged = {**kept, **found}
    return [merged[key] for key in sorted(merged, key=order)]


def compiled_text(namespace: str, documents: Sequence[Document]) -> str:
    """
    Write the policy file of a namespace.

    Raises:
        CompiledTooLarge: proxies would not read it.
    """
    text = _HEAD + "".join(f"---\n{json_text(each)}\n" for each in documents)
    rules = sum(len(each["spec"]["authorization"].get("rules") or ()) for each in documents)
    if len(documents) > MAX_DOCUMENTS:
        raise CompiledTooLarge("policies_too_many", namespace=namespace, count=len(documents), limit=MAX_DOCUMENTS)
    if rules > MAX_ALL_RULES:
        raise CompiledTooLarge("policy_rules_too_many", namespace=namespace, count=rules, limit=MAX_ALL_RULES)
    if (size := len(text.encode())) > MAX_TEXT:
        raise CompiledTooLarge("policies_too_large", namespace=namespace, size=size, limit=MAX_TEXT)
    return text


def published_list(
    namespace: str, documents: Sequence[Document], written: Callable[[], Mapping[Key, Document]]
) -> PublishedPolicies:
    """
    Write the documents of a namespace as its proxies get them from the manager.

    Args:
        namespace: its name.
        documents: by :func:`documents_for`.
        written: returns those of its ConfigMap, which stay where these are too many or too large.
    """
    try:
        compiled_text(namespace, documents)
        return PublishedPolicies.of(namespace, documents)
    except (CompiledTooLarge, PublishedRefused):
        stay = written()
        return PublishedPolicies.of(namespace, [stay[key] for key in sorted(stay, key=order)])


def compiled_map(namespace: str, text: str) -> Object:
    """Return the ConfigMap of a namespace."""
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.name,
        "metadata": {
            "name": naming.COMPILED_CONFIG_MAP,
            "namespace": namespace,
            "labels": {naming.LABEL_MANAGED_BY: naming.MANAGER},
        },
        "data": {naming.COMPILED_FILE: text},
    }


def read_compiled(found: Object) -> dict[Key, Document]:
    """Return the documents of a ConfigMap; none where they cannot be read."""
    try:
        documents = loads_all((found.get("data") or {}).get(naming.COMPILED_FILE, ""))
        return {_key(each): each for each in documents if isinstance(each, dict)}
    except (SvcError, KeyError, TypeError):
        return {}


def _key(document: Document) -> Key:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]
