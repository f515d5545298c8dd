"""Credentials change and their issuers restart, while clients send requests all the time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from twisted.internet import reactor
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from svc.identity import parse_matcher
from svc.process.clock import utc_now
from svc.transport.creators import client_creator
from svc.transport.endpoints import MutualTlsClientEndpoint, PlainClientEndpoint, TcpAddress
from svc.workload.source import WorkloadSource
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.load import Load
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import PATIENCE, free_port

#: Of an SVID, which is renewed after half of it: a process may stall for seconds before requests fail.
LIFE = "16s"
KINDS = ("x509", "jwt", "pq")
ID = "spiffe://example.org/ns/shop/sa/api"


class RotationCase(TestCase):
    """One proxy with an inbound and an outbound listener that leads to it, and three kinds of clients."""

    timeout = 900

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.loads: list[Load] = []

    async def begin(self, authority: RunningAuthority, pq_address: str | None = None) -> None:
        """Start everything and the load."""
        application, outbound = webapp.start(self.stack), free_port()
        proxy = RunningProxy(
            authority, f"127.0.0.1:{application}", notary={"pqIssuer": pq_address or authority.pq_address}
        )
        proxy.config["listeners"].append(
            {
                "name": "out",
                "protocol": "http",
                "direction": "outbound",
                "listen": f"127.0.0.1:{outbound}",
                "upstream": f"127.0.0.1:{proxy.port}",
                "peer": ID,
            }
        )
        self.proxy = self.stack.enter_context(proxy)
        source = WorkloadSource(authority.address, reactor=reactor)
        source.startService()
        self.addCleanup(source.stopService)
        await source.when_ready()
        creator = client_creator(source, clock=utc_now, expected=parse_matcher(ID))
        direct, plain = TcpAddress("127.0.0.1", proxy.port), TcpAddress("127.0.0.1", outbound)
        self.load(lambda: MutualTlsClientEndpoint(reactor, direct, creator), "mtls", kept=4, fresh=2)
        self.load(lambda: MutualTlsClientEndpoint(reactor, direct, creator), "signed", "signRequest", kept=2, fresh=1)
        self.load(lambda: PlainClientEndpoint(reactor, plain), "outbound", kept=4, fresh=2)

    def load(
        self, endpoint: Callable[[], IStreamClientEndpoint], label: str, level: str = "", *, kept: int, fresh: int
    ) -> None:
        """Start one kind of clients."""
        load = Load(endpoint, reactor, label=label, level=level, pause=0.05)
        load.start(kept=kept, fresh=fresh)
        self.loads.append(load)

    async def end(self) -> None:
        """Let the load end."""
        for load in self.loads:
            await load.stop()

    async def asking(self, ask: Callable[[], Any], seconds: float, what: str) -> None:
        """Evaluate in a thread, so that the load continues, until the result is true."""
        deadline = reactor.seconds() + seconds
        while not await deferToThread(ask):
            if reactor.seconds() > deadline:
                self.fail(f"{what} did not hold within {seconds} s; {self.proxy.readiness()} {self.proxy.log[-1500:]}")
            await pause(0.1)

    async def rotations(self, count: int, seconds: float) -> None:
        """Wait for new generations."""
        wanted = self.generations() + count
        await self.asking(lambda: self.generations() >= wanted, seconds, f"{count} rotations")

    def generations(self) -> int:
        """How many generations there were."""
        return len(self.proxy.records("svc.notary.generation.issued"))

    def failures(self) -> list[str]:
        """Return all failures since the last call."""
        found = [each for load in self.loads for each in load.failures]
        for load in self.loads:
            load.failures.clear()
        return found

    def good(self) -> list[int]:
        """How many requests of each kind were answered as they must."""
        return [load.good for load in self.loads]

    async def assert_service(self, seconds: float) -> None:
        """All kinds of clients are served, and nothing fails."""
        before = self.good()
        await pause(seconds)

        def served() -> bool:
            return all(now > earlier + 10 * seconds for earlier, now in zip(before, self.good(), strict=True))

        await self.asking(served, PATIENCE, f"so many requests as belong to {seconds:g} s")
        self.assertEqual([], self.failures()[:5])


async def pause(seconds: float) -> None:
    """Let time pass."""
    await deferLater(reactor, seconds)


class RotationTests(RotationCase):
    """Everything is there."""

    async def test_rotation_under_load(self) -> None:
        """Over four generations not one request fails, on old, kept and new connections."""
        await self.begin(self.stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")], ttl=LIFE)))
        await self.rotations(3, 120)
        await self.assert_service(1)
        await self.end()
        self.assertEqual([], self.failures()[:5])
        direct, signed, _ = self.loads
        for load in (direct, signed):
            self.assertGreaterEqual(len(load.statements), 3)
        issued = {each["attributes"]["statement_id"] for each in self.proxy.records("svc.notary.generation.issued")}
        self.assertLessEqual(set(direct.statements), issued)
        # Kept connections were asked to end and made anew, never cut.
        self.assertGreater(self.proxy.metric("svc_proxy_connections_closed_total", cause="served"), 4)
        self.assertEqual(0, self.proxy.metric("svc_proxy_connections_closed_total", cause="credentials_expired"))
        self.assertEqual(0, self.proxy.metric("svc_proxy_notary_records_total", result="error"))


class AuthorityTests(RotationCase):
    """The Workload API is gone for a while."""

    async def test_killed_and_restarted(self) -> None:
        """
        While it is gone nothing fails; when it is back with new roots the proxy follows and rotates again.

        An authority that starts anew has other roots than before: what its consumers hold is worth nothing from then
        on, so requests may fail until each of them has received it.
        """
        authority = self.stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")], ttl=LIFE))
        await self.begin(authority)
        await self.assert_service(1)
        authority.kill()
        await self.assert_service(2)
        self.assertTrue(self.proxy.records("svc.workload.source.stale"))
        await deferToThread(authority.start)
        await self.rotations(1, 90)
        await self.asking(lambda: self.proxy.is_ready(), 60, "readiness")
        await self._quiet()
        await self.assert_service(1)
        await self.rotations(1, 90)
        await self.assert_service(1)
        await self.end()
        self.assertEqual([], self.failures()[:5])

    async def test_killed_and_restarted_with_keys(self) -> None:
        """Where it keeps its keys on disk, not one request fails over a kill and a restart, nor over what follows."""
        authority = RunningAuthority(entries=[entry("/ns/shop/sa/api")], ttl=LIFE)
        authority.config["dataDir"] = str(authority.folder / "keys")
        await self.begin(self.stack.enter_context(authority))
        await self.assert_service(1)
        for end in (authority.kill, authority.halt):
            await deferToThread(end)
            await self.assert_service(1)
            await deferToThread(authority.start)
            await self.rotations(1, 90)
            await self.assert_service(1)
        await self.end()
        self.assertEqual([], self.failures()[:5])
        loaded = authority.records("svc.authority.keys.loaded")
        self.assertEqual([(1, 1, 1)] * 2, [tuple(each["attributes"][key] for key in KINDS) for each in loaded])
        self.assertEqual(1, len(authority.records("svc.authority.keys.begun")))

    async def _quiet(self) -> None:
        """Wait until the clients of the test have received the new roots too."""
        for _turn in range(120):
            self.failures()
            await pause(0.5)
            if not self.failures():
                return
        self.fail("requests go on failing")


class PqIssuerTests(RotationCase):
    """The Workload API is there; the post-quantum issuer beside it is not."""

    def setUp(self) -> None:
        super().setUp()
        self.authority = self.stack.enter_context(
            RunningAuthority(entries=[entry("/ns/shop/sa/api")], ttl=LIFE, pq=False)
        )
        settings = {
            "socket": None,
            "bundleFile": None,
            "entries": None,
            "workloadApi": self.authority.address,
            "pqIssuer": {"socket": f"unix://{self.authority.folder}/issuer.sock"},
        }
        self.issuer = RunningAuthority(settings=settings, entries=[])
        self.addCleanup(self.issuer.stop)
        self.pq_address: str = settings["pqIssuer"]["socket"]  # type: ignore[index]

    def unmet(self) -> dict[str, str]:
        """The conditions that do not hold, with their reasons."""
        return {name: each.get("reason", "") for name, each in self.proxy.readiness().items() if not each["ok"]}

    async def test_rotation_pq_issuer_down(self) -> None:
        """rotation/pq-issuer-down: the old credentials are used until they expire, then none, then new ones."""
        await deferToThread(self.issuer.start)
        await self.begin(self.authority, self.pq_address)
        await self.assert_service(1)
        first = self.generations()
        await deferToThread(self.issuer.kill)
        await self.asking(lambda: self.proxy.records("svc.notary.generation.failed"), 60, "a failed rotation")
        failed = self.proxy.records("svc.notary.generation.failed")[0]
        self.assertEqual("pq_issuer_unavailable", failed["detail_reason"])
        self.assertEqual(first, self.generations())
        await self.assert_service(1)
        await self.asking(lambda: any("notary_unavailable" in each for each in self.failures()), 60, "the end of it")
        self.assertIn("pq_issuer_unavailable", self.unmet().values())
        await self.asking(lambda: not self.proxy.is_ready(), 60, "the end of readiness")
        await deferToThread(self.issuer.start)
        await self.asking(self.proxy.is_ready, 90, "readiness")
        self.failures()
        await pause(1)
        self.failures()
        await self.assert_service(2)
        await self.end()

    async def test_down_at_start(self) -> None:
        """The proxy waits, reports the missing part, opens no listener, and continues when the issuer is there."""
        proxy = RunningProxy(self.authority, "127.0.0.1:1", notary={"pqIssuer": self.pq_address})
        self.proxy = proxy
        self.addCleanup(proxy.stop)
        await deferToThread(proxy.launch)
        await self.asking(lambda: "pq_issuer_unavailable" in self.unmet().values(), 60, "the reason")
        self.assertFalse(proxy.is_ready())
        self.assertEqual([], proxy.records("svc.proxy.listener.opened"))
        await deferToThread(self.issuer.start)
        await self.asking(proxy.is_ready, 90, "readiness")
