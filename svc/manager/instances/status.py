"""The status of SPIRE instances: what of one is ready, as its conditions say it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, Self

from svc.kube.client import Object
from svc.kube.kinds import DAEMON_SETS, STATEFUL_SETS
from svc.kube.status import with_condition

_Condition = tuple[Literal["True", "False", "Unknown"], str, str]
_HELM: Final = ("False", "ManagedByHelm", "it is removed with the release of the chart, at once")


@dataclass(frozen=True)
class InstanceState:
    """
    What of an instance is there.

    Attributes:
        server: ready pods of the server; None where there is no StatefulSet.
        desired: how many nodes shall have an agent; None where there is no DaemonSet.
        agents: how many of them are ready.
        here: whether one of them is on the node of the manager.
    """

    server: int | None = None
    desired: int | None = None
    agents: int = 0
    here: bool = False

    @classmethod
    def of(cls, server: Object | None, agents: Object | None, pods: Iterable[Object], node: str) -> Self:
        """
        Look at its objects.

        Args:
            server: the StatefulSet.
            agents: the DaemonSet.
            pods: those of the agents.
            node: that of the manager; empty where it runs outside of the cluster, so that each node counts.
        """
        served = None if server is None else (server.get("status") or {}).get("readyReplicas") or 0
        if agents is None:
            return cls(served)
        counts = agents.get("status") or {}
        uid = agents["metadata"]["uid"]
        here = any(_is_ready(pod) and _owned_by(pod, uid) and node in ("", pod["spec"].get("nodeName")) for pod in pods)
        return cls(served, counts.get("desiredNumberScheduled") or 0, counts.get("numberReady") or 0, here)

    @property
    def ready(self) -> bool:
        """Whether the manager can use it: the server is ready, and an agent on the manager's node."""
        return bool(self.server) and self.here


def instance_status(found: Object, state: InstanceState, names: tuple[str, str], node: str, now: datetime) -> Object:
    """
    Return the status of an instance of Helm.

    Args:
        found: the object; the transitions of its conditions go on.
        state: what of it is there.
        names: those of its StatefulSet and its DaemonSet.
        node: that of the manager; empty where it runs outside of the cluster.
        now: aware.
    """
    conditions: list[Object] = (found.get("status") or {}).get("conditions") or []
    generation: int = found["metadata"].get("generation", 0)
    server, agents = _server(state, names[0]), _agents(state, names[1])
    for kind, condition in (
        ("ServerReady", server),
        ("AgentsReady", agents),
        ("CoolingDown", _HELM),
        ("Ready", _ready(state, server, agents, node)),
    ):
        conditions = with_condition(conditions, kind, *condition, now, generation=generation)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "serverReady": bool(state.server),
        "agentsDesired": state.desired or 0,
        "agentsReady": state.agents,
        "readyOnManagerNode": state.here,
        "conditions": conditions,
    }
    return status


def _server(state: InstanceState, name: str) -> _Condition:
    if state.server is None:
        return "False", "NotFound", f"there is no {STATEFUL_SETS}/{name}"
    if not state.server:
        return "False", "NotReady", f"no pod of {STATEFUL_SETS}/{name} is ready"
    return "True", "Ready", "the server is ready"


def _agents(state: InstanceState, name: str) -> _Condition:
    if state.desired is None:
        return "False", "NotFound", f"there is no {DAEMON_SETS}/{name}"
    if not state.desired:
        return "False", "NoNode", f"no node is chosen for {DAEMON_SETS}/{name}"
    said = f"the agents of {state.agents} of {state.desired} nodes are ready"
    return ("True", "Ready", said) if state.agents >= state.desired else ("False", "NotReady", said)


def _ready(state: InstanceState, server: _Condition, agents: _Condition, node: str) -> _Condition:
    if server[0] != "True":
        return "False", f"Server{server[1]}", server[2]
    if state.desired is None:
        return "False", f"Agents{agents[1]}", agents[2]
    place = f"the node {node} of the manager" if node else "any node"
    if not state.here:
        return "False", "NoAgentOnManagerNode", f"no agent on {place} is ready"
    return "True", "Ready", f"the server and an agent on {place} are ready"


def _is_ready(pod: Object) -> bool:
    """Whether a pod is ready, and does not end."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = {each["type"]: each["status"] for each in conditions}.get("Ready") == "True"
    return ready and "deletionTimestamp" not in pod["metadata"]


def _owned_by(pod: Object, uid: str) -> bool:
    return any(each.get("uid") == uid for each in pod["metadata"].get("ownerReferences") or ())
