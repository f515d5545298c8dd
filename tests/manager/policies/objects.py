"""Policies as the API server has them."""

from __future__ import annotations

from typing import Any

from svc.manager.policies.resource import PolicyResource, read_policy


def policy_object(name: str = "p", namespace: str = "", **spec: Any) -> dict[str, Any]:
    """An object: of the cluster, or of a namespace where it is named."""
    return {
        "apiVersion": "svc.internal/v1alpha1",
        "kind": "SvcPolicy" if namespace else "SvcClusterPolicy",
        "metadata": {"name": name, "uid": "u", "generation": 3, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }


def policy(name: str = "p", namespace: str = "", **spec: Any) -> PolicyResource:
    """The same as it is read."""
    return read_policy(policy_object(name, namespace, **spec))


def rules(*paths: str, **more: Any) -> dict[str, Any]:
    """An authorization with one rule for each path, or with one that matches everything."""
    return {"rules": [{"to": [{"paths": [path]}]} for path in paths] or [{}], **more}
