"""
Scrape configurations of a ServiceMonitor or PodMonitor, as the Prometheus Operator writes them for its Prometheus.

Rules and their order are those of the operator's ``generateServiceMonitorConfig`` and ``generatePodMonitorConfig``, of
what the monitors of the chart use. Whatever else a monitor has is refused, so that nothing of it is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.peers.kubernetes_discovery import KubernetesTargets

Document = dict[str, Any]
_SPEC: Final = {"jobLabel", "selector", "namespaceSelector", "endpoints", "podMetricsEndpoints"}
_ENDPOINT: Final = {"port", "path", "interval", "scheme", "tlsConfig", "bearerTokenFile", "relabelings"}
_RELABELING: Final = {"targetLabel": "target_label", "replacement": "replacement"}


def scrape_configs(monitor: Document, discovery: KubernetesTargets, interval: str) -> list[Document]:
    """
    Make the configurations.

    Args:
        monitor: a ServiceMonitor or a PodMonitor.
        discovery: finds targets, in place of ``kubernetes_sd_configs``.
        interval: between two scrapes, in place of that of the monitor: a test does not wait for a minute.

    Returns:
        One for each endpoint of the monitor.
    """
    spec = monitor["spec"]
    _known(spec, _SPEC)
    services = monitor["kind"] == "ServiceMonitor"
    found = []
    for number, endpoint in enumerate(spec["endpoints" if services else "podMetricsEndpoints"]):
        _known(endpoint, _ENDPOINT)
        config: Document = {
            "job_name": "/".join(
                (
                    "serviceMonitor" if services else "podMonitor",
                    monitor["metadata"]["namespace"],
                    monitor["metadata"]["name"],
                    str(number),
                )
            ),
            **discovery.configs("endpoints" if services else "pod", _namespaces(spec["namespaceSelector"])),
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "metrics_path": endpoint["path"],
            "scheme": endpoint.get("scheme", "http"),
            "relabel_configs": list((_of_services if services else _of_pods)(monitor, endpoint)),
        }
        if "tlsConfig" in endpoint:
            config["tls_config"] = {"insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"]}
        if "bearerTokenFile" in endpoint:
            config["authorization"] = {"credentials_file": endpoint["bearerTokenFile"]}
        found.append(config)
    return found


def _known(found: Document, names: set[str]) -> None:
    unknown = set(found) - names
    assert not unknown, f"the operator does more with {sorted(unknown)} than is done here"


def _namespaces(selector: Document) -> list[str]:
    return [] if selector.get("any") else selector["matchNames"]


def _of_services(monitor: Document, endpoint: Document) -> Iterator[Document]:
    yield {"source_labels": ["job"], "target_label": "__tmp_prometheus_job_name"}
    yield from _selected(monitor["spec"]["selector"], "service")
    yield _keep(["__meta_kubernetes_endpoint_port_name"], endpoint["port"])
    for kind in ("Node", "Pod"):
        yield {
            "source_labels": [f"__meta_kubernetes_endpoint_address_target_{each}" for each in ("kind", "name")],
            "regex": f"{kind};(.*)",
            "target_label": kind.lower(),
            "replacement": "${1}",
        }
    yield _copied("namespace", "namespace")
    yield _copied("service_name", "service")
    yield _copied("pod_name", "pod")
    yield _copied("pod_container_name", "container")
    yield {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"}
    yield _copied("service_name", "job")
    yield from _job_label(monitor["spec"], "service")
    yield {"target_label": "endpoint", "replacement": endpoint["port"]}
    yield from _relabelings(endpoint)


def _of_pods(monitor: Document, endpoint: Document) -> Iterator[Document]:
    yield {"source_labels": ["job"], "target_label": "__tmp_prometheus_job_name"}
    yield {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"}
    yield from _selected(monitor["spec"]["selector"], "pod")
    yield _keep(["__meta_kubernetes_pod_container_port_name"], endpoint["port"])
    yield _copied("namespace", "namespace")
    yield _copied("pod_container_name", "container")
    yield _copied("pod_name", "pod")
    metadata = monitor["metadata"]
    yield {"target_label": "job", "replacement": f"{metadata['namespace']}/{metadata['name']}"}
    yield from _job_label(monitor["spec"], "pod")
    yield {"target_label": "endpoint", "replacement": endpoint["port"]}
    yield from _relabelings(endpoint)


def _selected(selector: Document, role: str) -> Iterator[Document]:
    _known(selector, {"matchLabels", "matchExpressions"})
    for name, value in sorted(selector.get("matchLabels", {}).items()):
        yield _keep(_label_and_presence(role, name), f"({re.escape(value)});true")
    for each in selector.get("matchExpressions", ()):
        assert each["operator"] == "NotIn", each
        values = "|".join(re.escape(value) for value in each["values"])
        yield {**_keep(_label_and_presence(role, each["key"]), f"({values});true"), "action": "drop"}


def _label_and_presence(role: str, name: str) -> list[str]:
    word = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return [f"__meta_kubernetes_{role}_label_{word}", f"__meta_kubernetes_{role}_labelpresent_{word}"]


def _keep(labels: list[str], regex: str) -> Document:
    return {"action": "keep", "source_labels": labels, "regex": regex}


def _copied(meta: str, label: str) -> Document:
    return {"source_labels": [f"__meta_kubernetes_{meta}"], "target_label": label}


def _job_label(spec: Document, role: str) -> Iterator[Document]:
    if "jobLabel" in spec:
        source = _label_and_presence(role, spec["jobLabel"])[:1]
        yield {"source_labels": source, "target_label": "job", "regex": "(.+)", "replacement": "${1}"}


def _relabelings(endpoint: Document) -> Iterator[Document]:
    for each in endpoint.get("relabelings", ()):
        _known(each, set(_RELABELING))
        yield {_RELABELING[name]: value for name, value in each.items()}
