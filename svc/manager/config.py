"""The configuration of the manager."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from svc.errors import SvcError
from svc.identity import SpiffeID, TrustDomain
from svc.injection import InjectionSettings
from svc.naming import (
    DEFAULT_NAMESPACE,
    DEFAULT_SPIFFE_SOCKET,
    MANAGER,
    PORT_M2M,
    PORT_MANAGER_ADMIN,
    PORT_MANAGER_METRICS,
    PORT_WEBHOOK,
)
from svc.process.settings import DaemonSettings
from svc.process.values import (
    LICENSE_NAMESPACES,
    FilePath,
    LicenseNamespaces,
    NamespaceName,
    OptionalAddress,
    RemoteAddress,
    SocketText,
    TrustDomainText,
    Wait,
)
from svc.settings import Address, Duration, HostPort, Settings, text_format

#: With a trust domain of any length it is a SPIFFE ID.
_MAX_ID_PATH = 1024


def _node_path(text: str) -> str:
    try:
        SpiffeID(TrustDomain("example.org"), text)
    except SvcError as error:
        raise ValueError("the path of a SPIFFE ID, such as /node") from error
    if not 1 < len(text) <= _MAX_ID_PATH:
        raise ValueError(f"the path of a SPIFFE ID of at most {_MAX_ID_PATH} characters, such as /node")
    return text


#: The path of the SPIFFE ID of nodes.
NodePath = Annotated[str, AfterValidator(_node_path), text_format("path of a SPIFFE ID", "^/.{1,1023}$")]


class SpireSettings(Settings):
    """The SPIRE server that gets entries for the service accounts of enabled namespaces."""

    server: RemoteAddress
    """The address of its API. By the bundle of the Workload API it has to be `/spire/server` of the trust domain."""
    spiffeSocketPath: SocketText = DEFAULT_SPIFFE_SOCKET
    """The Workload API, from which the manager has its own SVID. The entry for it is not the manager's to make, and has
    `admin: true`."""
    parentID: NodePath = "/node"
    """The parent of all entries: the alias of the nodes on which the pods run."""
    x509SvidTtl: Duration = 0.0
    """The life of X.509-SVIDs of these entries; `0s` for the server's default."""
    every: Wait = 5.0
    """How often the server is asked: entries that it has lost are there again so soon."""


class IssuerSettings(Settings):
    """The roots of the post-quantum issuer."""

    secret: str = Field("svc-authority-keys", pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """The Secret in the manager's namespace that holds them, with the key `keys.json`: `keysFile` of the issuer."""
    rootTtl: Wait = 365 * 86400.0
    """The life of a root. Its successor is made and announced at half of it, and signs from two thirds on, or when all
    nodes have it."""
    algorithm: Literal["ML-DSA-65", "ML-DSA-87"] = "ML-DSA-65"
    """Algorithm of new roots."""


class FederationSettings(Settings):
    """Federation with other trust domains; needs `spire`."""

    rootTtl: Wait = 3650 * 86400.0
    """The life of federation roots. After it new ones follow them, and peers follow by the packages that they fetch."""
    pqBundle: FilePath | None = None
    """The file with the post-quantum bundle; by default `pq-bundle.json` beside the socket of the Workload API."""


class MetricsPolicySettings(Settings):
    """Who reads the metrics of injected proxies."""

    monitoringNamespace: NamespaceName
    """The namespace from which alone they can be read."""


class ClusterSettings(Settings):
    """What may change while the manager runs: `cluster` of the file, or `cluster.yaml` of the ConfigMap."""

    trustDomain: TrustDomainText
    """The trust domain of the cluster."""
    licenseNamespaces: LicenseNamespaces = LICENSE_NAMESPACES
    """The namespaces in which Secrets with licenses are looked for."""
    injection: InjectionSettings | None = None
    """What the webhook puts into pods; without it pods of chosen namespaces are refused."""
    issuer: IssuerSettings | None = None
    """The post-quantum issuer; without it the manager writes no roots."""
    spire: SpireSettings | None = None
    """The SPIRE server; without it the manager neither makes nor deletes entries."""
    federation: FederationSettings | None = None
    """Federation; without it the manager makes no bootstrap package."""
    networkPolicies: MetricsPolicySettings | None = None
    """The NetworkPolicies of enabled namespaces; without it the manager deletes those that it has made."""

    @model_validator(mode="after")
    def _federation_needs_spire(self) -> Self:
        if self.federation is not None and self.spire is None:
            raise ValueError("federation needs spire, whose bundle is in the package")
        return self


class WebhookSettings(Settings):
    """The admission webhook."""

    listen: Address = HostPort("", PORT_WEBHOOK)
    """Where it listens, by HTTPS."""
    service: str = Field(MANAGER, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    """The Service in the manager's namespace by which the API server reaches it at port 443."""
    address: Address | None = None
    """How the API server reaches it in place of the Service, as where it runs outside the cluster."""
    failurePolicy: Literal["Fail", "Ignore"] = "Fail"
    """What becomes of pods of chosen namespaces while no manager answers: `Fail` refuses them, `Ignore` makes them
    without the proxy."""
    compartments: bool = False
    """Whether `kubectl exec`, `attach` and `port-forward` into pods of another compartment are refused to members of
    groups `svc:`."""
    authorityLife: Wait = 3650 * 86400.0
    """The life of the webhook's own certificate authority; the next one is made after two thirds of it."""
    certificateLife: Wait = 30 * 86400.0
    """The life of the certificates of its servers; each is replaced after two thirds of it."""


class ManagerSettings(DaemonSettings):
    """The manager of one cluster."""

    namespace: NamespaceName = DEFAULT_NAMESPACE
    """Its own namespace: that of its Lease, and of the ConfigMap and the Secret `svc-manager-config`."""
    kubeconfig: FilePath | None = None
    """How the API server is reached; by default the service account of the pod, or what kubectl would use."""
    cluster: ClusterSettings | None = None
    """What may change while the manager runs. The ConfigMap `svc-manager-config`, where there is one, replaces it as a
    whole."""
    webhook: WebhookSettings | None = None
    """The admission webhook; by default there is none."""
    m2mAddr: OptionalAddress = HostPort("", PORT_M2M)
    """Where peers fetch bundle and package if there is `cluster.federation`, by HTTPS with the SVID `/svc/m2m`; `"0"`
    or `""` disables."""
    controlPlaneAddr: OptionalAddress = None
    """Where proxies get the policies of their namespace if there is `cluster.spire`, by mutual TLS with the manager's
    SVID, see [within a second](policies-kubernetes.md#within-a-second), and with `cluster.injection` the
    [statement](#central-statements) of their pod; and agents the
    [post-quantum roots of peers](federation.md#post-quantum-roots-on-the-nodes). By default nowhere."""
    metricsAddr: OptionalAddress = HostPort("", PORT_MANAGER_METRICS)
    """`/metrics`; `"0"` or `""` disables."""
    metricsSecure: bool = True
    """Whether `/metrics` is served by HTTPS, to clients that the API server lets read it or that have a certificate;
    else by plain HTTP, to everybody who reaches the address."""
    adminAddr: OptionalAddress = HostPort("127.0.0.1", PORT_MANAGER_ADMIN)
    """A [web page](operations.md#the-web-page), `/status`, `/livez`, `/readyz`, `/config`; `"0"` or `""` disables.
    There is no authentication: keep it on loopback."""
