"""``svc/data/crds`` on a real API server: accepted as they are, and what their rules accept and refuse."""

from __future__ import annotations

import asyncio
import copy
import json
from contextlib import aclosing
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.client import connect
from svc.kube.kinds import (
    CLUSTER_NAME,
    CLUSTERS,
    FOREIGN_CLUSTERS,
    LICENSE_STATUS_NAME,
    LICENSE_STATUSES,
    SPIRE_INSTANCES,
    Kind,
)
from svc.kube.status import apply_status
from svc.manager.instances.descriptor import SpireDescriptor, descriptor_hash
from tests.integration.kube_rig import SERVER
from tests.kube.test_crds import schema
from tests.peers.apiserver import ApiServer, ApiServerFailed

_T = "2026-03-01T12:00:00Z"
#: Each field once.
STATUS: Final[dict[str, Any]] = {
    "observedTime": _T,
    "state": "Grace",
    "reason": "license_damaged",
    "conditions": [
        {"type": "Valid", "status": "True", "reason": "Grace", "message": "", "lastTransitionTime": _T},
        {
            "type": "WithinLimits",
            "status": "Unknown",
            "reason": "NotMeasured",
            "message": "m",
            "lastTransitionTime": _T,
            "observedGeneration": 1,
        },
    ],
    "id": "ENfLGLM5WCNdNR8o_Q9JXQ",
    "issuer": "vendor",
    "customer": "c-1",
    "licensee": "ACME GmbH",
    "edition": "enterprise",
    "notBefore": _T,
    "notAfter": _T,
    "graceUntil": _T,
    "maintenanceUntil": _T,
    "warning": 30,
    "nextChange": {"time": _T, "state": "Expired"},
    "enforcement": "soft",
    "features": ["federation", "mqtt"],
    "trustDomains": ["prod.example.org"],
    "limits": {"workloads": 500, "clusters": 3},
    "usage": {"workloads": 20},
    "kids": {"Ed25519": "a" * 43, "ML-DSA-87": "b" * 43},
    "secretRef": {"namespace": "svc-system", "name": "svc-license-0123456789"},
    "licenses": [
        {
            "namespace": "svc-system",
            "name": "svc-license-0123456789",
            "state": "Grace",
            "id": "ENfLGLM5WCNdNR8o_Q9JXQ",
            "licensee": "ACME GmbH",
            "notAfter": _T,
            "counts": True,
        },
        {"namespace": "svc-system", "name": "other", "state": "Invalid", "reason": "license_cut", "counts": False},
    ],
}


class _Case(SynchronousTestCase):
    """One server for all, with the custom resources."""

    server: ApiServer

    def setUp(self) -> None:
        """Take the server."""
        self.server = SERVER.get()
        self.server.apply_crds()

    def refused(self, wanted: str, *arguments: str, data: str = "") -> None:
        """Run kubectl, which is refused with a text."""
        with self.assertRaises(ApiServerFailed) as caught:
            self.server.kubectl(*arguments, data=data)
        self.assertIn(wanted, str(caught.exception))


class DefinitionTests(_Case):
    """All custom resources."""

    def test_accepted(self) -> None:
        """Each is structural and served, and applied again it stays as it is."""
        read = ("get", "crds", "-o", "json")
        before = json.loads(self.server.kubectl(*read))["items"]
        found = [each for each in before if each["spec"]["group"] == "svc.internal"]
        self.assertTrue(found)
        for each in found:
            held = {condition["type"]: condition["status"] for condition in each["status"]["conditions"]}
            self.assertEqual(("True", "True"), (held["Established"], held["NamesAccepted"]))
            self.assertNotEqual("True", held.get("NonStructuralSchema"))
        self.server.apply_crds()
        self.assertEqual(before, json.loads(self.server.kubectl(*read))["items"])

    def test_explained(self) -> None:
        """kubectl explains the fields."""
        shown = self.server.kubectl("explain", "svclicensestatus.status.observedTime")
        self.assertIn("never goes back", " ".join(shown.split()))


class LicenseStatusTests(_Case):
    """SvcLicenseStatus."""

    def setUp(self) -> None:
        """Make the object."""
        super().setUp()
        self.server.kubectl("create", "-f", "-", data=self.object())
        self.addCleanup(self.server.kubectl, "delete", "svclic", "--all")

    def object(self, name: str = LICENSE_STATUS_NAME) -> str:
        """The text of an object."""
        kind = LICENSE_STATUSES
        return json.dumps({"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}})

    def patch(self, status: Any) -> tuple[str, ...]:  # type: ignore[override]
        """The arguments of kubectl that change the status."""
        patch = json.dumps({"status": status})
        return "patch", "svclic", LICENSE_STATUS_NAME, "--subresource=status", "--type=merge", "-p", patch

    def status(self) -> Any:
        """What the object has."""
        return json.loads(self.server.kubectl("get", "svclic", LICENSE_STATUS_NAME, "-o", "json")).get("status")

    def test_singleton(self) -> None:
        """An object of another name is refused, also by server-side apply."""
        for command in (("create",), ("apply", "--server-side")):
            self.refused("its name is license", *command, "-f", "-", data=self.object("other"))

    def test_whole_status(self) -> None:
        """Of a status with each field nothing is removed; the client writes it once, and it is no change afterwards."""

        async def write() -> list[bool]:
            async with aclosing(await connect(str(self.server.kubeconfig))) as client:
                written = []
                for _ in range(2):
                    found = await client.get(LICENSE_STATUSES, LICENSE_STATUS_NAME)
                    written.append(await apply_status(client, LICENSE_STATUSES, found, STATUS, manager="svc-manager"))
                return written

        self.assertEqual(set(schema(LICENSE_STATUSES.plural)["properties"]["status"]["properties"]), set(STATUS))
        self.assertEqual([True, False], asyncio.run(write()))
        self.assertEqual(STATUS, self.status())
        row = self.server.kubectl("get", "svclic").splitlines()[1].split("  ")
        columns = [each.strip() for each in row if each.strip()]
        self.assertEqual(["license", "Grace", "ACME GmbH", "enterprise", _T, "Unknown"], columns[:6])

    def test_observed_time(self) -> None:
        """The time may stay and advance, and never go back or vanish; a new object begins anew."""
        self.server.kubectl(*self.patch(STATUS))
        for moment in (_T, "2026-03-01T14:00:00+02:00", "2026-03-01T12:00:01Z"):
            self.server.kubectl(*self.patch({"observedTime": moment}))
        self.refused("observedTime never goes back", *self.patch({"observedTime": _T}))
        self.refused("observedTime never goes back", *self.patch({"observedTime": "2026-03-01T13:30:00+02:00"}))
        self.refused("Required value", *self.patch({"observedTime": None}))
        self.server.kubectl("delete", "svclic", LICENSE_STATUS_NAME)
        self.server.kubectl("create", "-f", "-", data=self.object())
        self.server.kubectl(*self.patch(STATUS))

    def test_status_alone(self) -> None:
        """What is written beside the subresource is not taken into the status."""
        self.server.kubectl(*self.patch(STATUS))
        self.server.kubectl(
            "patch", "svclic", LICENSE_STATUS_NAME, "--type=merge", "-p", '{"status":{"state":"Valid"}}'
        )
        self.assertEqual("Grace", self.status()["state"])

    def test_refused_values(self) -> None:
        """Values that are none, and one more than each bound allows; as much is accepted."""
        limits = {f"l{number}": number for number in range(32)}
        features = [f"f{number}" for number in range(64)]
        self.server.kubectl(*self.patch({**STATUS, "limits": limits, "features": features, "licensee": "x" * 256}))
        condition = copy.deepcopy(STATUS["conditions"][0])
        for wrong, text in (
            ({"state": "Good"}, "Unsupported value"),
            ({"notAfter": "tomorrow"}, "must be of type date-time"),
            ({"limits": {**limits, "more": 1}}, "must have at most 32 items"),
            ({"limits": {"l0": -1}}, "greater than or equal to 0"),
            ({"features": [*features, "more"]}, "must have at most 64 items"),
            ({"features": ["f", "f"]}, "Duplicate value"),
            ({"licensee": "x" * 257}, "may not be more than 256"),
            ({"conditions": [condition, condition]}, "Duplicate value"),
            ({"conditions": [{**condition, "status": "Maybe"}]}, "Unsupported value"),
            ({"conditions": [{**condition, "reason": "two words"}]}, "should match"),
            ({"licenses": [STATUS["licenses"][1], STATUS["licenses"][1]]}, "Duplicate value"),
            ({"licenses": [{"namespace": "a", "name": "b", "state": "Missing"}]}, "Unsupported value"),
        ):
            self.refused(text, *self.patch(wrong))


_CONDITION: Final = {
    "type": "Ready",
    "status": "True",
    "reason": "Published",
    "message": "m",
    "lastTransitionTime": _T,
    "observedGeneration": 1,
}
_FINGERPRINT: Final = "-".join(["k7q4"] * 13)
_PACKAGE: Final = {"fingerprint": _FINGERPRINT, "sequence": 7, "issuedAt": _T, "notAfter": _T}
CLUSTER_STATUS: Final[dict[str, Any]] = {
    "observedGeneration": 1,
    "trustDomain": "prod.example.org",
    "fingerprint": _FINGERPRINT,
    "reference": f"svcfed1:prod.example.org:{_FINGERPRINT}~abcdef",
    "bootstrapPackage": {"data": "e30=", "sequence": 7, "issuedAt": _T, "notAfter": _T},
    "m2mEndpoints": [{"address": "192.0.2.1:31443", "type": "NodePort"}],
    "conditions": [_CONDITION],
}
FOREIGN_STATUS: Final[dict[str, Any]] = {
    "observedGeneration": 1,
    "observedRebootstrapToken": "t",
    "continuity": "working",
    "pinned": {**_PACKAGE, "data": "e30="},
    "served": _PACKAGE,
    "lastSuccess": _T,
    "nextPoll": _T,
    "pq": {"sequence": 3, "roots": 2},
    "conditions": [_CONDITION],
}


INSTANCE_STATUS: Final[dict[str, Any]] = {
    "observedGeneration": 1,
    "serverReady": True,
    "agentsDesired": 2,
    "agentsReady": 1,
    "readyOnManagerNode": True,
    "conditions": [_CONDITION],
}


class InstanceTests(_Case):
    """SpireInstance."""

    def test_instance(self) -> None:
        """The descriptor of the code is accepted whole, as a status with each field; others are not."""
        descriptor = SpireDescriptor(trustDomain="prod.example.org")
        spec: dict[str, Any] = {
            "managedBy": "Helm",
            "descriptorHash": descriptor_hash(descriptor),
            "descriptor": descriptor.document(),
        }
        metadata = {"name": "spire", "namespace": "default"}
        found = {"apiVersion": SPIRE_INSTANCES.api_version, "kind": SPIRE_INSTANCES.name, "metadata": metadata}
        for wrong, text in (
            ({"managedBy": "Somebody"}, "Unsupported value"),
            ({"descriptorHash": "0"}, "should match"),
            ({"descriptor": {"trustDomain": "prod.example.org"}}, "Required value"),
            ({"descriptor": {**spec["descriptor"], "keyType": "ed25519"}}, "Unsupported value"),
        ):
            self.refused(text, "create", "-f", "-", data=json.dumps({**found, "spec": {**spec, **wrong}}))
        self.server.kubectl("create", "-f", "-", data=json.dumps({**found, "spec": spec}))
        self.addCleanup(self.server.kubectl, "delete", "spi", "spire")
        members = schema(SPIRE_INSTANCES.plural)["properties"]["status"]["properties"]
        self.assertEqual(set(members), set(INSTANCE_STATUS))
        patch = json.dumps({"status": INSTANCE_STATUS})
        self.server.kubectl("patch", "spi", "spire", "--subresource=status", "--type=merge", "-p", patch)
        shown = json.loads(self.server.kubectl("get", "spi", "spire", "-o", "json"))
        self.assertEqual((spec, INSTANCE_STATUS), (shown["spec"], shown["status"]))


class FederationTests(_Case):
    """SvcCluster and SvcForeignCluster."""

    def setUp(self) -> None:
        """Remove what is there at the end."""
        super().setUp()
        self.addCleanup(self.server.kubectl, "delete", "svcclusters,svcforeignclusters", "--all")

    def object(self, kind: Kind, name: str, **spec: Any) -> str:
        """The text of an object."""
        found = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}}
        return json.dumps({**found, "spec": spec} if spec else found)

    def peer(self, name: str, **spec: Any) -> str:
        """The text of a peer."""
        return self.object(FOREIGN_CLUSTERS, name, trustDomain="partner.example.org", **spec)

    def test_singleton(self) -> None:
        """There is one SvcCluster, which needs no spec."""
        create = ("create", "-f", "-")
        self.refused("its name is cluster", *create, data=self.object(CLUSTERS, "other"))
        self.server.kubectl(*create, data=self.object(CLUSTERS, CLUSTER_NAME))

    def test_whole_status(self) -> None:
        """Of a status with each field nothing is removed, and the columns show it."""
        create = ("create", "-f", "-")
        self.server.kubectl(*create, data=self.object(CLUSTERS, CLUSTER_NAME))
        self.server.kubectl(*create, data=self.peer("partner", bootstrapPackage="e30="))
        for kind, name, status, shown in (
            (CLUSTERS, CLUSTER_NAME, CLUSTER_STATUS, ["cluster", "prod.example.org", "True", "Published"]),
            (FOREIGN_CLUSTERS, "partner", FOREIGN_STATUS, ["partner", "partner.example.org", "working", "True"]),
        ):
            self.assertEqual(set(schema(kind.plural)["properties"]["status"]["properties"]), set(status))
            patch = json.dumps({"status": status})
            self.server.kubectl("patch", str(kind), name, "--subresource=status", "--type=merge", "-p", patch)
            self.assertEqual(status, json.loads(self.server.kubectl("get", str(kind), name, "-o", "json"))["status"])
            self.assertEqual(shown, self.server.kubectl("get", str(kind)).splitlines()[1].split()[: len(shown)])

    def test_peer(self) -> None:
        """A peer has a package, or a fingerprint of any spelling and an endpoint; its trust domain never changes."""
        create = ("create", "-f", "-")
        for number, given in enumerate((_FINGERPRINT, "SHA256:" + "A" * 43, "12345 " * 11 + "12345")):
            self.server.kubectl(
                *create, data=self.peer(f"p{number}", bootstrapPackage="e30=", expectedFingerprint=given)
            )
        for number, given in enumerate(("a.example.org:443", "192.0.2.1:1", "[2001:db8::1]:31443")):
            peer = self.peer(f"fetched{number}", expectedFingerprint=_FINGERPRINT, m2mEndpoint=given)
            self.server.kubectl(*create, data=peer)
        for wrong, text in (
            ({}, "bootstrapPackage is needed, or both expectedFingerprint and m2mEndpoint"),
            ({"expectedFingerprint": _FINGERPRINT}, "bootstrapPackage is needed, or both"),
            ({"m2mEndpoint": "a.example.org:443"}, "bootstrapPackage is needed, or both"),
            ({"bootstrapPackage": "e30=", "m2mEndpoint": "a.example.org"}, "m2mEndpoint is host:port"),
            ({"bootstrapPackage": "e30=", "m2mEndpoint": "https://a.example.org:443"}, "m2mEndpoint is host:port"),
            ({"bootstrapPackage": "e30=", "m2mEndpoint": "[2001:db8::1]"}, "m2mEndpoint is host:port"),
            ({"bootstrapPackage": "{}"}, "must be of type byte"),
            ({"bootstrapPackage": "e30=", "expectedFingerprint": ""}, "should be at least 1 chars"),
            ({"bootstrapPackage": "e30=", "rebootstrap": {"force": True}}, "Required value"),
        ):
            self.refused(text, *create, data=self.peer("wrong", **wrong))
        self.refused(
            "trustDomain never changes",
            *("patch", "svcfc", "p0", "--type=merge", "-p", '{"spec":{"trustDomain":"other.example.org"}}'),
        )
