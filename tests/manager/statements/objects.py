"""Pods and answers about tokens, as the API server has them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from svc import naming

DIGEST: Final = "sha256:" + "ab" * 32
USER: Final = "system:serviceaccount:pay:api"
POD: Final[dict[str, Any]] = {
    "metadata": {
        "name": "api-1",
        "namespace": "pay",
        "uid": "u-1",
        "resourceVersion": "1",
        "labels": {"app": "api", naming.LABEL_COMPARTMENT: "DE-S-ALPHA"},
        "annotations": {naming.ANNOTATION_LEVEL: "de:s", "note": "secret"},
    },
    "spec": {
        "serviceAccountName": "api",
        "nodeName": "n1",
        "initContainers": [{"name": "svc-proxy", "image": "reg/svc:1"}],
        "containers": [{"name": "api", "image": "reg/api:1"}],
    },
    "status": {
        "phase": "Running",
        "initContainerStatuses": [{"name": "svc-proxy", "imageID": f"reg/svc@{DIGEST}"}],
        "containerStatuses": [{"name": "api", "imageID": f"docker-pullable://reg/api@{DIGEST}"}],
    },
}


def changed(document: dict[str, Any], **paths: Any) -> dict[str, Any]:
    """A copy with other values at these paths, such as ``spec__nodeName``; None deletes."""
    found = deepcopy(document)
    for path, value in paths.items():
        *folders, name = path.split("__")
        inner = found
        for each in folders:
            inner = inner[each]
        if value is None:
            del inner[name]
        else:
            inner[name] = value
    return found


def review(username: str = USER, name: str = "api-1", uid: str = "u-1", **status: Any) -> dict[str, Any]:
    """The answer for an accepted token that is bound to a pod."""
    extra = {"authentication.kubernetes.io/pod-name": [name], "authentication.kubernetes.io/pod-uid": [uid]}
    accepted = {"authenticated": True, "audiences": ["svc-manager"], "user": {"username": username, "extra": extra}}
    return {"status": {**accepted, **status}}
