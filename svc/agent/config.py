"""The configuration of the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from svc.naming import (
    CSI_DRIVER,
    DEFAULT_SPIFFE_SOCKET,
    PORT_AGENT_ADMIN,
    PORT_AGENT_METRICS,
    PQ_BUNDLE_FILE,
)
from svc.process.settings import DaemonSettings
from svc.process.values import FilePath, MatcherText, OptionalAddress, SocketText, TrustDomainText, Upstream, Wait
from svc.settings import HostPort, Settings, load

_KUBELET: Final = "/var/lib/kubelet"


def _default_among(folders: dict[str, str]) -> dict[str, str]:
    if "" not in folders:
        raise ValueError('folders with the key "", for volumes without the attribute source')
    return folders


class CsiSettings(Settings):
    """The CSI driver that mounts the Workload API of the node into pods, and how the kubelet finds it."""

    driver: str = Field(CSI_DRIVER, pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")
    """Its name."""
    nodeName: str | None = None
    """The name of the node; by default the variable `NODE_NAME`, else the host name."""
    socket: FilePath = f"{_KUBELET}/plugins/{CSI_DRIVER}/csi.sock"
    """Its socket."""
    endpoint: FilePath | None = None
    """The same socket as the kubelet sees it, where the path differs in the agent's container."""
    registration: FilePath = f"{_KUBELET}/plugins_registry"
    """The folder in which the kubelet looks for drivers."""
    pods: FilePath = f"{_KUBELET}/pods"
    """The kubelet's folder of pods, below which all volumes lie. In a container it has the same path, and
    `mountPropagation: Bidirectional`."""
    folders: Annotated[dict[str, FilePath], AfterValidator(_default_among)] = Field(
        default_factory=lambda: {"": "/spiffe-workload-api"}
    )
    """The folders that are mounted: `""` for volumes without the attribute `source`, others by its value."""


class PqBundleSettings(Settings):
    """The post-quantum roots of the node, which verifiers find beside the socket of the Workload API."""

    issuer: Upstream
    """The issuer: `host:port` with mutual TLS, or `unix:///` and the path of its socket on the same machine."""
    issuerID: MatcherText
    """The SPIFFE ID that it must have; its roots are trusted on this node."""
    file: FilePath = f"/spiffe-workload-api/{PQ_BUNDLE_FILE}"
    """Where they are written; readable by all. The folder belongs to root or to the user of the agent."""
    every: Wait = 10.0
    """How often the issuer is asked; each second until there is a file."""


class AgentSettings(DaemonSettings):
    """The agent of a node."""

    trustDomain: TrustDomainText
    """The trust domain that its SVID must be of."""
    spiffeSocketPath: SocketText = DEFAULT_SPIFFE_SOCKET
    """The Workload API of the node's SPIRE agent."""
    metricsAddr: OptionalAddress = HostPort("", PORT_AGENT_METRICS)
    """`/metrics`; `"0"` or `""` disables. The option `--metrics-addr` stands above it."""
    adminAddr: OptionalAddress = HostPort("127.0.0.1", PORT_AGENT_ADMIN)
    """A [web page](operations.md#the-web-page), `/status`, `/livez`, `/readyz`, `/config`; `"0"` or `""` disables.
    There is no authentication: keep it on loopback."""
    csi: CsiSettings | None = None
    """The CSI driver; without it no volume is served."""
    pqBundle: PqBundleSettings | None = None
    """The post-quantum roots; without it the agent writes none."""


def load_settings(path: str | Path) -> AgentSettings:
    """Read and validate a configuration; raises ``ConfigUnreadable``, or ``ConfigInvalid`` with every defect."""
    return load(path, AgentSettings)
