"""The configurations of the webhooks at the API server. Pure; the controller writes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from svc.compartments.admission import GROUP_PREFIX
from svc.injection.config import NAMESPACES_OF_AKS
from svc.kube.kinds import CLUSTER_POLICIES, POLICIES
from svc.manager.config import WebhookSettings
from svc.naming import (
    CONNECTIONS_CONFIGURATION,
    DOMAIN,
    INJECTION_ENABLED,
    LABEL_INJECTION,
    LABEL_MANAGED_BY,
    MANAGER,
    POLICIES_CONFIGURATION,
    WEBHOOK_CONFIGURATION,
)

PATH: Final = "/inject"
CONNECT_PATH: Final = "/connect"
POLICIES_PATH: Final = "/policies"
#: Repairs that are made at once; seconds of the longest pause, and after which all are forgotten.
_AT_ONCE: Final = 3
_SLOWEST: Final = 300.0
_FORGOTTEN: Final = 900.0
#: By which AKS lets a configuration be (https://github.com/Azure/AKS/issues/1771).
_LEFT_BY_AKS: Final = {"admissions.enforcer/disabled": "true"}
#: Namespaces that never get the proxy; that of the manager is another one.
_NEVER: Final = ("kube-node-lease", "kube-public", "kube-system")


def webhook_configuration(settings: WebhookSettings, namespace: str, bundle: str) -> dict[str, Any]:
    """
    Return the configuration of the injection.

    Args:
        namespace: of the manager.
        bundle: ``caBundle``, PEM in base64.
    """
    never = sorted({*_NEVER, namespace})
    webhook = _webhook(settings, namespace, bundle, PATH, f"injection.{DOMAIN}", "CREATE", ["pods"])
    webhook |= {
        "failurePolicy": settings.failurePolicy,
        "namespaceSelector": {
            "matchLabels": {LABEL_INJECTION: INJECTION_ENABLED},
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never},
                *NAMESPACES_OF_AKS,
            ],
        },
        "reinvocationPolicy": "IfNeeded",
    }
    return _configuration(WEBHOOK_CONFIGURATION, webhook)


def connections_configuration(settings: WebhookSettings, namespace: str, bundle: str) -> dict[str, Any]:
    """Return the configuration of the reviews of connections to pods: for members of compartments alone."""
    resources = ["pods/attach", "pods/exec", "pods/portforward"]
    webhook = _webhook(settings, namespace, bundle, CONNECT_PATH, f"compartments.{DOMAIN}", "CONNECT", resources)
    concerned = (
        f"has(request.userInfo.groups) && request.userInfo.groups.exists(each, each.startsWith('{GROUP_PREFIX}'))"
    )
    webhook |= {
        "failurePolicy": "Fail",
        "namespaceSelector": {},
        # The manager asks the API server twice.
        "timeoutSeconds": 15,
        "matchConditions": [{"name": "compartments", "expression": concerned}],
    }
    return _configuration(CONNECTIONS_CONFIGURATION, webhook)


def policies_configuration(settings: WebhookSettings, namespace: str, bundle: str) -> dict[str, Any]:
    """Return the configuration of the reviews of policies. Without a manager they can be deleted, and no more."""
    webhooks = []
    for name, operations, failure_policy in (
        ("policies", ["CREATE", "UPDATE"], "Fail"),
        ("deletions", ["DELETE"], "Ignore"),
    ):
        webhook = _webhook(settings, namespace, bundle, POLICIES_PATH, f"{name}.{DOMAIN}", "", [])
        resources = [CLUSTER_POLICIES.plural, POLICIES.plural]
        rule = {"apiGroups": [DOMAIN], "apiVersions": ["v1alpha1"], "scope": "*"}
        rule |= {"operations": operations, "resources": resources}
        webhook |= {"failurePolicy": failure_policy, "namespaceSelector": {}, "rules": [rule]}
        webhooks.append(webhook)
    return _configuration(POLICIES_CONFIGURATION, *webhooks)


def _configuration(name: str, *webhooks: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {LABEL_MANAGED_BY: MANAGER}, "annotations": dict(_LEFT_BY_AKS)}
    return {"metadata": metadata, "webhooks": list(webhooks)}


def _webhook(
    settings: WebhookSettings, namespace: str, bundle: str, path: str, name: str, operation: str, resources: list[str]
) -> dict[str, Any]:
    client: dict[str, Any] = {"caBundle": bundle}
    if settings.address is not None:
        client["url"] = f"https://{settings.address}{path}"
    else:
        client["service"] = {"namespace": namespace, "name": settings.service, "path": path, "port": 443}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "scope": "Namespaced"}
    return {
        "name": name,
        "clientConfig": client,
        "rules": [{**rule, "operations": [operation], "resources": resources}],
        "matchPolicy": "Equivalent",
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "admissionReviewVersions": ["v1"],
    }


def server_names(settings: WebhookSettings, namespace: str) -> tuple[str, ...]:
    """The names under which the API server reaches the webhook."""
    if settings.address is not None:
        return (settings.address.host,)
    name = f"{settings.service}.{namespace}.svc"
    return name, f"{name}.cluster.local"


def is_wanted(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """
    Whether the API server has a configuration as it is wanted.

    Webhooks have to be equal: all that the API server sets by itself is set here, and whatever somebody adds, such as a
    selector or a condition, takes pods away from the webhook.
    """
    metadata = found["metadata"]
    return bool(found.get("webhooks") == wanted["webhooks"]) and all(
        wanted["metadata"][part].items() <= (metadata.get(part) or {}).items() for part in ("labels", "annotations")
    )


def repaired(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what takes the place of a configuration; labels and annotations of others stay."""
    metadata = dict(found["metadata"])
    for part in ("labels", "annotations"):
        metadata[part] = {**(metadata.get(part) or {}), **wanted["metadata"][part]}
    metadata.pop("managedFields", None)
    return {"metadata": metadata, "webhooks": wanted["webhooks"]}


class Repairs:
    """
    When a configuration that somebody else changes may be repaired: the first times at once, then more and more slowly.

    Two programs that undo each other's work would load the API server without an end.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, datetime]] = {}

    def pause(self, name: str, now: datetime) -> float:
        """Return the seconds until the next repair; 0 for at once."""
        count, last = self._recent(name, now)
        if count < _AT_ONCE:
            return 0.0
        wait = min(2.0 ** (count - _AT_ONCE), _SLOWEST)
        return max(0.0, wait - (now - last).total_seconds())

    def note(self, name: str, now: datetime) -> int:
        """Note a repair; returns how many there have been without a longer pause."""
        count = self._recent(name, now)[0] + 1
        self._made[name] = (count, now)
        return count

    def _recent(self, name: str, now: datetime) -> tuple[int, datetime]:
        count, last = self._made.get(name, (0, now))
        return (count, last) if (now - last).total_seconds() < _FORGOTTEN else (0, now)
