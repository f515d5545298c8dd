"""Scenarios with clients of a real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.client import Client, Object, connect
from svc.kube.errors import KubernetesError
from svc.kube.kinds import Kind
from tests.peers.apiserver import ApiServer
from tests.peers.waiting import PATIENCE, NotInTime, Shared

CONFIGMAPS: Final = Kind("", "v1", "configmaps", "ConfigMap")
PROBES: Final = Kind("probe.svc.internal", "v1", "probes", "Probe")
#: Which no server knows.
UNKNOWN: Final = Kind("unknown.svc.internal", "v1", "unknowns", "Unknown")
_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PROBES_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "probes.probe.svc.internal"},
    "spec": {
        "group": "probe.svc.internal",
        "scope": "Namespaced",
        "names": {"kind": "Probe", "plural": "probes"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": _SCHEMA},
                "subresources": {"status": {}},
            }
        ],
    },
}
#: A server that nobody stops.
SERVER: Final = Shared(lambda stack: stack.enter_context(ApiServer()))
Scenario = Callable[[Client, str], Coroutine[Any, Any, None]]


def install_probes(server: ApiServer) -> None:
    """Make the custom resource ``Probe``, of which everything is accepted."""
    server.kubectl("apply", "-f", "-", data=json.dumps(_PROBES_CRD))
    server.kubectl("wait", "--for=condition=Established", "crd/probes.probe.svc.internal", "--timeout=60s")


def config_map(namespace: str, name: str, **data: str) -> Object:
    """An object."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


async def until(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait in the loop until something holds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not holds():
        if asyncio.get_running_loop().time() > deadline:
            raise NotInTime(f"{what} did not come within {seconds:g} s")
        await asyncio.sleep(0.02)


class KubeCase(SynchronousTestCase):
    """Tests that run as coroutines, each with a namespace of its own."""

    def play(self, server: ApiServer, scenario: Scenario, kubeconfig: Path | None = None) -> None:
        """Run a scenario with a client and a namespace; tasks that it leaves are cancelled."""
        namespace = f"t-{uuid4().hex[:8]}"
        server.kubectl("create", "namespace", namespace)

        async def run() -> None:
            async with aclosing(await connect(str(kubeconfig or server.kubeconfig))) as client:
                await asyncio.wait_for(scenario(client, namespace), 4 * PATIENCE)

        asyncio.run(run())

    async def refused(self, reason: str, call: Awaitable[object]) -> KubernetesError:
        """Wait for a call that is refused with a reason."""
        try:
            found = await call
        except KubernetesError as error:
            self.assertEqual(reason, error.reason, str(error))
            self.assertTrue(error.hint)
            return error
        self.fail(f"{found!r} instead of {reason}")


async def background(stack: AsyncExitStack, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
    """Run something until the stack ends."""
    task = asyncio.ensure_future(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)
    return task
