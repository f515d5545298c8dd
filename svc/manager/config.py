"""The configuration of the manager."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from svc.naming import DEFAULT_NAMESPACE, PORT_MANAGER_ADMIN, PORT_MANAGER_METRICS
from svc.process.settings import DaemonSettings
from svc.process.values import FilePath, OptionalAddress, TrustDomainText
from svc.settings import HostPort, Items, Settings

#: The name of a namespace, a label of RFC 1123.
NamespaceName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class ClusterSettings(Settings):
    """What may change while the manager runs: `cluster` of the file, or `cluster.yaml` of the ConfigMap."""

    trustDomain: TrustDomainText
    """The trust domain of the cluster."""
    licenseNamespaces: Items[NamespaceName] = Field((DEFAULT_NAMESPACE,), min_length=1, max_length=16)
    """The namespaces in which Secrets with licenses are looked for."""


class ManagerSettings(DaemonSettings):
    """The manager of one cluster."""

    namespace: NamespaceName = DEFAULT_NAMESPACE
    """Its own namespace: that of its Lease, and of the ConfigMap and the Secret `svc-manager-config`."""
    kubeconfig: FilePath | None = None
    """How the API server is reached; by default the service account of the pod, or what kubectl would use."""
    cluster: ClusterSettings | None = None
    """What may change while the manager runs. The ConfigMap `svc-manager-config`, where there is one, replaces it as a
    whole."""
    metricsAddr: OptionalAddress = HostPort("", PORT_MANAGER_METRICS)
    """`/metrics`; `"0"` or `""` disables."""
    metricsSecure: bool = True
    """Whether `/metrics` is served by HTTPS, to clients that the API server lets read it or that have a certificate;
    else by plain HTTP, to everybody who reaches the address."""
    adminAddr: OptionalAddress = HostPort("127.0.0.1", PORT_MANAGER_ADMIN)
    """A [web page](operations.md#the-web-page), `/status`, `/livez`, `/readyz`, `/config`; `"0"` or `""` disables.
    There is no authentication: keep it on loopback."""
