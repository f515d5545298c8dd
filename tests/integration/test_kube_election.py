"""Leader election on a real API server: in one process, and with processes that are stopped, hang and end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from svc.errors import SvcError
from svc.kube.client import Client, Object, connect
from svc.kube.election import DEADLINE, DURATION, LEASES, Elector, LeaseLost
from tests.integration.kube_rig import SERVER, KubeCase, background, until
from tests.peers.waiting import TOP, eventually

#: A replica as a process: prints what happens, with the monotonic clock of the machine.
_REPLICA = """
import asyncio, signal, sys, time
from contextlib import aclosing
from datetime import UTC, datetime
from svc.kube.client import connect
from svc.kube.election import Elector, LeaseLost

def say(word):
    print(time.monotonic(), word, flush=True)

def now():
    return datetime.now(UTC)

async def work():
    say("leads")
    try:
        await asyncio.Event().wait()
    finally:
        say("ends")

async def main(kubeconfig, namespace, identity):
    async with aclosing(await connect(kubeconfig)) as client:
        elector = Elector(client, namespace, "test", identity, now, lambda error: say(error.reason))
        running = asyncio.ensure_future(elector.run(work))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        say("waits")
        try:
            await running
        except asyncio.CancelledError:
            say("stopped")
        except LeaseLost:
            say("lost")
            sys.exit(3)

asyncio.run(main(*sys.argv[1:]))
"""


class _Replica:
    """An elector in this process, and what happened."""

    def __init__(self, client: Client, namespace: str, identity: str, **seconds: Any) -> None:
        self.log: list[str] = []
        self.failures: list[SvcError] = []
        seconds = {"duration": 4, "deadline": 2.0, "renewal": 0.3, "waiting": 0.2, **seconds}
        self.elector = Elector(
            *(client, namespace, "test", identity, lambda: datetime.now(UTC), self.failures.append), **seconds
        )

    async def work(self) -> None:
        """What the leader does."""
        self.log.append("leads")
        try:
            await asyncio.Event().wait()
        finally:
            self.log.append("ends")

    @property
    def leads(self) -> bool:
        """Whether it works now."""
        return self.log[-1:] == ["leads"]

    async def run(self) -> None:
        """Take part."""
        await self.elector.run(self.work)


async def _lease(client: Client, namespace: str) -> Object:
    return await client.get(LEASES, "test", namespace)


class KubeElectionTests(KubeCase):
    """One server for all."""

    def setUp(self) -> None:
        """Take the server."""
        self.server = SERVER.get()

    def test_one_leads(self) -> None:
        """Of two one leads, and the other one writes nothing; after the end of the first the second follows at once."""

        async def two(client: Client, namespace: str) -> None:
            first, second = _Replica(client, namespace, "first"), _Replica(client, namespace, "second")
            async with AsyncExitStack() as stack:
                leading = await background(stack, first.run())
                await until(lambda: first.leads, "a leader")
                spec = (await _lease(client, namespace))["spec"]
                self.assertEqual(("first", 4, 0), _holder(spec))
                await background(stack, second.run())
                holders = set()
                for _ in range(20):
                    holders.add((await _lease(client, namespace))["spec"]["holderIdentity"])
                    await asyncio.sleep(0.1)
                self.assertEqual(({"first"}, []), (holders, second.log))
                managers = await client.get(LEASES, "test", namespace)
                self.assertGreater(managers["spec"]["renewTime"], spec["renewTime"])
                leading.cancel()
                began = asyncio.get_running_loop().time()
                await until(lambda: second.leads, "the successor")
                self.assertLess(asyncio.get_running_loop().time() - began, 2.0)
                self.assertEqual(["leads", "ends"], first.log)
                self.assertEqual(("second", 4, 1), _holder((await _lease(client, namespace))["spec"]))
                self.assertEqual([], first.failures + second.failures)
            self.assertEqual(("", 1, 1), _holder((await _lease(client, namespace))["spec"]))

        self.play(self.server, two)

    def test_no_write_for_the_lease_of_another(self) -> None:
        """Nobody writes to a Lease that is held, nor when a waiting replica ends; one follows when it expires."""

        async def held(client: Client, namespace: str) -> None:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.name,
                "metadata": {"name": "test", "namespace": namespace},
                # A clock of another machine, which must not matter.
                "spec": {
                    "holderIdentity": "other",
                    "leaseDurationSeconds": 3,
                    "renewTime": "2001-01-01T00:00:00.000000Z",
                },
            }
            made = await client.create(LEASES, body)
            waiting = _Replica(client, namespace, "waiting")
            began = asyncio.get_running_loop().time()
            async with AsyncExitStack() as stack:
                await background(stack, waiting.run())
                await asyncio.sleep(1.5)
            self.assertEqual(made, await _lease(client, namespace))
            async with AsyncExitStack() as stack:
                await background(stack, waiting.run())
                await until(lambda: waiting.leads, "the end of the Lease")
                self.assertGreater(asyncio.get_running_loop().time() - began, 3.0)
                self.assertEqual(("waiting", 4, 0), _holder((await _lease(client, namespace))["spec"]))

        self.play(self.server, held)

    def test_two_at_once(self) -> None:
        """Of many replicas that find a free Lease at the same time one leads; a conflict is no failure."""

        async def many(client: Client, namespace: str) -> None:
            async with AsyncExitStack() as stack:
                replicas = [_Replica(client, namespace, f"r{number}") for number in range(8)]
                for each in replicas:
                    await background(stack, each.run())
                await until(lambda: any(each.leads for each in replicas), "a leader")
                await asyncio.sleep(1.0)
                for _ in range(3):
                    (leader,) = [each for each in replicas if each.leads]
                    await client.apply(
                        *(
                            LEASES,
                            {"metadata": {"name": "test", "namespace": namespace}, "spec": {"holderIdentity": ""}},
                        ),
                        manager="test",
                    )
                    await asyncio.sleep(1.5)
                    self.assertLessEqual(sum(each.leads for each in replicas), 1)
                self.assertEqual([], [error for each in replicas for error in each.failures])
                self.assertIsNotNone(leader)

        self.play(self.server, many)

    def test_taken_by_another(self) -> None:
        """A leader whose Lease is another's ends its work, and writes nothing more."""

        async def taken(client: Client, namespace: str) -> None:
            leader = _Replica(client, namespace, "leader")
            running = asyncio.ensure_future(leader.run())
            await until(lambda: leader.leads, "a leader")
            body = {"metadata": {"name": "test", "namespace": namespace}, "spec": {"holderIdentity": "other"}}
            await client.apply(LEASES, body, manager="test")
            with self.assertRaises(LeaseLost) as caught:
                await running
            self.assertIn("another replica", str(caught.exception))
            self.assertEqual(["leads", "ends"], leader.log)
            self.assertEqual("other", (await _lease(client, namespace))["spec"]["holderIdentity"])

        self.play(self.server, taken)

    def test_deleted_lease(self) -> None:
        """A leader whose Lease is deleted makes it again and goes on."""

        async def deleted(client: Client, namespace: str) -> None:
            leader = _Replica(client, namespace, "leader")
            async with AsyncExitStack() as stack:
                await background(stack, leader.run())
                await until(lambda: leader.leads, "a leader")
                uid = (await _lease(client, namespace))["metadata"]["uid"]
                self.server.kubectl("delete", "lease", "test", "-n", namespace)
                await asyncio.sleep(1.0)
                found = await _lease(client, namespace)
                self.assertNotEqual(uid, found["metadata"]["uid"])
                self.assertEqual("leader", found["spec"]["holderIdentity"])
                self.assertTrue(leader.leads)

        self.play(self.server, deleted)

    def test_work_that_ends(self) -> None:
        """The end of the work, orderly or not, releases the Lease."""

        async def ends(client: Client, namespace: str) -> None:
            async def fails() -> None:
                raise ValueError("a defect")

            elector = _Replica(client, namespace, "one").elector
            await elector.run(lambda: asyncio.sleep(0.1))
            self.assertEqual("", (await _lease(client, namespace))["spec"].get("holderIdentity", ""))
            with self.assertRaisesRegex(ValueError, "a defect"):
                await elector.run(fails)
            self.assertEqual("", (await _lease(client, namespace))["spec"].get("holderIdentity", ""))

        self.play(self.server, ends)

    def test_forbidden(self) -> None:
        """A replica that may not read the Lease reports it at each attempt, and does not lead."""

        async def forbidden(client: Client, namespace: str) -> None:
            replica = _Replica(client, namespace, "stranger")
            async with AsyncExitStack() as stack:
                await background(stack, replica.run())
                await until(lambda: len(replica.failures) > 1, "failures")
            self.assertEqual({"kubernetes_forbidden"}, {each.reason for each in replica.failures})
            self.assertEqual([], replica.log)

        self.play(self.server, forbidden, self.server.credentials("nobody", "nobodies"))


class KubeElectionFaultTests(KubeCase):
    """Replicas as processes with the product's own periods."""

    def setUp(self) -> None:
        """Take the server, which is as before after each test."""
        self.server = SERVER.get()
        self.namespace = f"t-{uuid4().hex[:8]}"
        self.server.kubectl("create", "namespace", self.namespace)
        self.output = self.server.folder / self.namespace
        self.output.mkdir()

    def replica(self, identity: str) -> subprocess.Popen[bytes]:
        """Start a replica, and wait until it takes part."""
        command = [sys.executable, "-c", _REPLICA, str(self.server.kubeconfig), self.namespace, identity]
        with (self.output / f"{identity}.out").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=TOP)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.said(identity, "waits")
        return process

    def times(self, identity: str, word: str) -> list[float]:
        """When a replica said a word."""
        lines = (self.output / f"{identity}.out").read_text().splitlines()
        return [float(line.split()[0]) for line in lines if line.endswith(f" {word}")]

    def said(self, identity: str, word: str) -> float:
        """Wait until a replica has said a word; gives when it said it last."""
        return eventually(lambda: self.times(identity, word), what=f"{word} of {identity}")[-1]

    def test_sigterm(self) -> None:
        """After SIGTERM of the leader a replica that waits leads within a second."""
        replicas = {"a": self.replica("a")}
        self.said("a", "leads")
        replicas |= {name: self.replica(name) for name in "bcd"}
        leader, delays = "a", []
        while len(replicas) > 1:
            time.sleep(1.0)
            began = time.monotonic()
            replicas.pop(leader).send_signal(signal.SIGTERM)
            ended = self.said(leader, "ends")
            self.said(leader, "stopped")
            leader = eventually(lambda: next((name for name in replicas if self.times(name, "leads")), ""))
            delays.append(self.said(leader, "leads") - began)
            self.assertLess(ended - began, delays[-1])
        # A busy machine may delay some.
        self.assertLess(min(delays), 1.0)
        self.assertLess(max(delays), DURATION / 2)

    def test_sigkill(self) -> None:
        """After SIGKILL of the leader another one leads when the Lease has expired."""
        leader = self.replica("leader")
        self.said("leader", "leads")
        self.replica("successor")
        time.sleep(1.0)
        began = time.monotonic()
        leader.kill()
        after = self.said("successor", "leads") - began
        self.assertGreater(after, DURATION - 3.0)
        self.assertLess(after, DURATION + 15.0)

    def test_stopped_leader(self) -> None:
        """A leader that was suspended until another one leads ends without writing anything."""
        leader = self.replica("leader")
        self.said("leader", "leads")
        self.replica("successor")
        leader.send_signal(signal.SIGSTOP)
        self.said("successor", "leads")
        leader.send_signal(signal.SIGCONT)
        self.said("leader", "lost")
        self.assertEqual(3, leader.wait(60))
        found = self.server.kubectl(
            "get", "lease", "test", "-n", self.namespace, "-o", "jsonpath={.spec.holderIdentity}"
        )
        self.assertEqual("successor", found)

    def test_hanging_server(self) -> None:
        """While the API server hangs beyond the deadline the leader gives up and ends; afterwards one replica leads."""
        leader = self.replica("leader")
        self.said("leader", "leads")
        self.replica("waiting")
        began = time.monotonic()
        self.server.pause()
        try:
            ended = self.said("leader", "ends")
            self.assertGreater(ended - began, DEADLINE - 3.0)
            # Renewed at the latest when the server stopped to answer.
            self.assertLess(ended - began, DEADLINE + 3.0)
            self.assertEqual(3, leader.wait(60))
            self.said("waiting", "kubernetes_unreachable")
        finally:
            self.server.resume()
        self.assertGreater(self.said("waiting", "leads"), ended)

    def test_end_while_the_server_hangs(self) -> None:
        """The end of a leader waits two seconds for a server that hangs."""

        async def end(kubeconfig: str) -> float:
            async with aclosing(await connect(kubeconfig)) as client:
                replica = _Replica(client, self.namespace, "one", duration=40, deadline=30.0)
                running = asyncio.ensure_future(replica.run())
                await until(lambda: replica.leads, "a leader")
                self.server.pause()
                began = asyncio.get_running_loop().time()
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                self.assertEqual(["kubernetes_unreachable"], [each.reason for each in replica.failures])
                return asyncio.get_running_loop().time() - began

        try:
            self.assertLess(asyncio.run(end(str(self.server.kubeconfig))), 4.0)
        finally:
            self.server.resume()


def _holder(spec: Object) -> tuple[str, int, int]:
    return spec.get("holderIdentity", ""), spec["leaseDurationSeconds"], spec.get("leaseTransitions", 0)
