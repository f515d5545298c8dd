"""
Targets of a Kubernetes cluster for a Prometheus without ``kubernetes_sd_configs``, as that of Debian is built.

What Prometheus would find by its roles ``pod`` and ``endpoints`` is listed from the API server at each request, with
the same meta labels, and served for ``http_sd_configs``. What becomes a target is left to the relabelling of
Prometheus.
"""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Document = dict[str, Any]
_META = "__meta_kubernetes_"


def pod_targets(objects: Iterable[Document]) -> Iterator[Document]:
    """
    Targets of the role ``pod``: one for each port of each container, those of init containers too.

    Args:
        objects: of the cluster.

    Returns:
        Entries of an HTTP service discovery.
    """
    for pod in objects:
        if pod["kind"] == "Pod" and pod["status"].get("podIP"):
            for labels, number in _container_ports(pod):
                yield _target(pod["status"]["podIP"], number, {**_of_pod(pod), **labels})


def endpoint_targets(objects: Iterable[Document]) -> Iterator[Document]:
    """
    Targets of the role ``endpoints``: one for each address and port of Endpoints, with what is known of their Service
    and pod; and the other ports of such a pod, without the name of a port of the Endpoints.

    Args:
        objects: of the cluster.

    Returns:
        Entries of an HTTP service discovery.
    """
    objects = list(objects)
    named = {_key(each["kind"], each["metadata"]): each for each in objects}
    for endpoints in objects:
        if endpoints["kind"] != "Endpoints":
            continue
        metadata = endpoints["metadata"]
        common = {f"{_META}namespace": metadata["namespace"], f"{_META}endpoints_name": metadata["name"]}
        service = named.get(_key("Service", metadata))
        if service is not None:
            common |= {f"{_META}service_name": metadata["name"], **_labels("service", service)}
        for subset in endpoints.get("subsets", ()):
            for address in subset.get("addresses", ()):
                reference = address.get("targetRef", {})
                at = {f"{_META}endpoint_address_target_{each}": reference.get(each, "") for each in ("kind", "name")}
                pod = named.get(_key("Pod", reference)) if reference.get("kind") == "Pod" else None
                of_pod = {} if pod is None else _of_pod(pod)
                containers = [] if pod is None else list(_container_ports(pod))
                numbers = set()
                for port in subset["ports"]:
                    numbers.add(port["port"])
                    own = next((labels for labels, number in containers if number == port["port"]), {})
                    shown = {f"{_META}endpoint_port_name": port.get("name", ""), f"{_META}endpoint_ready": "true"}
                    yield _target(address["ip"], port["port"], {**common, **at, **shown, **of_pod, **own})
                for labels, number in containers:
                    if number not in numbers:
                        yield _target(address["ip"], number, {**common, **of_pod, **labels})


class KubernetesTargets:
    """
    Serves them on loopback.

    Args:
        stack: ends it.
        read: returns the pods, Services and Endpoints of all namespaces; where it fails Prometheus keeps what it has.
    """

    def __init__(self, stack: ExitStack, read: Callable[[], list[Document]]) -> None:
        roles = {"/pod": pod_targets, "/endpoints": endpoint_targets}

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_arguments: object) -> None:
                """Log nothing."""

            def do_GET(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                namespaces = urllib.parse.parse_qs(url.query).get("namespace")
                try:
                    objects = read()
                except Exception as error:  # noqa: BLE001 (whatever it is, it is said to Prometheus)
                    self.send_error(503, type(error).__name__)
                    return
                chosen = [each for each in objects if not namespaces or each["metadata"]["namespace"] in namespaces]
                body = json.dumps(list(roles[url.path](chosen))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._port = server.server_port
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def configs(self, role: str, namespaces: Iterable[str]) -> Document:
        """
        Make the part of a scrape configuration that ``kubernetes_sd_configs`` would be.

        Args:
            role: ``pod`` or ``endpoints``.
            namespaces: in which is looked; all without any.

        Returns:
            The part.
        """
        query = urllib.parse.urlencode([("namespace", each) for each in namespaces])
        url = f"http://127.0.0.1:{self._port}/{role}?{query}"
        return {"http_sd_configs": [{"url": url, "refresh_interval": "2s"}]}


def _key(kind: str, metadata: Document) -> tuple[str, str, str]:
    return kind, metadata.get("namespace", ""), metadata.get("name", "")


def _target(address: str, port: int, labels: Document) -> Document:
    return {"targets": [f"{address}:{port}"], "labels": labels}


def _labels(role: str, found: Document) -> Document:
    made = {}
    for name, value in found["metadata"].get("labels", {}).items():
        word = re.sub(r"[^a-zA-Z0-9_]", "_", name)
        made |= {f"{_META}{role}_label_{word}": value, f"{_META}{role}_labelpresent_{word}": "true"}
    return made


def _of_pod(pod: Document) -> Document:
    metadata, status = pod["metadata"], pod["status"]
    return {
        f"{_META}namespace": metadata["namespace"],
        f"{_META}pod_name": metadata["name"],
        f"{_META}pod_ip": status.get("podIP", ""),
        f"{_META}pod_phase": status.get("phase", ""),
        **_labels("pod", pod),
    }


def _container_ports(pod: Document) -> Iterator[tuple[Document, int]]:
    for init, key in (("false", "containers"), ("true", "initContainers")):
        for container in pod["spec"].get(key) or ():
            for port in container.get("ports", ()):
                yield (
                    {
                        f"{_META}pod_container_init": init,
                        f"{_META}pod_container_name": container["name"],
                        f"{_META}pod_container_port_name": port.get("name", ""),
                        f"{_META}pod_container_port_number": str(port["containerPort"]),
                    },
                    port["containerPort"],
                )
