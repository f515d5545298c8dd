"""The status of SPIRE instances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.client import Object
from svc.manager.instances.status import InstanceState, instance_status

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODE = "node-a"


def pod(node: str = NODE, *, ready: str = "True", owner: str = "u", **metadata: str) -> Object:
    """A pod of an agent."""
    return {
        "metadata": {"ownerReferences": [{"uid": owner}], **metadata},
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def agents(desired: int = 1, ready: int = 1) -> Object:
    """A DaemonSet."""
    return {"metadata": {"uid": "u"}, "status": {"desiredNumberScheduled": desired, "numberReady": ready}}


def server(ready: int | None = 1) -> Object:
    """A StatefulSet."""
    return {"metadata": {}, "status": {} if ready is None else {"readyReplicas": ready}}


class StateTests(SynchronousTestCase):
    """What of an instance is there."""

    def test_ready(self) -> None:
        """The server and one agent on the manager's node are needed; an agent that ends is none, nor one of others."""
        for expected, state in (
            (True, InstanceState.of(server(), agents(), [pod()], NODE)),
            (True, InstanceState.of(server(), agents(2, 1), [pod("node-b", ready="False"), pod()], NODE)),
            (True, InstanceState.of(server(), agents(), [pod("node-b")], "")),
            (False, InstanceState.of(server(), agents(), [pod("node-b")], NODE)),
            (False, InstanceState.of(server(), agents(), [pod(ready="False")], NODE)),
            (False, InstanceState.of(server(), agents(), [pod(owner="other")], NODE)),
            (False, InstanceState.of(server(), agents(), [pod(deletionTimestamp="2026-03-01T12:00:00Z")], NODE)),
            (False, InstanceState.of(server(), agents(), [{**pod(), "status": {}}], NODE)),
            (False, InstanceState.of(server(None), agents(), [pod()], NODE)),
            (False, InstanceState.of(None, agents(), [pod()], NODE)),
            (False, InstanceState.of(server(), None, [pod()], NODE)),
            (False, InstanceState()),
        ):
            self.assertIs(expected, state.ready, state)


class StatusTests(SynchronousTestCase):
    """Conditions."""

    def status(self, state: InstanceState, former: dict[str, Any] | None = None, minutes: int = 0) -> Any:
        """The status of an object with this one."""
        found = {"metadata": {"generation": 3}, "status": former or {}}
        return instance_status(found, state, ("server", "agents"), NODE, NOW + timedelta(minutes=minutes))

    def conditions(self, state: InstanceState, node: str = NODE) -> dict[str, tuple[str, str, str]]:
        """What the conditions say."""
        found = instance_status({"metadata": {}}, state, ("server", "agents"), node, NOW)["conditions"]
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in found}

    def test_whole(self) -> None:
        """All of it; a condition keeps its time while its status is the same."""
        status = self.status(InstanceState(1, 2, 1, here=True))
        conditions = {each["type"]: each for each in status.pop("conditions")}
        expected = {"serverReady": True, "agentsDesired": 2, "agentsReady": 1, "readyOnManagerNode": True}
        self.assertEqual({"observedGeneration": 3, **expected}, status)
        self.assertEqual({"Ready", "ServerReady", "AgentsReady", "CoolingDown"}, set(conditions))
        self.assertEqual({3}, {each["observedGeneration"] for each in conditions.values()})
        later = self.status(InstanceState(1, 2, 2, here=True), {"conditions": list(conditions.values())}, minutes=1)
        moved = {each["type"] for each in later["conditions"] if each["lastTransitionTime"] == "2026-03-01T12:01:00Z"}
        self.assertEqual({"AgentsReady"}, moved)

    def test_reasons(self) -> None:
        """The first thing that is missing is why it is not ready."""
        for state, ready, cause in (
            (InstanceState(), ("False", "ServerNotFound"), "there is no statefulsets.apps/server"),
            (InstanceState(0, 1, 1, here=True), ("False", "ServerNotReady"), "no pod of statefulsets.apps/server"),
            (InstanceState(1), ("False", "AgentsNotFound"), "there is no daemonsets.apps/agents"),
            (InstanceState(1, 2, 1), ("False", "NoAgentOnManagerNode"), "no agent on the node node-a"),
            (InstanceState(1, 2, 1, here=True), ("True", "Ready"), "an agent on the node node-a"),
        ):
            found = self.conditions(state)["Ready"]
            self.assertEqual(ready, found[:2])
            self.assertIn(cause, found[2])
        self.assertIn("any node", self.conditions(InstanceState(1, 2, 1, here=True), "")["Ready"][2])

    def test_agents(self) -> None:
        """Those of all nodes are needed, and at least one node; an instance of Helm never cools down."""
        for state, expected in (
            (InstanceState(1), ("False", "NotFound")),
            (InstanceState(1, 0), ("False", "NoNode")),
            (InstanceState(1, 2, 1), ("False", "NotReady")),
            (InstanceState(1, 2, 2), ("True", "Ready")),
        ):
            found = self.conditions(state)
            self.assertEqual(expected, found["AgentsReady"][:2])
            self.assertEqual(("False", "ManagedByHelm"), found["CoolingDown"][:2])
