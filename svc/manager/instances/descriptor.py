"""What makes a SPIRE instance the one that it is, and the hash by which two of them are compared. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from svc import naming
from svc.kube.client import Object
from svc.process.values import TrustDomainText, Wait
from svc.settings import Settings, format_duration

#: The value of the label ``app.kubernetes.io/managed-by`` of what Helm has made.
HELM: Final = "Helm"


def _whole(seconds: float) -> float:
    if not seconds.is_integer():
        raise ValueError("a duration of whole seconds, such as 1h")
    return seconds


Seconds = Annotated[Wait, AfterValidator(_whole)]


class StorageDescriptor(Settings):
    """The volume of the server."""

    size: Annotated[str, Field(min_length=1, max_length=64)] = "1Gi"
    """How large it is, as a quantity of Kubernetes."""
    className: Annotated[str, Field(max_length=253)] = ""
    """The StorageClass; empty for that of the cluster."""


class SpireDescriptor(Settings):
    """A SPIRE instance. The defaults are what SPIRE and the chart have."""

    trustDomain: TrustDomainText
    """Of its server."""
    keyType: Literal["ec-p256", "ec-p384", "rsa-2048", "rsa-4096"] = "ec-p256"
    """Of its authorities."""
    caTtl: Seconds = 86400.0
    """The life of its authorities."""
    x509SvidTtl: Seconds = 3600.0
    """The life of X.509-SVIDs whose entries do not say another one."""
    storage: StorageDescriptor = StorageDescriptor()
    """The volume of the server."""

    def document(self) -> dict[str, Any]:
        """Return all members, as an object has them: defaults too, and each duration in the one way to write it."""
        durations = {name: format_duration(getattr(self, name)) for name in ("caTtl", "x509SvidTtl")}
        return {**self.model_dump(), **durations}


def descriptor_hash(descriptor: SpireDescriptor) -> str:
    """Return SHA-256 over the descriptor with its defaults, in lower-case hexadecimal: one value for one instance."""
    text = json.dumps(descriptor.document(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_of_helm(found: Object) -> bool:
    """Whether Helm has made an object."""
    return (found["metadata"].get("labels") or {}).get(naming.LABEL_MANAGED_BY) == HELM


def adopted_descriptor(trust_domain: str, server: Object) -> SpireDescriptor:
    """
    Describe the SPIRE of the chart.

    Args:
        trust_domain: of the cluster.
        server: the StatefulSet, from which the volume is read. The rest is the same in each release of the chart.
    """
    claims = server["spec"].get("volumeClaimTemplates") or [{}]
    spec = claims[0].get("spec") or {}
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    given = {"size": size, "className": spec.get("storageClassName")}
    storage = StorageDescriptor(**{name: each for name, each in given.items() if each is not None})
    return SpireDescriptor(trustDomain=trust_domain, storage=storage)
