"""Why the pods of an installation are not ready."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.install.deployment.pods import unready_pods


def pod(*containers: dict[str, Any], ready: str = "False", phase: str = "Running", **metadata: str) -> dict[str, Any]:
    """A pod with its containers, and whether it is ready."""
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": list(containers)}
    return {"metadata": {"name": "one", **metadata}, "status": status}


def container(state: dict[str, Any], **others: Any) -> dict[str, Any]:
    """A container that is not ready."""
    return {"name": "main", "ready": False, "state": state, **others}


class UnreadyPodsTests(SynchronousTestCase):
    """The line of a pod."""

    def test_reasons(self) -> None:
        """Each names the first of what hinders: no node, a container that failed, or one that is not ready yet."""
        scheduled = {"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}
        running = {"running": {"startedAt": "2026-11-28T12:00:00Z"}}
        pulled = {"waiting": {"reason": "ErrImagePull", "message": "denied"}}
        ended = {"terminated": {"reason": "Error", "exitCode": 2}}
        for found, why in (
            ({"metadata": {"name": "one"}, "status": {"conditions": [scheduled]}}, "Insufficient cpu"),
            (pod(container(pulled)), "container main: ErrImagePull: denied"),
            (pod(container(ended)), "container main: Error: status 2"),
            (pod(container(running, lastState=ended)), "container main: Error: status 2"),
            (pod(container({"terminated": {"reason": "Completed", "exitCode": 0}})), "container main is not ready"),
            (pod(container({"waiting": {"reason": "ContainerCreating"}})), "container main is not ready"),
            (pod(container(running)), "container main is not ready"),
            (pod(phase="Pending"), "it has not started"),
            ({"metadata": {"name": "one"}}, "it has not started"),
        ):
            [line] = unready_pods([found])
            self.assertTrue(line.startswith("pod one is not ready: ") and line.endswith(why), line)

    def test_others(self) -> None:
        """Pods that are ready, have ended or are to end are not named."""
        ending = pod(deletionTimestamp="2026-11-28T12:00:00Z")
        self.assertEqual([], list(unready_pods([pod(ready="True"), pod(phase="Succeeded"), ending])))
