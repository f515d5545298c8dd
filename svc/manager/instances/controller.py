"""
The controller of SPIRE instances: it adopts that of the chart, whose objects are Helm's, and says whether it is ready.

Every replica counts what is ready for it, on its own node; the one that leads writes the object and its status.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.logger import Logger

from svc import naming
from svc.kube.cache import Cache, run_all
from svc.kube.client import Object
from svc.kube.kinds import DAEMON_SETS, PODS, SPIRE_INSTANCES, STATEFUL_SETS
from svc.kube.status import apply_status
from svc.manager.context import ClusterContext
from svc.manager.instances.descriptor import HELM, adopted_descriptor, descriptor_hash, is_of_helm
from svc.manager.instances.status import InstanceState, instance_status
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.logs import emit

#: The instance of the chart, and its StatefulSet and DaemonSet.
ADOPTED: Final = "spire"
NAMES: Final = ("spire-server", "spire-agent")


class InstanceController:
    """
    Follows the SPIRE of the chart on every replica, and writes where this one leads.

    Args:
        node: that of this replica; empty where it runs outside of the cluster.
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "spire-instance"

    def __init__(self, context: ClusterContext, node: str, changed: Callable[[], object]) -> None:
        self._client = context.client
        self._namespace = context.namespace
        self._trust_domain = context.settings.trustDomain
        self._node = node
        self._now = context.now
        self._metrics = context.metrics
        self._changed = changed
        server, agent = NAMES
        self._instances = context.cache(SPIRE_INSTANCES, changed, namespace=context.namespace)
        self._servers = context.named(STATEFUL_SETS, server, self._seen, namespace=context.namespace)
        self._agents = context.named(DAEMON_SETS, agent, self._seen, namespace=context.namespace)
        self._pods = context.cache(PODS, self._seen, namespace=context.namespace, labels=f"app={agent}")

    @property
    def caches(self) -> Sequence[Cache]:
        return self._instances, self._servers, self._agents, self._pods

    async def follow(self) -> None:
        await run_all(self.caches)

    async def reconcile(self) -> None:
        """
        Write the object of the chart's instance, then its status.

        Raises:
            KubernetesError: one was refused.
        """
        server, found = self._server(), self._instances.objects.get((self._namespace, ADOPTED))
        if server is not None:
            found = await self._written(found, server)
        # Where the release is gone, its last status would say that all is well.
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            await self._report(found)

    async def _written(self, found: Object | None, server: Object) -> Object:
        descriptor = adopted_descriptor(self._trust_domain, server)
        spec = {
            "managedBy": HELM,
            "descriptorHash": descriptor_hash(descriptor),
            "descriptor": descriptor.document(),
        }
        if found is not None and found.get("spec") == spec:
            return found
        metadata = {"name": ADOPTED, "namespace": self._namespace}
        return await self._client.apply(SPIRE_INSTANCES, {"metadata": metadata, "spec": spec}, manager=naming.MANAGER)

    async def _report(self, found: Object) -> None:
        state = self._state()
        status = instance_status(found, state, NAMES, self._node, self._now())
        if not await apply_status(self._client, SPIRE_INSTANCES, found, status, manager=naming.MANAGER):
            return
        former, ready = (_condition(each) for each in (found.get("status") or {}, status))
        if (former.get("status"), former.get("reason")) != (ready["status"], ready["reason"]):
            emit(
                self.log,
                ManagerEvent.SPIRE_INSTANCE,
                outcome="success" if state.ready else "failure",
                message=ready["message"],
                attributes={"instance": ADOPTED, "state": ready["reason"], "former_state": former.get("reason")},
            )

    def _server(self) -> Object | None:
        """The StatefulSet, as long as it is Helm's."""
        found = self._servers.objects.get((self._namespace, NAMES[0]))
        return found if found is not None and is_of_helm(found) else None

    def _state(self) -> InstanceState:
        agents = self._agents.objects.get((self._namespace, NAMES[1]))
        return InstanceState.of(self._server(), agents, self._pods.objects.values(), self._node)

    def _seen(self) -> None:
        """Each replica says what it sees."""
        state = self._state()
        self._metrics.spire_instances(desired=int(self._server() is not None), ready=int(state.ready))
        self._changed()


def _condition(status: Object) -> Object:
    """The condition ``Ready``; empty where there is none."""
    found: list[Object] = [each for each in status.get("conditions") or () if each["type"] == "Ready"]
    return found[0] if found else {}
