"""The settings of the injection: what is the same for all pods."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from svc.naming import PORT_PROBES, PORT_PROXY_ADMIN, PORT_PROXY_METRICS
from svc.process.values import MatcherText, OptionalAddress, RemoteAddress
from svc.settings import HostPort, Items, Settings, text_format

_QUANTITY: Final = r"^[0-9]{1,12}(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
_IMAGE: Final = r"^[!-~]{1,512}$"
#: A label of RFC 1123.
NAME: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


def _quantity(value: str) -> str:
    if not re.fullmatch(_QUANTITY, value):
        raise ValueError("a quantity of Kubernetes, such as 50m or 96Mi")
    return value


def _image(value: str) -> str:
    if not re.fullmatch(_IMAGE, value):
        raise ValueError("the name of an image, such as registry.example.org/svc:1.0")
    return value


Quantity = Annotated[str, AfterValidator(_quantity), text_format("quantity", _QUANTITY)]
Image = Annotated[str, AfterValidator(_image), text_format("image", _IMAGE)]


#: What AKS adds to the selectors of namespaces of all webhooks, again and again.
NAMESPACES_OF_AKS: Final = (
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
)


class AmountSettings(Settings):
    """Amounts of what a node has."""

    cpu: Quantity | None = None
    """Processor time, such as `50m`."""
    memory: Quantity | None = None
    """Memory, such as `96Mi`."""

    def amounts(self) -> dict[str, str]:
        """Those that are set."""
        return {name: value for name, value in (("cpu", self.cpu), ("memory", self.memory)) if value is not None}


class InjectionSettings(Settings):
    """What the webhook puts into pods."""

    image: Image
    """The image of the proxy."""
    imagePullPolicy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When nodes pull it."""
    imagePullSecrets: Items[Annotated[str, Field(pattern=NAME)]] = Field(default=(), max_length=16)
    """Names of Secrets with the credentials of its registry, which pods get beside those that they have. They are in
    the namespace of the pod."""
    source: str = Field("", max_length=128)
    """The folder of the Workload API that is mounted, by its name in `csi.folders` of the [agent](agent.md); empty for
    its default."""
    pqIssuer: RemoteAddress
    """The post-quantum issuer."""
    pqIssuerID: MatcherText
    """Its SPIFFE ID, or a pattern of it."""
    controlPlane: RemoteAddress | None = None
    """The manager at `controlPlaneAddr`, from which proxies get policies as soon as they change, and the
    [statement](manager.md#central-statements) of their pod; by default they have what the kubelet brings, and issue
    their own statement."""
    notarization: Literal["none", "workload", "logRequest", "signRequest"] = "none"
    """The level that every request and message gets at least; it is not for `tcp`."""
    metricsAddr: OptionalAddress = HostPort("", PORT_PROXY_METRICS)
    """`/metrics` of the proxies."""
    fixedUser: bool = True
    """Whether proxies run as user and group 65532; else as those that the cluster chooses for the pod, as OpenShift
    does."""
    requests: AmountSettings = AmountSettings(cpu="50m", memory="96Mi")
    """What is reserved for each proxy."""
    limits: AmountSettings = AmountSettings(memory="256Mi")
    """What each proxy may use."""

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        if self.metricsAddr is not None and self.metricsAddr.port in (0, PORT_PROBES, PORT_PROXY_ADMIN):
            raise ValueError(f"metricsAddr with another port than 0, {PORT_PROBES} and {PORT_PROXY_ADMIN}")
        return self
