"""The status of SvcCluster."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.federation.endpoint import Endpoint
from svc.federation.package import verify_package
from svc.federation.reference import FederationReference
from svc.manager.federation.status import FoundEndpoints, cluster_status, find_endpoints
from svc.spire.errors import SpireUnavailable
from tests.federation.material import PROD, signed
from tests.vectors.material import NOW

SERVICE = {"spec": {"ports": [{"port": 443, "nodePort": 31443}]}}
ENDPOINTS = FoundEndpoints((Endpoint("192.0.2.1", 31443),), "NodePort", "Discovered", "m")
DOWN = SpireUnavailable(address="a:1", detail="refused")


def node(**addresses: str) -> dict[str, Any]:
    """A node with addresses by their types."""
    return {"status": {"addresses": [{"type": kind, "address": each} for kind, each in addresses.items()]}}


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Status and reason by type."""
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


class EndpointTests(SynchronousTestCase):
    """Where peers reach the manager."""

    def found(self, given: str, service: Any, *nodes: Any) -> tuple[list[str], str]:
        """The endpoints and the reason."""
        found = find_endpoints(given, service, nodes)
        return [str(each) for each in found.endpoints], found.reason

    def test_nodes(self) -> None:
        """External addresses count, internal ones where no node has any; at most sixteen."""
        inner, outer = node(InternalIP="10.0.0.2", Hostname="n"), node(InternalIP="10.0.0.1", ExternalIP="192.0.2.1")
        self.assertEqual((["10.0.0.2:31443"], "Discovered"), self.found("", SERVICE, inner))
        self.assertEqual((["192.0.2.1:31443"], "Discovered"), self.found("", SERVICE, inner, outer))
        self.assertEqual(
            (["[2001:db8::1]:31443"], "Discovered"), self.found("", SERVICE, node(InternalIP="2001:db8::1"))
        )
        many = [node(InternalIP=f"10.0.0.{number}") for number in range(100, 120)]
        self.assertEqual(16, len(self.found("", SERVICE, *many)[0]))

    def test_none(self) -> None:
        """Without a NodePort or an address the reason says what is missing."""
        self.assertEqual(([], "NoNodePort"), self.found("", None, node(InternalIP="10.0.0.1")))
        self.assertEqual(([], "NoNodePort"), self.found("", {"spec": {"ports": [{"port": 443}]}}))
        self.assertEqual(([], "NoNodeAddress"), self.found("", SERVICE, node(Hostname="n"), {}))

    def test_given(self) -> None:
        """What the spec says stands above the nodes, with the port of the NodePort where it has none."""
        for given, service, wanted in (
            ("m2m.example.org:443", None, (["m2m.example.org:443"], "Given")),
            ("m2m.example.org", SERVICE, (["m2m.example.org:31443"], "Given")),
            ("m2m.example.org", None, ([], "PortUnknown")),
            ("https://m2m.example.org", SERVICE, ([], "EndpointInvalid")),
        ):
            self.assertEqual(wanted, self.found(given, service, node(InternalIP="10.0.0.1")))


class StatusTests(SynchronousTestCase):
    """Package and conditions."""

    def status(self, package: Any, error: Any, endpoints: FoundEndpoints = ENDPOINTS, now: Any = NOW) -> dict[str, Any]:
        """The status of a new object."""
        return cluster_status({"metadata": {"generation": 2}}, PROD, package, error, endpoints, now)

    def test_published(self) -> None:
        """A package with its fingerprint, and a reference that names where it is."""
        package = signed()
        status = self.status(package, None)
        self.assertEqual(
            {
                "PackagePublished": ("True", "Signed"),
                "EndpointDiscovered": ("True", "Discovered"),
                "Ready": ("True", "Published"),
            },
            conditions(status),
        )
        read = verify_package(base64.b64decode(status["bootstrapPackage"]["data"]))
        self.assertEqual(package.content, read.content)
        reference = FederationReference.parse(status["reference"])
        self.assertEqual(
            (package.content.fingerprint, ENDPOINTS.endpoints[0]), (reference.fingerprint, reference.endpoint)
        )
        self.assertEqual({2}, {each["observedGeneration"] for each in status["conditions"]})

    def test_failed(self) -> None:
        """While the old package is valid a failure is told beside it; then, or without one, it is not published."""
        for package, now, wanted in (
            (signed(), NOW, ("True", "NotRenewed")),
            (signed(), NOW + timedelta(days=30), ("False", "Expired")),
            (None, NOW, ("False", "SpireUnavailable")),
        ):
            status = self.status(package, DOWN, now=now)
            self.assertEqual(wanted, conditions(status)["PackagePublished"])
            self.assertEqual(wanted[0], conditions(status)["Ready"][0])
            (said,) = [each["message"] for each in status["conditions"] if each["type"] == "PackagePublished"]
            self.assertIn("a:1", said)

    def test_unreachable(self) -> None:
        """Without an endpoint the package is published, and the cluster not ready."""
        status = self.status(signed(), None, FoundEndpoints((), "NodePort", "NoNodePort", "m"))
        self.assertEqual(("False", "NoNodePort"), conditions(status)["Ready"])
        self.assertNotIn("m2mEndpoints", status)
        self.assertIsNone(FederationReference.parse(status["reference"]).endpoint)
