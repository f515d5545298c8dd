"""
The values of the chart ``svc-core``.

``values.yaml``, ``values.schema.json`` and the tables of ``docs/chart.md`` are generated from these models.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from svc.injection.config import NAME, AmountSettings
from svc.naming import (
    PORT_AGENT_METRICS,
    PORT_MANAGER_METRICS,
    PORT_PROXY_METRICS,
    PORT_SPIRE_AGENT_METRICS,
    PORT_SPIRE_SERVER_METRICS,
)
from svc.process.values import (
    LICENSE_NAMESPACES,
    AbsolutePath,
    LicenseNamespaces,
    NamespaceName,
    OptionalAddress,
    TrustDomainText,
    Wait,
)
from svc.settings import Duration, HostPort, Items, Settings

#: A label of a Kubernetes object, with an optional prefix, and its value.
_LABEL_KEY: Final = r"^([a-z0-9][a-z0-9.-]{0,252}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
#: A host with an optional port and an optional path.
_REGISTRY: Final = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9._-]+)*$"


class ResourcesSettings(Settings):
    """What a container gets of its node."""

    requests: AmountSettings = AmountSettings()
    """What is reserved."""
    limits: AmountSettings = AmountSettings()
    """What it may use."""


def _resources(cpu: str, memory: str, limit: str) -> Any:
    return ResourcesSettings(requests=AmountSettings(cpu=cpu, memory=memory), limits=AmountSettings(memory=limit))


class ImageSettings(Settings):
    """One image."""

    repository: str = Field(default="", pattern=r"^[a-z0-9._-]+(/[a-z0-9._-]+)*$")
    """Its name in the registry; by default that of the image."""
    tag: str = Field(default="", pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$")
    """Its tag; by default the version of the chart."""
    digest: str = Field(default="", pattern=r"^(sha256:[0-9a-f]{64})?$")
    """Its digest, such as `sha256:…`; stands above the tag."""


class ImagesSettings(Settings):
    """Where the images are."""

    registry: str = Field(pattern=_REGISTRY)
    """The registry: `host[:port][/prefix]`. Images of `bin/image` that were imported on the nodes are those of
    `svc.internal`."""
    pullPolicy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When nodes pull them, for injected proxies too."""
    pullSecrets: Items[Annotated[str, Field(pattern=NAME)]] = Field(default=(), max_length=16)
    """Names of Secrets in the namespace of the release with the credentials of the registry. Pods with an injected
    proxy name them too: there they are in the namespace of the pod."""
    svc: ImageSettings = ImageSettings(repository="svc")
    """Agent, authority, registrar, and the injected proxy."""
    svcManager: ImageSettings = ImageSettings(repository="svc-manager")
    """The manager, and the hooks of the chart."""
    spireServer: ImageSettings = ImageSettings(repository="spire-server")
    """The SPIRE server."""
    spireAgent: ImageSettings = ImageSettings(repository="spire-agent")
    """The SPIRE agent."""


class ManagerValues(Settings):
    """The [manager](manager.md)."""

    replicas: int = Field(default=2, ge=1, le=9)
    """How many; one of them leads, all of them answer the API server."""
    metricsAddr: OptionalAddress = HostPort("", PORT_MANAGER_METRICS)
    """`/metrics`; `"0"` or `""` disables."""
    metricsSecure: bool = False
    """Whether `/metrics` is served by HTTPS, to clients that the API server lets read it; else by plain HTTP, to
    everybody who reaches the address."""
    licenseNamespaces: LicenseNamespaces = LICENSE_NAMESPACES
    """The namespaces in which Secrets with licenses are looked for. The manager may read all their Secrets."""
    failurePolicy: Literal["Fail", "Ignore"] = "Fail"
    """What becomes of pods of enabled namespaces while no manager answers: `Fail` refuses them, `Ignore` makes them
    without the proxy."""
    resources: ResourcesSettings = _resources("50m", "128Mi", "512Mi")
    """Of each replica."""


class AgentValues(Settings):
    """The [agent](agent.md) of each node."""

    metricsAddr: OptionalAddress = HostPort("", PORT_AGENT_METRICS)
    """`/metrics`; `"0"` or `""` disables."""
    kubeletDir: AbsolutePath = "/var/lib/kubelet"
    """The folder of the kubelet on the nodes."""
    resources: ResourcesSettings = _resources("50m", "96Mi", "256Mi")
    """Of the agent of each node."""


class ProxyValues(Settings):
    """The proxies that are [injected](injection.md) into pods."""

    metricsAddr: OptionalAddress = HostPort("", PORT_PROXY_METRICS)
    """`/metrics`; `"0"` or `""` disables."""
    notarization: Literal["none", "workload", "logRequest", "signRequest"] = "none"
    """The level that every request and message gets at least."""
    resources: ResourcesSettings = _resources("50m", "96Mi", "256Mi")
    """Of each proxy."""


class AuthorityValues(Settings):
    """The post-quantum issuer, `svc-authority`."""

    rootTtl: Wait = 365 * 86400.0
    """The life of its roots."""
    resources: ResourcesSettings = _resources("50m", "96Mi", "256Mi")
    """Of its pod."""


class FederationValues(Settings):
    """Federation with other trust domains."""

    rootTtl: Wait = 3650 * 86400.0
    """The life of the federation roots, after which new ones follow them."""
    nodePort: Annotated[int, Field(ge=0, le=65535)] = 0
    """The port of the nodes at which peers reach the manager; `0` lets the cluster choose one."""


class StorageSettings(Settings):
    """The volume of the SPIRE server, with its keys and entries."""

    size: str = Field(default="1Gi", pattern=r"^[1-9][0-9]{0,5}(Mi|Gi|Ti)$")
    """How large it is. It cannot be changed afterwards."""
    className: str = Field(default="", pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$")
    """The StorageClass; by default that of the cluster. It cannot be changed afterwards."""


class StatsdSettings(Settings):
    """A StatsD server to which SPIRE sends its metrics, in place of `/metrics`."""

    enabled: bool = False
    """Whether they are sent."""
    address: str = Field(default="", pattern=r"^([A-Za-z0-9.-]{1,253}:[1-9][0-9]{0,4})?$")
    """`host:port` of the server, by UDP."""


class SpireServerValues(Settings):
    """The SPIRE server."""

    metricsAddr: OptionalAddress = HostPort("", PORT_SPIRE_SERVER_METRICS)
    """`/metrics`; `"0"` or `""` disables."""
    resources: ResourcesSettings = _resources("50m", "128Mi", "512Mi")
    """Of its container; the registrar beside it has those of the agent."""


class SpireAgentValues(Settings):
    """The SPIRE agent of each node."""

    metricsAddr: OptionalAddress = HostPort("", PORT_SPIRE_AGENT_METRICS)
    """`/metrics`; `"0"` or `""` disables."""
    resources: ResourcesSettings = _resources("50m", "96Mi", "512Mi")
    """Of the agent of each node."""


class SpireValues(Settings):
    """SPIRE, which gives the identities."""

    x509SvidTtl: Duration = 0.0
    """The life of the X.509-SVIDs of service accounts, in whole seconds; `0s` for the default of the SPIRE server,
    `1h`. More than `4h` may be cut short: the authority of the server lives for a day."""
    storage: StorageSettings = StorageSettings()
    """The volume of the server."""
    statsd: StatsdSettings = StatsdSettings()
    """A StatsD server, in place of `/metrics` of server and agents."""
    server: SpireServerValues = SpireServerValues()
    """The server."""
    agent: SpireAgentValues = SpireAgentValues()
    """The agents."""


class MonitoringSettings(Settings):
    """The monitoring of the cluster."""

    namespace: NamespaceName = "monitoring"
    """The namespace of the Prometheus, from which alone metrics can be read where there are network policies."""
    enabled: bool = False
    """Whether ServiceMonitors, a PodMonitor and a PrometheusRule with the [alerts](telemetry.md#alerts) are made, for
    the Prometheus Operator; the cluster has to know these kinds."""
    labels: dict[Annotated[str, Field(pattern=_LABEL_KEY)], Annotated[str, Field(pattern=_LABEL_VALUE)]] = Field(
        default_factory=dict, max_length=16, json_schema_extra={"additionalProperties": False}
    )
    """Labels of these objects beside those of the chart, by which a Prometheus selects them, such as
    `release: kube-prometheus-stack`."""
    interval: str = Field(default="30s", pattern=r"^((1[5-9]|[2-5][0-9]|60)s|1m)$")
    """How often metrics are read: `15s` to `60s`."""


class NetworkPoliciesSettings(Settings):
    """Who reaches the [ports of metrics](#network-policies)."""

    enabled: bool = True
    """Whether NetworkPolicies close them to all but the namespace of the monitoring: one in the namespace of the
    release, and those that the manager keeps in enabled namespaces. Other ports stay open."""


class ChartValues(Settings):
    """The values of the chart `svc-core`."""

    trustDomain: TrustDomainText
    """The trust domain of the cluster. Identities contain it: it cannot be changed afterwards."""
    kubernetesVariant: Literal["default", "eks", "kind", "microk8s", "openshift"] = "default"
    """What [is different](#variants-of-kubernetes) on the cluster. `svc install` finds it out."""
    purge: bool = False
    """Whether `helm uninstall` also removes the custom resources with all their objects, the volume of SPIRE and the
    private keys. It has to be set before, by an upgrade."""
    images: ImagesSettings
    """The images."""
    manager: ManagerValues = ManagerValues()
    """The manager."""
    agent: AgentValues = AgentValues()
    """The agent of each node."""
    proxy: ProxyValues = ProxyValues()
    """The injected proxies."""
    authority: AuthorityValues = AuthorityValues()
    """The post-quantum issuer."""
    federation: FederationValues = FederationValues()
    """Federation with other trust domains."""
    spire: SpireValues = SpireValues()
    """SPIRE."""
    monitoring: MonitoringSettings = MonitoringSettings()
    """The monitoring of the cluster."""
    networkPolicies: NetworkPoliciesSettings = NetworkPoliciesSettings()
    """Who reaches the ports of metrics."""
