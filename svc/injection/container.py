"""
What is added to a pod: the container of the proxy with its configuration, and its volumes.

docs/examples/kubernetes/web.yaml has the same written out by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from posixpath import dirname
from typing import Final
from urllib.parse import urlsplit

from svc.injection.config import InjectionSettings
from svc.injection.errors import InjectionRefused
from svc.injection.ports import InjectedPort
from svc.naming import (
    AUDIENCE_POD_TOKEN,
    COMPILED_CONFIG_MAP,
    COMPILED_FILE,
    CSI_DRIVER,
    CSI_SOURCE_ATTRIBUTE,
    DEFAULT_NOTARY_DATABASE,
    DEFAULT_SPIFFE_SOCKET,
    ENV_CONFIG,
    METRICS_PORT,
    POLICIES_CONFIG_MAP,
    PORT_PROBES,
    PORT_PROXY_ADMIN,
    PROXY_CONTAINER,
)
from svc.notary.facts import DEFAULT_ALLOWED, FactsInvalid, WorkloadFacts
from svc.settings import ENVIRONMENT
from svc.strictyaml import json_text

#: Octets of the variable before Kubernetes expands it. The kernel takes 128 KiB with name and final zero, and the five
#: facts expand to less than 1 KiB.
MAX_CONFIG: Final = 127 * 1024
STATE_VOLUME: Final = "svc-state"
WORKLOAD_API_VOLUME: Final = "svc-workload-api"
POLICIES_VOLUME: Final = "svc-policies"
COMPILED_VOLUME: Final = "svc-policies-compiled"
TOKEN_VOLUME: Final = "svc-pod-token"  # noqa: S105 - a name
_POLICIES: Final = "/etc/svc/policies"
_COMPILED: Final = "/etc/svc/policies-compiled"
_TOKEN: Final = "/var/run/secrets/svc.internal"  # noqa: S105 - a folder
_TOKEN_FILE: Final = "token"  # noqa: S105 - a name
#: The shortest life that Kubernetes gives; the kubelet writes another one when 80 % of it are over.
_TOKEN_SECONDS: Final = 600
_WORKLOAD_API: Final = dirname(urlsplit(DEFAULT_SPIFFE_SOCKET).path)
#: Facts of the statement that are known when the pod runs, and alone by variables: the variable and the field.
_FACTS: Final = {
    "namespace": ("POD_NAMESPACE", "metadata.namespace"),
    "serviceAccount": ("POD_SERVICE_ACCOUNT", "spec.serviceAccountName"),
    "podName": ("POD_NAME", "metadata.name"),
    "podUID": ("POD_UID", "metadata.uid"),
    "node": ("NODE_NAME", "spec.nodeName"),
}
_USER: Final = 65532


def configuration(
    settings: InjectionSettings,
    trust_domain: str,
    ports: Sequence[InjectedPort],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> str:
    """
    Write the configuration of a proxy as the value of an environment variable, in which Kubernetes expands ``$(NAME)``.

    Args:
        settings: what is the same for all pods.
        trust_domain: of the pod.
        ports: what the proxy listens on.
        labels: of the pod; policies select by them, and statements contain some.
        annotations: of the pod; statements contain some, and the names of the others.

    Raises:
        InjectionRefused: ``injection_facts``, ``injection_too_large``.
    """
    shown = {name: text if name in DEFAULT_ALLOWED else "" for name, text in annotations.items()}
    try:
        WorkloadFacts.explicit(labels=labels, annotations=annotations)
    except FactsInvalid as error:
        raise InjectionRefused("injection_facts", defect=error) from error
    if any("\0" in text for text in (*labels.values(), *shown.values())):
        raise InjectionRefused("injection_facts", defect="a label or annotation has the character NUL")
    whole = {
        "trustDomain": trust_domain,
        "metricsAddr": str(settings.metricsAddr or "0"),
        "probesAddr": f":{PORT_PROBES}",
        "startTimeout": "never",
        "withdrawalGrace": "5m",
        "notary": {"pqIssuer": str(settings.pqIssuer), "pqIssuerID": settings.pqIssuerID},
        "policy": {"clusterFiles": [f"{_COMPILED}/{COMPILED_FILE}"], "files": [f"{_POLICIES}/*"]},
        **_control_plane(settings),
        "listeners": [_listener(port, settings) for port in ports],
        "workload": {"labels": dict(sorted(labels.items())), "annotations": dict(sorted(shown.items()))},
    }
    # Two are one dollar for Kubernetes, also in front of what is no parenthesis.
    escaped = json.loads(json.dumps(whole).replace("$", "$$"))
    escaped["workload"] |= {fact: f"$({variable})" for fact, (variable, _field) in _FACTS.items()}
    # JSON quotes every text, as YAML that reads like a number has to be.
    text = json_text(escaped, indent=2) + "\n"
    if (size := len(text.encode("utf-8", "surrogatepass"))) > MAX_CONFIG:
        raise InjectionRefused("injection_too_large", size=size, limit=MAX_CONFIG)
    return text


def own_ports(settings: InjectionSettings) -> dict[int, str]:
    """The ports that each proxy has beside its listeners, with what they are for."""
    found = {PORT_PROBES: "the proxy's probes", PORT_PROXY_ADMIN: "the proxy's pages for operators"}
    if settings.metricsAddr is not None:
        found[settings.metricsAddr.port] = "the proxy's metrics"
    return found


def proxy_container(settings: InjectionSettings, ports: Sequence[InjectedPort], text: str) -> dict[str, object]:
    """Return the container of the proxy, a native sidecar, with a configuration by :func:`configuration`."""
    declared = [{"name": port.name, "containerPort": port.listen} for port in ports]
    if settings.metricsAddr is not None:
        declared.append({"name": METRICS_PORT, "containerPort": settings.metricsAddr.port})
    resources = {"requests": settings.requests.amounts(), "limits": settings.limits.amounts()}
    return {
        "name": PROXY_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.imagePullPolicy,
        "restartPolicy": "Always",
        "command": [
            *("twistd", "--nodaemon", "--pidfile=", "svc-proxy"),
            *("--config", f"{ENVIRONMENT}{ENV_CONFIG}"),
        ],
        "env": [
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}} for name, field in _FACTS.values()),
            {"name": ENV_CONFIG, "value": text},
        ],
        "ports": declared,
        "startupProbe": {**_probe("/readyz"), "periodSeconds": 1, "failureThreshold": 120},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 1},
        "livenessProbe": {**_probe("/livez"), "periodSeconds": 10, "timeoutSeconds": 5},
        # It drains; a program in Python instead would need seconds where the processor is scarce.
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "kill -USR1 1"]}}},
        "resources": {kind: amounts for kind, amounts in resources.items() if amounts},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            **({"runAsUser": _USER, "runAsGroup": _USER} if settings.fixedUser else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": STATE_VOLUME, "mountPath": dirname(DEFAULT_NOTARY_DATABASE)},
            {"name": WORKLOAD_API_VOLUME, "mountPath": _WORKLOAD_API, "readOnly": True},
            {"name": COMPILED_VOLUME, "mountPath": _COMPILED, "readOnly": True},
            {"name": POLICIES_VOLUME, "mountPath": _POLICIES, "readOnly": True},
            *({"name": each["name"], "mountPath": _TOKEN, "readOnly": True} for each in _token_volumes(settings)),
        ],
    }


def proxy_volumes(settings: InjectionSettings, source: str) -> list[dict[str, object]]:
    """Return the volumes of the proxy; ``source`` names the folder of the Workload API, if not that of the settings."""
    source = source or settings.source
    csi: dict[str, object] = {"driver": CSI_DRIVER, "readOnly": True}
    if source:
        csi["volumeAttributes"] = {CSI_SOURCE_ATTRIBUTE: source}
    return [
        {"name": STATE_VOLUME, "emptyDir": {}},
        {"name": WORKLOAD_API_VOLUME, "csi": csi},
        # Not optional: no proxy starts without the policies of the cluster, or loses them with the ConfigMap.
        {
            "name": COMPILED_VOLUME,
            "configMap": {"name": COMPILED_CONFIG_MAP, "items": [{"key": COMPILED_FILE, "path": COMPILED_FILE}]},
        },
        {"name": POLICIES_VOLUME, "configMap": {"name": POLICIES_CONFIG_MAP, "optional": True}},
        *_token_volumes(settings),
    ]


def _control_plane(settings: InjectionSettings) -> dict[str, str]:
    if settings.controlPlane is None:
        return {}
    return {"controlPlane": str(settings.controlPlane), "controlPlaneToken": f"{_TOKEN}/{_TOKEN_FILE}"}


def _token_volumes(settings: InjectionSettings) -> list[dict[str, object]]:
    """The token by which the manager knows the pod; it is of no use elsewhere, and in the proxy's container alone."""
    if settings.controlPlane is None:
        return []
    token = {"audience": AUDIENCE_POD_TOKEN, "expirationSeconds": _TOKEN_SECONDS, "path": _TOKEN_FILE}
    return [{"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}]


def _listener(port: InjectedPort, settings: InjectionSettings) -> dict[str, object]:
    level = {} if port.protocol == "tcp" else {"notarization": settings.notarization}
    return {
        "name": port.name,
        "protocol": port.protocol,
        "direction": "inbound",
        "listen": f":{port.listen}",
        "upstream": f"127.0.0.1:{port.application}",
        **level,
    }


def _probe(path: str) -> dict[str, object]:
    return {"httpGet": {"path": path, "port": PORT_PROBES}}
