"""The SPIRE of the chart, which ``twistd svc-manager`` adopts as a ``SpireInstance``, on a real API server."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from svc.manager.instances.descriptor import SpireDescriptor, descriptor_hash
from tests.chart.rendering import Rendered
from tests.integration.test_manager import ManagerCase, RunningManager
from tests.peers.waiting import eventually

EVENT: Final = "svc.manager.spire_instance.changed"
CONTROLLER: Final = {"controller": "spire-instance"}
DOMAIN: Final = "prod.example.org"


class InstanceCase(ManagerCase):
    """The workloads of SPIRE as the chart has them; nothing runs them."""

    def setUp(self) -> None:
        """Render them."""
        super().setUp()
        chart = Rendered({"trustDomain": DOMAIN, "spire": {"storage": {"size": "5Gi"}}})
        workloads = (("StatefulSet", "spire-server"), ("DaemonSet", "spire-agent"))
        self.workloads = {name: chart.one(kind, name) for kind, name in workloads}

    def apply(self, name: str, **status: int) -> str:
        """Make a workload, or set its status; returns its UID."""
        workload = self.workloads[name]
        self.server.kubectl("apply", "-f", "-", data=json.dumps(workload))
        self.patch(workload["kind"], name, {"observedGeneration": 1, **status})
        return self.server.kubectl("get", workload["kind"], name, "-n", "svc-system", "-o", "jsonpath={.metadata.uid}")

    def patch(self, kind: str, name: str, status: dict[str, Any]) -> None:
        """Set the status of an object."""
        text = json.dumps({"status": status})
        command = ("patch", kind, name, "-n", "svc-system", "--subresource=status", "--type=merge", "-p", text)
        self.server.kubectl(*command)

    def agent(self, node: str, owner: str) -> None:
        """Make the pod of an agent, ready."""
        name = f"spire-agent-{node}"
        reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "spire-agent", "uid": owner}
        metadata = {
            "name": name,
            "namespace": "svc-system",
            "labels": {"app": "spire-agent"},
            "ownerReferences": [reference],
        }
        spec = {"nodeName": node, "containers": [{"name": "spire-agent", "image": "spire-agent"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.server.kubectl("create", "-f", "-", data=json.dumps(pod))
        self.patch("pod", name, {"conditions": [{"type": "Ready", "status": "True"}]})

    def ready(self) -> None:
        """Have all of it ready."""
        self.apply("spire-server", replicas=1, readyReplicas=1)
        counts = {"desiredNumberScheduled": 1, "numberReady": 1, "currentNumberScheduled": 1, "numberMisscheduled": 0}
        self.agent("node-a", self.apply("spire-agent", **counts))

    def instance(self) -> dict[str, Any]:
        """Read the object; empty where there is none."""
        found = self.server.kubectl("get", "spi", "spire", "-n", "svc-system", "--ignore-not-found", "-o", "json")
        return json.loads(found) if found else {}

    def until_reason(self, reason: str) -> dict[str, Any]:
        """Wait until the instance is ready, or not, for a reason; returns it."""

        def found() -> Any:
            instance = self.instance()
            conditions = instance.get("status", {}).get("conditions", ())
            return reason in [each["reason"] for each in conditions if each["type"] == "Ready"] and instance

        return eventually(found, what=reason)

    def gauges(self, manager: RunningManager) -> tuple[float, float]:
        """How many there shall be, and how many are ready."""
        return manager.value("spire_instances_total"), manager.value("spire_instances_ready")

    def running_on(self, node: str) -> RunningManager:
        """Start a replica on a node."""
        os.environ["NODE_NAME"] = node
        self.addCleanup(os.environ.pop, "NODE_NAME", None)
        return self.manager(cluster={"trustDomain": DOMAIN})


class AdoptedTests(InstanceCase):
    """What is Helm's stays Helm's."""

    def test_adopted(self) -> None:
        """Its object says what it is and what of it is ready; its workloads are never written."""
        manager = self.running_on("node-a")
        eventually(lambda: manager.value("reconcile_total", result="success", **CONTROLLER))
        self.assertEqual(({}, (0.0, 0.0)), (self.instance(), self.gauges(manager)))
        self.apply("spire-server")
        self.until_reason("ServerNotReady")
        self.assertEqual((1.0, 0.0), self.gauges(manager))
        self.apply("spire-server", replicas=1, readyReplicas=1)
        self.until_reason("AgentsNotFound")
        counts = {"desiredNumberScheduled": 2, "numberReady": 1, "currentNumberScheduled": 2, "numberMisscheduled": 0}
        uid = self.apply("spire-agent", **counts)
        self.agent("node-b", uid)
        self.until_reason("NoAgentOnManagerNode")
        self.assertEqual((1.0, 0.0), self.gauges(manager))
        self.agent("node-a", uid)
        found = self.until_reason("Ready")
        self.assertEqual((1.0, 1.0), self.gauges(manager))
        descriptor = SpireDescriptor(trustDomain=DOMAIN, storage={"size": "5Gi"})  # type: ignore[arg-type]
        self.assertEqual(
            {
                "managedBy": "Helm",
                "descriptorHash": descriptor_hash(descriptor),
                "descriptor": descriptor.document(),
            },
            found["spec"],
        )
        status = {name: each for name, each in found["status"].items() if name != "conditions"}
        expected = {"serverReady": True, "agentsDesired": 2, "agentsReady": 1, "readyOnManagerNode": True}
        self.assertEqual({"observedGeneration": 1, **expected}, status)
        row = self.server.kubectl("get", "spi", "-n", "svc-system").splitlines()[1].split()
        self.assertEqual(["spire", DOMAIN, "true", "1", "True", "Ready"], row[:6])
        states = [each["attributes"]["state"] for each in manager.records(EVENT)]
        self.assertEqual(["ServerNotReady", "AgentsNotFound", "NoAgentOnManagerNode", "Ready"], states)
        for name in ("statefulset/spire-server", "daemonset/spire-agent"):
            found = json.loads(
                self.server.kubectl("get", name, "-n", "svc-system", "-o", "json", "--show-managed-fields")
            )
            owners = {each["manager"] for each in found["metadata"]["managedFields"]}
            self.assertNotIn("svc-manager", owners)
        self.assertEqual(0.0, manager.value("reconcile_total", result="error", **CONTROLLER))

    def test_changed(self) -> None:
        """An object that somebody deletes or changes is made again; without the release it says what is missing."""
        self.ready()
        manager = self.running_on("node-a")
        spec = self.until_reason("Ready")["spec"]
        self.server.kubectl("delete", "spi", "spire", "-n", "svc-system")
        self.until_reason("Ready")
        changed = json.dumps({"spec": {"descriptorHash": "0" * 64}})
        self.server.kubectl("patch", "spi", "spire", "-n", "svc-system", "--type=merge", "-p", changed)
        eventually(lambda: self.instance()["spec"] == spec)
        self.server.kubectl("delete", "statefulset", "spire-server", "-n", "svc-system")
        self.until_reason("ServerNotFound")
        self.assertEqual((0.0, 0.0), self.gauges(manager))

    def test_of_others(self) -> None:
        """A StatefulSet of that name that is not Helm's is none of the chart."""
        self.workloads["spire-server"]["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "somebody"
        self.ready()
        manager = self.running_on("node-a")
        eventually(lambda: manager.value("reconcile_total", result="success", **CONTROLLER))
        self.assertEqual(({}, (0.0, 0.0)), (self.instance(), self.gauges(manager)))

    def test_nodes(self) -> None:
        """Each replica says what is ready on its own node, and outside of the cluster on any."""
        self.ready()
        here, away, outside = (self.running_on(node) for node in ("node-a", "node-b", ""))
        for manager, expected in ((here, 1.0), (away, 0.0), (outside, 1.0)):
            eventually(lambda manager=manager: manager.value("spire_instances_total") == 1.0)
            eventually(lambda manager=manager, expected=expected: self.gauges(manager) == (1.0, expected))
