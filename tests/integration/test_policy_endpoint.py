"""Policies from the manager's endpoint to fifty clients, by TLS on loopback."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import succeed
from twisted.internet.task import deferLater
from twisted.internet.tcp import Connection
from twisted.trial.unittest import TestCase

from svc.identity import BundleSet, SpiffeID
from svc.identity.matchers import ExactID
from svc.manager.policies.endpoint import PolicyPages
from svc.manager.policies.resource import read_policy
from svc.manager.policies.server import policy_listener
from svc.naming import MANAGER_PATH, POLICY_PATH
from svc.pages.mutual_tls import TlsListener
from svc.policyfiles.published import MAX_PUBLISHED, PublishedPolicies, read_published
from svc.policyfiles.settings import Policies, load_policies, load_published
from svc.policyfiles.watch import PolicyWatch, in_daemon_thread
from svc.process.clock import utc_now
from svc.proxy.config import ProxySettings
from svc.proxy.policy_reports import PolicyReports
from svc.strictyaml import json_text
from svc.telemetry.metrics import ProxyMetrics
from svc.testing.ca import TestAuthority
from svc.testing.workload import MemorySource
from svc.transport.addresses import TcpAddress
from svc.workload.managerwatch import ManagerWatch
from tests.manager.policies.objects import policy_object, rules
from tests.peers.waiting import free_port
from tests.proxy.parts import settings_of

reactor: Any = installed_reactor
CLIENTS: Final = 50
AUTHORITY: Final = TestAuthority("prod.example", now=utc_now())
FOREIGN: Final = TestAuthority("other.example", now=utc_now())


def document(name: str) -> Mapping[str, Any]:
    """A policy of the cluster that allows everything."""
    found = read_policy(policy_object(name, authorization=rules())).document
    assert found is not None
    return found


def listed(*names: str) -> PublishedPolicies:
    """The list of policies of these names."""
    return PublishedPolicies.of("shop", [document(each) for each in names])


class Client:
    """What a proxy has of policies: its watch, and that of the manager, with credentials of its own."""

    def __init__(self, port: int, folder: str, source: MemorySource, *, manager: str = MANAGER_PATH) -> None:
        self.metrics = ProxyMetrics(CollectorRegistry())
        reports = PolicyReports(self.metrics)
        section = f"{{clusterFiles: ['{folder}/cluster'], files: ['{folder}/*.yaml']}}"
        self.settings = settings_of(("web", 8443), policy=section)
        self.policies = PolicyWatch(
            self.settings,
            read=lambda given, former: load_policies(given.policy, given.trustDomain, former=former),
            apply=lambda _policies: None,
            observer=reports,
            clock=reactor,
            in_thread=in_daemon_thread(reactor),
        )
        self.manager = ManagerWatch(
            f"127.0.0.1:{port}",
            POLICY_PATH,
            source,
            reactor,
            now=utc_now,
            expected=ExactID(SpiffeID(AUTHORITY.trust_domain, manager)),
            max_answer=MAX_PUBLISHED,
            ready=lambda: succeed(None),
            changed=self.changed,
            observer=reports,
        )

    async def changed(self, data: bytes, version: str) -> None:
        """Put a list in force, as the proxy does."""

        def read(settings: ProxySettings, former: Any) -> Policies:
            published = lambda labels: read_published(data, version, "manager", labels)  # noqa: E731
            return load_published(settings.policy, settings.trustDomain, published, former=former)

        await self.policies.offer(read)

    @property
    def names(self) -> list[str]:
        """Those in force."""
        return [each.name for each in self.policies.current.files.policies]

    @property
    def errors(self) -> float:
        """How many requests failed."""
        return self.metrics.policy_watch_errors._value.get()

    def start(self) -> None:
        """Start both."""
        self.policies.startService()
        self.manager.startService()

    async def stop(self) -> None:
        """Stop both."""
        await self.manager.stopService()
        self.policies.stopService()


class EndpointTests(TestCase):
    """One manager, whose lists the test changes."""

    timeout = 60

    def setUp(self) -> None:
        """Start it; clients start with the file of a cluster and one of their namespace."""
        self.folder = os.path.abspath(self.mktemp())
        os.makedirs(self.folder)
        Path(self.folder, "cluster").write_text(json_text(document("file")))
        Path(self.folder, "own.yaml").write_text(json_text(document("own")))
        self.entries: dict[SpiffeID, str] = {}
        self.lists = {"shop": listed("first")}
        self.counted: list[str] = []
        self.refusals: list[str] = []
        self.port = free_port()
        self.clients: list[Client] = []
        self.listener = self.serve()
        self.addCleanup(self.stop)

    def serve(self) -> TlsListener:
        """Start the endpoint, as another replica has it."""
        self.pages = PolicyPages(
            lambda: True,
            self.entries.get,
            self.lists.get,
            lambda: None,
            self.counted.append,
            self.refused,
            clock=reactor,
            now=utc_now,
        )
        listener = policy_listener(
            TcpAddress("127.0.0.1", self.port),
            MemorySource(AUTHORITY.svid(MANAGER_PATH), BundleSet.of(AUTHORITY.bundle(), FOREIGN.bundle())),
            AUTHORITY.trust_domain,
            self.pages,
            self.refused,
            now=utc_now,
            reactor=reactor,
        )
        listener.startService()
        return listener

    def refused(self, error: Exception, _who: object) -> None:
        """Keep a refusal."""
        self.refusals.append(str(error))

    async def end(self) -> None:
        """End the replica."""
        closed = self.listener.stopService()
        self.pages.release()
        await (closed or succeed(None))

    async def stop(self) -> None:
        """Stop everything."""
        for each in self.clients:
            await each.stop()
        if self.listener.running:
            await self.end()
        sockets = lambda: [*reactor.getReaders(), *reactor.getWriters()]  # noqa: E731
        # Each side answers the other's close_notify at once, and waits for no time limit.
        await self.until(lambda: not any(isinstance(each, Connection) for each in sockets()), 5.0)

    def client(self, path: str = "/ns/shop/sa/web", namespace: str = "shop", **options: Any) -> Client:
        """Start a client, for whose identity there is an entry unless the namespace is empty."""
        if namespace:
            self.entries[SpiffeID(AUTHORITY.trust_domain, path)] = namespace
        source = MemorySource(AUTHORITY.svid(path), AUTHORITY.bundles())
        client = Client(self.port, self.folder, source, **options)
        self.clients.append(client)
        client.start()
        return client

    async def until(self, holds: Callable[[], bool], seconds: float = 20.0) -> float:
        """Wait; returns the seconds that it took."""
        began = reactor.seconds()
        while not holds():
            self.assertLess(reactor.seconds() - began, seconds, [each.names for each in self.clients][:3])
            await deferLater(reactor, 0.01)
        return float(reactor.seconds() - began)

    def have(self, *names: str) -> bool:
        """Whether all clients have these policies of the cluster, and that of their own."""
        return all(each.names == [*names, "own"] for each in self.clients)

    async def test_fifty_clients(self) -> None:
        """All have a change within a second, and each is asked for once; those of another namespace do not see it."""
        for number in range(CLIENTS):
            self.client(f"/ns/shop/sa/web-{number}")
        await self.until(lambda: self.have("first") and self.counted.count("sent") == CLIENTS)
        self.lists["pay"] = listed("pay")
        other = self.client("/ns/pay/sa/web", "pay")
        await self.until(lambda: other.names == ["pay", "own"])
        self.clients.remove(other)
        for names in (("first", "no"), ("second",)):
            self.lists["shop"] = listed(*names)
            self.pages.changed()
            self.assertLess(await self.until(lambda: self.have(*names)), 1.0)  # noqa: B023
        self.assertEqual((3 * CLIENTS + 1, 0), (self.counted.count("sent"), self.counted.count("denied")))
        self.assertEqual({0.0}, {each.errors for each in self.clients})
        self.clients.append(other)
        self.assertEqual(["pay", "own"], other.names)

    async def test_manager_away(self) -> None:
        """Without a manager nothing changes, and each attempt is counted; a file that changes is not in force."""
        client = self.client()
        await self.until(lambda: self.have("first"))
        await self.end()
        # Another replica would have been asked at once, without an error before.
        Path(self.folder, "cluster").write_text(json_text(document("changed")))
        await self.until(lambda: client.errors == 2)
        self.assertEqual(["first", "own"], client.names)
        self.lists["shop"] = listed("second")
        self.listener = self.serve()
        self.assertLess(await self.until(lambda: self.have("second")), 6.0)
        self.assertLessEqual(client.errors, 3)

    async def test_bad_file_of_the_namespace(self) -> None:
        """What the namespace has written stays as it was while it is not valid, and the list of the manager comes."""
        self.client()
        await self.until(lambda: self.have("first"))
        Path(self.folder, "own.yaml").write_text("kind: Unknown")
        self.lists["shop"] = listed("first", "no")
        self.pages.changed()
        self.assertLess(await self.until(lambda: self.have("first", "no")), 1.0)

    async def test_entry_gone(self) -> None:
        """Whose entry is deleted keeps what it has, and gets no more."""
        client = self.client()
        await self.until(lambda: self.have("first"))
        self.entries.clear()
        self.lists["shop"] = listed("second")
        self.pages.changed()
        await self.until(lambda: client.errors == 1)
        self.assertEqual((["first", "own"], 1), (client.names, self.counted.count("denied")))
        self.assertIn("is the identity of no service account", self.refusals[0])

    async def test_another_manager(self) -> None:
        """A server with another identity than that of the manager is not asked, whatever it would answer."""
        client = self.client(manager="/svc/another")
        await self.until(lambda: client.errors == 1)
        self.assertEqual((["file", "own"], []), (client.names, self.counted))

    async def test_without_an_identity_here(self) -> None:
        """A client of another trust domain has no connection."""
        path = "/ns/shop/sa/web"
        source = MemorySource(FOREIGN.svid(path), AUTHORITY.bundles())
        client = Client(self.port, self.folder, source)
        self.clients.append(client)
        client.start()
        await self.until(lambda: client.errors == 1)
        self.assertEqual((["file", "own"], []), (client.names, self.counted))
        self.assertEqual(1, len(self.refusals))
