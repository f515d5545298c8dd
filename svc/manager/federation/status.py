"""The status of ``SvcCluster``: a package, the Service and the nodes in, endpoints and conditions out. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from svc.errors import SvcError
from svc.federation.endpoint import Endpoint
from svc.federation.package import VerifiedPackage
from svc.federation.reference import FederationReference
from svc.identity import TrustDomain
from svc.kube.client import Object
from svc.kube.status import with_condition
from svc.kube.times import to_time

#: Endpoints that the status lists.
MAX_ENDPOINTS: Final = 16
_Truth = Literal["True", "False"]


class FoundEndpoints(NamedTuple):
    """
    Where peers reach the manager.

    Attributes:
        kind: ``Static`` as the spec says, or ``NodePort``.
        reason: why there are some or none, as one word.
        message: why, for people.
    """

    endpoints: tuple[Endpoint, ...]
    kind: str
    reason: str
    message: str


def find_endpoints(given: str, service: Object | None, nodes: Iterable[Object]) -> FoundEndpoints:
    """
    Find the endpoints.

    Args:
        given: ``spec.m2mEndpoint``; empty where the nodes count.
        service: the one of peers, None where it is not there.
        nodes: of the cluster.
    """
    ports = ((service or {}).get("spec") or {}).get("ports") or [{}]
    port = ports[0].get("nodePort")
    if given:
        try:
            found = Endpoint.parse(given)
        except ValueError as error:
            return FoundEndpoints((), "Static", "EndpointInvalid", f"spec.m2mEndpoint {given!r}: {error}")
        if found.port is None and port is None:
            text = "spec.m2mEndpoint has no port, and there is no NodePort: write host:port"
            return FoundEndpoints((), "Static", "PortUnknown", text)
        found = Endpoint(found.host, found.port or port)
        return FoundEndpoints((found,), "Static", "Given", f"spec.m2mEndpoint says {found}")
    if port is None:
        text = "there is no Service with a NodePort: write spec.m2mEndpoint, how peers reach the manager"
        return FoundEndpoints((), "NodePort", "NoNodePort", text)
    addresses = _addresses(nodes)
    if not addresses:
        text = "no node has an address: write spec.m2mEndpoint, how peers reach the manager"
        return FoundEndpoints((), "NodePort", "NoNodeAddress", text)
    endpoints = tuple(Endpoint(each, port) for each in addresses)
    return FoundEndpoints(endpoints, "NodePort", "Discovered", f"the NodePort {port} of {len(addresses)} node(s)")


def _addresses(nodes: Iterable[Object]) -> list[str]:
    """External addresses of nodes, or the internal ones where no node has any."""
    for kind in ("ExternalIP", "InternalIP"):
        found = {
            each["address"]
            for node in nodes
            for each in (node.get("status") or {}).get("addresses") or ()
            if each.get("type") == kind
        }
        if found:
            return sorted(found)[:MAX_ENDPOINTS]
    return []


def cluster_status(
    found: Object,
    trust_domain: TrustDomain,
    package: VerifiedPackage | None,
    error: SvcError | None,
    endpoints: FoundEndpoints,
    now: datetime,
) -> dict[str, Any]:
    """
    Return the status.

    Args:
        found: the object as it is; the transitions of its conditions go on.
        package: what is published, None where nothing is.
        error: why it could not be renewed, None where it could.
        endpoints: where it is served.
    """
    generation = found["metadata"].get("generation", 0)
    published = _published(package, error, now)
    discovered: tuple[_Truth, str, str] = (
        "True" if endpoints.endpoints else "False",
        endpoints.reason,
        endpoints.message,
    )
    ready = next((each for each in (published, discovered) if each[0] == "False"), None)
    conditions = (found.get("status") or {}).get("conditions") or []
    for name, condition in (
        ("PackagePublished", published),
        ("EndpointDiscovered", discovered),
        ("Ready", ready or ("True", "Published", "peers can fetch the package")),
    ):
        conditions = with_condition(conditions, name, *condition, now, generation=generation)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "trustDomain": trust_domain.name,
        "conditions": conditions,
    }
    if endpoints.endpoints:
        status["m2mEndpoints"] = [{"address": str(each), "type": endpoints.kind} for each in endpoints.endpoints]
    if package is not None:
        content = package.content
        first = endpoints.endpoints[0] if endpoints.endpoints else None
        status |= {
            "fingerprint": content.fingerprint.grouped,
            "reference": str(FederationReference(trust_domain, content.fingerprint, first)),
            "bootstrapPackage": {
                "data": base64.b64encode(package.package.serialize()).decode("ascii"),
                "sequence": content.sequence,
                "issuedAt": to_time(content.issued),
                "notAfter": to_time(content.expires),
            },
        }
    return status


def _published(package: VerifiedPackage | None, error: SvcError | None, now: datetime) -> tuple[_Truth, str, str]:
    if package is None:
        return "False", _word(error), "there is no package yet" if error is None else str(error)
    if now >= package.content.expires:
        return "False", "Expired", f"the package has expired: {error}"
    if error is not None:
        return "True", "NotRenewed", f"the package is valid until {to_time(package.content.expires)}: {error}"
    return "True", "Signed", f"the package is valid until {to_time(package.content.expires)}"


def _word(error: SvcError | None) -> str:
    """The reason of an error as one word in CamelCase."""
    return "Pending" if error is None else "".join(each.capitalize() for each in error.reason.split("_"))
