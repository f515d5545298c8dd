"""The configurations of the webhooks at the API server. Pure; the controller writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from svc.compartments.admission import GROUP_PREFIX
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
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never}],
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
    metadata = {"name": name, "labels": {LABEL_MANAGED_BY: MANAGER}}
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


def contains(found: object, wanted: object) -> bool:
    """Whether an object has everything that is wanted; the API server adds defaults, and lists have to be equal."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(contains(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(contains(*pair) for pair in zip(found, wanted, strict=True))
        )
    return found == wanted
