"""The controller of NetworkPolicies: what is due in enabled namespaces is written, and what is not wanted deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from twisted.logger import Logger

from svc import naming
from svc.kube.cache import Cache, run_all
from svc.kube.errors import Conflict, KubernetesError, NotFound
from svc.kube.kinds import NETWORK_POLICIES
from svc.manager.context import ClusterContext
from svc.manager.networkpolicies.policies import due_changes, wanted_spec
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.logs import emit

#: Seconds between two attempts while one namespace refuses: meanwhile a policy of a user in another one is not seen.
LONGEST_PAUSE: Final = 5.0


class NetworkPolicyController:
    """
    Follows namespaces and policies, and makes those of the manager as they should be.

    Args:
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "network-policies"

    def __init__(self, context: ClusterContext, changed: Callable[[], object]) -> None:
        self._client = context.client
        self._spec = wanted_spec(context.settings)
        self._namespaces = context.enabled_namespaces(changed)
        self._policies = context.cache(NETWORK_POLICIES, changed)

    @property
    def caches(self) -> Sequence[Cache]:
        return self._namespaces, self._policies

    async def follow(self) -> None:
        await run_all(self.caches)

    async def reconcile(self) -> None:
        """
        Write and delete.

        Raises:
            KubernetesError: one was refused; the others are as they should be.
        """
        todo = due_changes(self._namespaces.objects.values(), self._policies.objects, self._spec)
        calls: list[tuple[str, str, Callable[[], Awaitable[object]]]] = []
        # First what is open where a policy of a user closes it.
        for name in todo.delete:
            delete = partial(self._client.delete, NETWORK_POLICIES, naming.NETWORK_POLICY, name)
            calls.append(("deleted", name, delete))
        for action, write, bodies in (
            ("replaced", self._client.replace, todo.replace),
            ("created", self._client.create, todo.create),
        ):
            for body in bodies:
                calls.append((action, body["metadata"]["namespace"], partial(write, NETWORK_POLICIES, body)))
        failures: list[KubernetesError] = []
        for action, name, call in calls:
            try:
                await call()
            except (Conflict, NotFound):
                # Somebody was faster: the watch brings what it is now.
                continue
            except KubernetesError as error:
                failures.append(error)
            else:
                emit(self.log, ManagerEvent.NETWORK_POLICY, attributes={"namespace": name, "action": action})
        if failures:
            raise failures[0]
