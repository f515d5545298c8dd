"""
Every event happens for real: processes are driven until one has logged it, and each condition of readiness has failed
and recovered. The logs are validated by the published schema when the processes end, see ``tests.peers``.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.events.registry import EVENTS
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, Ended, RawConnection
from tests.peers.programs import other_python
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import PATIENCE, Shared, eventually, free_port

_TestT = TypeVar("_TestT", bound=Callable[..., None])
SIGN = "Svc-Notarization-Level: signRequest\r\n"
#: Events that other tests cause: the event and the module that checks it.
ELSEWHERE = {
    "svc.manager.leading": "integration/test_manager.py",
    "svc.manager.lease_lost": "integration/test_manager.py",
    "svc.manager.license.changed": "integration/test_manager.py",
    "svc.manager.entries.changed": "integration/test_manager_entries.py",
    "svc.manager.reconcile.failed": "integration/test_manager.py",
    "svc.manager.kubernetes.failed": "integration/test_manager.py",
    "svc.manager.webhook.certificate": "integration/test_manager_webhook.py",
    "svc.manager.injection.denied": "integration/test_manager_webhook.py",
    "svc.manager.connection.denied": "integration/test_manager_webhook.py",
    "svc.manager.federation_roots.changed": "integration/test_manager_federation.py",
    "svc.manager.peer.pinned": "integration/test_manager_peers.py",
    "svc.manager.issuer_keys.changed": "integration/test_manager_issuer.py",
    "svc.manager.network_policy.changed": "integration/test_manager_network_policies.py",
    **{
        f"svc.manager.{name}": "integration/test_manager_policies.py"
        for name in ("policies.compiled", "policy.changed", "policy.refused")
    },
    "svc.manager.metrics.denied": "integration/test_manager.py",
    "svc.manager.webhook.repaired": "integration/test_manager_webhook.py",
    "svc.manager.policies.denied": "integration/test_manager_policy_endpoint.py",
    "svc.manager.statement.denied": "integration/test_manager_statements.py",
    "svc.manager.spire_instance.changed": "integration/test_manager_instances.py",
    **dict.fromkeys(
        (
            *("svc.proxy.policy.manager_lost", "svc.proxy.policy.manager_found"),
            *("svc.notary.central_issuer.lost", "svc.notary.central_issuer.found"),
        ),
        "proxy/test_manager_reports.py",
    ),
    "svc.agent.csi.registered": "integration/test_agent.py",
    "svc.agent.csi.failed": "integration/test_agent.py",
    "svc.agent.pq_bundle.written": "integration/test_agent.py",
    "svc.agent.pq_bundle.failed": "integration/test_agent.py",
    "svc.agent.files.written": "integration/test_agent_files.py",
    "svc.agent.files.notified": "integration/test_agent_files.py",
    "svc.agent.files.not_notified": "integration/test_agent_files.py",
    "svc.agent.files.failed": "integration/test_agent_files.py",
    "svc.agent.volume.published": "integration/test_agent.py",
    "svc.agent.volume.unpublished": "integration/test_agent.py",
    "svc.agent.volume.failed": "integration/test_agent.py",
    "svc.notary.admissions_held": "integration/test_record_shares.py",
    "svc.registrar.entries.changed": "integration/test_spire_registrar.py",
    "svc.registrar.entries.failed": "integration/test_spire_registrar.py",
    "svc.runtime.failure": "integration/test_twistd_logging.py",
    "svc.runtime.logs_dropped": "integration/test_log_writer.py",
    "svc.runtime.clock_stepped": "integration/test_proxy_clock.py",
    "svc.proxy.connection.served": "integration/test_proxy_tcp.py",
    "svc.proxy.connection.aborted": "integration/test_proxy_handshake_costs.py",
    "svc.store.damaged": "integration/test_proxy_damaged_database.py",
    "svc.store.set_aside": "integration/test_proxy_damaged_database.py",
    "svc.store.lies_aside": "integration/test_proxy_damaged_database.py",
    # A proxy prunes ten minutes after its start at the earliest.
    "svc.store.pruned": "proxy/test_observers.py",
    # Neither process has this source; applications embed it.
    "svc.pq.bundle.updated": "workload/test_pqfile.py",
    "svc.pq.issuer.unreachable": "integration/test_proxy_outages.py",
    "svc.pq.issuer.reachable": "integration/test_proxy_outages.py",
    "svc.authority.keys.loaded": "integration/test_authority.py",
    "svc.authority.nodes.behind": "integration/test_node_roots.py",
    "svc.authority.federation.begun": "integration/test_federation_packages.py",
    "svc.authority.peer.pinned": "integration/test_federation_packages.py",
    # The command line writes these for --log-format json.
    "svc.cli.failed": "cli/test_main.py",
    "svc.cli.warning": "cli/test_main.py",
    "svc.cli.notice": "cli/test_main.py",
    **{
        f"svc.proxy.artifacts.{name}": "proxy/mqtt/artifacts/test_reports.py"
        for name in ("began", "failed", "refused", "dropped")
    },
    **{
        name: "proxy/mqtt/stored/test_reports.py"
        for name in EVENTS
        if name.startswith(("svc.proxy.buffer.", "svc.proxy.replay.", "svc.proxy.forwarding."))
    },
    "svc.proxy.policy.audited": "proxy/test_observers.py",
    "svc.proxy.policy.dry_run": "proxy/test_observers.py",
    "svc.proxy.policy.rejected": "policyfiles/test_watch.py",
}


def emits(*names: str) -> Callable[[_TestT], _TestT]:
    """Name the events that a test makes happen; ``assert_logged`` looks for them."""

    def named(test: _TestT) -> _TestT:
        test.emits = {f"svc.{name}" for name in names}  # type: ignore[attr-defined]
        return test

    return named


class _Case(SynchronousTestCase):
    stack: ExitStack

    def assert_logged(self, *processes: RunningProxy | RunningAuthority, seconds: float = PATIENCE) -> None:
        """Each event of the test is in the log of one of the processes."""
        wanted: Set[str] = getattr(self, self._testMethodName).emits

        def missing() -> Set[str]:
            return wanted - {each["event"]["name"] for process in processes for each in process.records()}

        with contextlib.suppress(AssertionError):
            eventually(lambda: not missing(), seconds)
        self.assertEqual(set(), missing())

    def assert_condition(self, proxy: RunningProxy, name: str, reason: str | None, *, ready: bool) -> None:
        """A condition of the page becomes so, and the page's status with it."""

        def so() -> bool:
            found = proxy.readiness().get(name, {})
            return (found.get("ok"), found.get("reason")) == (reason is None, reason) and proxy.is_ready() is ready

        eventually(so, 60, f"{name} {reason or 'ok'}, ready {ready}")


class RegistryTests(SynchronousTestCase):
    """These tests against the registry."""

    def test_complete(self) -> None:
        """Each event of proxy and authority is emitted in a test below, or in one named here that looks for it."""
        own: set[str] = set()
        for case in (TrafficTests, StartTests, CredentialTests, AuthorityTests):
            for name in filter(lambda each: each.startswith("test_"), dir(case)):
                own |= getattr(getattr(case, name), "emits", set())
        self.assertEqual(set(), own & set(ELSEWHERE))
        events = {name for name in EVENTS if not name.startswith("svc.broker.")}
        self.assertEqual(events, own | set(ELSEWHERE))
        for name, module in ELSEWHERE.items():
            text = (Path(__file__).parents[1] / module).read_text()
            emitted_names = name in text or f"Event.{EVENTS[name].name}" in text
            self.assertTrue(emitted_names, f"{module} does not contain {name}")


class Canned:
    """
    An application that answers with octets that a test gave.

    Args:
        stack: ends it.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.answer = b""
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _address = self._server.accept()
                with connection:
                    while b"\r\n\r\n" not in connection.recv(65536):
                        pass
                    connection.sendall(self.answer)


def _make(stack: ExitStack) -> Any:
    entries = [entry("/ns/shop/sa/api"), entry("/ns/shop/sa/batch")]
    authority = stack.enter_context(RunningAuthority(entries=entries))
    canned = Canned(stack)
    ports = {name: free_port() for name in ("absent", "canned", "tight", "strict")}
    inbound = {"protocol": "http", "direction": "inbound"}
    application = f"127.0.0.1:{webapp.start(stack)}"
    listeners: list[dict[str, Any]] = [
        {**inbound, "name": "absent", "upstream": f"127.0.0.1:{free_port()}"},
        {**inbound, "name": "canned", "upstream": f"127.0.0.1:{canned.port}"},
        {**inbound, "name": "tight", "upstream": application, "limits": {"connections": 1}},
        {**inbound, "name": "strict", "upstream": application, "notarization": "signRequest"},
    ]
    for listener in listeners:
        listener["listen"] = f"127.0.0.1:{ports[listener['name']]}"
    notary = {"receiptsPerSecond": 1, "receiptsBurst": 60, "rateWait": "0s"}
    settings = {
        "accessLog": "on",
        "auditLog": "all",
        "workload": {"namespace": "shop", "annotations": {"note": SECRET}},
    }
    proxy = RunningProxy(authority, application, listeners=listeners, notary=notary, settings=settings)
    stack.enter_context(proxy)
    api, batch = (Credentials.fetch(authority, short_folder(stack), f"/ns/shop/sa/{name}") for name in ("api", "batch"))
    return SimpleNamespace(proxy=proxy, ports=ports, credentials=api, batch=batch, canned=canned)


SECRET = "hunter2hunter2"
SHARED = Shared(_make)


class TrafficTests(_Case):
    """One proxy, and everything that its clients, its application and its disk can do to it."""

    def setUp(self) -> None:
        found = SHARED.get()
        self.proxy: RunningProxy = found.proxy
        self.ports: dict[str, int] = found.ports
        self.credentials: Credentials = found.credentials
        self.canned: Canned = found.canned

    def connect(self, listener: str | None = None) -> RawConnection:
        """Connect with an identity."""
        port = self.proxy.port if listener is None else self.ports[listener]
        connection = RawConnection(port, self.credentials)
        self.addCleanup(connection.close)
        return connection

    def plainly(self, data: bytes) -> None:
        """Send octets without TLS."""
        with RawConnection(self.proxy.port) as connection:
            connection.send(data)
            connection.rest()

    @emits(
        "proxy.handshake.failed",
        "proxy.auth.denied",
        "proxy.denials.suppressed",
        "proxy.access.denied",
        "proxy.access.suppressed",
    )
    def test_unauthenticated_peers(self) -> None:
        """Clients without TLS, and clients without an identity."""
        self.plainly(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        nobody = self.credentials.context()
        anonymous = type(nobody)(nobody.protocol)
        anonymous.check_hostname, anonymous.verify_mode = False, 0  # type: ignore[assignment]
        for _number in range(3):
            with contextlib.suppress(OSError), RawConnection(self.proxy.port, anonymous) as connection:
                connection.rest()
        self.assert_logged(self.proxy)
        denied = self.proxy.records("svc.proxy.auth.denied")[-1]
        self.assertEqual(("svid_invalid", "certificate_missing"), (denied["reason"], denied["detail_reason"]))
        self.assertEqual(("shop", "spiffe://example.org/ns/shop/sa/api"), (denied["namespace"], denied["spiffe_id"]))

    @emits(
        "proxy.request.served",
        "proxy.access.recorded",
        "proxy.request.rejected",
        "proxy.upstream.failed",
        "proxy.upstream.misbehaved",
        "proxy.connection.refused",
        "proxy.connection.evicted",
        "notary.overloaded",
    )
    def test_requests(self) -> None:
        """Requests that are served, refused, and fail for the application's or the notary's sake."""
        self.assertEqual(200, self.connect().request("/bytes/1").status)
        broken = self.connect()
        broken.send(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        self.assertEqual(400, broken.read().status)
        self.assertEqual(502, self.connect("absent").request("/").status)
        self.canned.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
        self.assertEqual(502, self.connect("canned").request("/").status)
        first = self.connect("tight")
        self.assertEqual(200, first.request("/bytes/1").status)
        second = self.connect("tight")
        second.send(b"GET /slow/2 HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertTrue(first.ended())
        with contextlib.suppress(OSError):
            self.connect("tight").rest()
        # Another identity has its own budget, so that the other tests keep theirs.
        with RawConnection(self.proxy.port, SHARED.get().batch) as asking:
            eventually(lambda: asking.request("/bytes/1", fields=SIGN).status == 429, 60, "a refusal for the rate")
        self.assert_logged(self.proxy)

    @emits("store.failed", "store.read_only", "store.writable", "notary.record.failed")
    def test_store(self) -> None:
        """The disk is full, and has room again; whether records are required decides about readiness."""
        connection = self.connect()
        for _number in range(30):
            connection.request("/bytes/1", fields="Svc-Notarization-Level: logRequest\r\n")
        self.assert_condition(self.proxy, "store", None, ready=True)
        with self.no_room():
            eventually(self.refused, 60, "a refusal")
            self.assert_condition(self.proxy, "store", "notary_unavailable", ready=False)
            self.assertTrue(self.proxy.readiness()["store"]["required"])
            self.assertEqual(200, connection.request("/bytes/1").status)
            self.assertEqual(503, self.connect("strict").request("/bytes/1").status)
        self.assert_condition(self.proxy, "store", None, ready=True)
        self.assert_logged(self.proxy)

    def refused(self) -> bool:
        """A request that needs a record is refused; one that was under way may break off."""
        with contextlib.suppress(Ended), RawConnection(self.proxy.port, self.credentials) as connection:
            return connection.request("/bytes/1", fields=SIGN).status == 503
        return False

    @contextmanager
    def no_room(self) -> Iterator[None]:
        """Let the log of the database grow no more; there is room for the log of the proxy."""
        assert self.proxy.process is not None
        pid = self.proxy.process.pid
        room = Path(f"{self.proxy.config['notary']['path']}-wal").stat().st_size
        self.assertGreater(room, 2 * self.proxy.log_path.stat().st_size)
        soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, hard))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))

    def reload(self, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Change the file and reload; return the record of the result. The old file is restored after the test."""
        before = json.loads(json.dumps(self.proxy.config))

        def restore() -> None:
            self.proxy.config = before
            self.proxy.write_config()
            self.proxy.signal(signal.SIGHUP)
            eventually(self.proxy.is_ready, 60, "readiness with the old file")

        self.addCleanup(restore)
        change(self.proxy.config)
        return self.reloaded()

    def reloaded(self) -> dict[str, Any]:
        """Reload the file; returns the record of the result."""

        def logged() -> list[dict[str, Any]]:
            # One record of each reload; the other one of the same reload may come later.
            names = ("svc.config.loaded", "svc.config.rejected")
            return [each for each in self.proxy.records() if each["event"]["name"] in names]

        before = len(logged())
        self.proxy.write_config()
        self.proxy.signal(signal.SIGHUP)
        found: list[dict[str, Any]] = eventually(lambda: logged()[before:], 60, "the end of the reload")
        return found[0]

    @emits(
        "config.loaded",
        "config.reloaded",
        "proxy.policy.loaded",
        "proxy.request.denied",
        "proxy.connections.reauthorized",
    )
    def test_policy(self) -> None:
        """Another policy is loaded and logged, and denies."""
        self.connect().request("/bytes/1")
        done = self.reload(lambda config: config.update(policy={"default": "deny"}))
        self.assertEqual("svc.config.loaded", done["event"]["name"])
        self.assertEqual(403, self.connect().request("/bytes/1").status)
        self.assert_logged(self.proxy)
        self.assertEqual("deny", self.proxy.records("svc.proxy.policy.loaded")[-1]["attributes"]["default"])

    @emits("config.rejected", "proxy.listener.closed", "proxy.listener.failed", "health.changed")
    def test_listeners(self) -> None:
        """
        A reload fails, and another process took the old port meanwhile: the listener is missing until a reload finds
        it.
        """
        ports, taken = [free_port() for _number in range(25)], socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        tight = self.ports["tight"]

        def change(config: dict[str, Any]) -> None:
            # Many listeners that open without error give the other process the time to take the port.
            *others, strict = config["listeners"][1:]
            tight_settings = next(each for each in others if each["name"] == "tight")
            tight_settings["limits"]["connections"] = 2
            more = [{**others[0], "name": f"n{number}", "listen": f"127.0.0.1:{ports[number]}"} for number in range(25)]
            last = {**others[0], "name": "last", "listen": f"127.0.0.1:{taken.getsockname()[1]}"}
            config["listeners"] = [config["listeners"][0], *others[:-1], *more, last, tight_settings, strict]

        other_client = PortTaker(tight)
        self.addCleanup(other_client.stop)
        self.assertEqual("svc.config.rejected", self.reload(change)["event"]["name"])
        for _turn in range(50):
            # On a busy machine it may sleep while the port is free.
            if other_client.has_it():
                break
            self.assertEqual("svc.config.rejected", self.reloaded()["event"]["name"])
        self.assert_condition(self.proxy, "listeners", "listen_failed", ready=False)
        self.assertEqual("not open: tight", self.proxy.readiness()["listeners"]["message"])
        self.assertEqual(200, self.connect().request("/bytes/1").status)
        other_client.stop()
        taken.close()
        self.assertEqual("svc.config.loaded", self.reloaded()["event"]["name"])
        self.assert_condition(self.proxy, "listeners", None, ready=True)
        self.assertEqual(200, self.connect("tight").request("/bytes/1").status)
        self.assert_logged(self.proxy)

    def test_secrets(self) -> None:
        """Whatever clients and application send, and however it fails, none of it is in a log or on a page."""
        for head in (
            f"GET /bytes/1?token={SECRET} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {SECRET}\r\nCookie: s={SECRET}",
            f"POST /echo HTTP/1.1\r\nHost: a\r\nX-Api-Key: {SECRET}\r\nContent-Length: 14\r\n\r\n{SECRET}",
            f"GET /bytes/1?{SECRET}#{SECRET} HTTP/1.1\r\nHost: a\r\nAuthorization: {SECRET}",
            f"GET / HTTP/1.1\r\nHost: a\r\nAuthorization : {SECRET}",
            f"GET / HTTP/1.1\r\nHost: a\r\n Cookie: {SECRET}",
            f"GET / HTTP/1.1\r\nHost: a\r\nCookie: {SECRET}\x01",
            f"GET / HTTP/1.1\r\nHost: {SECRET}@{SECRET}:x",
            f"GET http://user:{SECRET}@other/ HTTP/1.1\r\nHost: a",
            f"GET / HTTP/1.1\r\nHost: a\r\nSvc-Notary-Nonce: {SECRET}\r\nSvc-Notarization-Level: {SECRET}",
            f"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: {SECRET}",
            f"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {SECRET}",
            f"CONNECT {SECRET}:443 HTTP/1.1\r\nHost: a",
            f"GET / HTTP/1.1\r\nHost: a\r\nConnection: Host, {SECRET}",
            f"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;{SECRET}\r\n{SECRET}\r\n0\r\n",
            f"GET / HTTP/1.1\r\nHost: a\r\n{SECRET}",
            f"GET / {SECRET}\r\nHost: a",
        ):
            connection = self.connect()
            connection.send(f"{head}\r\n\r\n".encode())
            with contextlib.suppress(OSError, ValueError):
                connection.read()
            connection.close()
        for answer in (
            f"HTTP/1.1 200 {SECRET}\r\nSet-Cookie: {SECRET}\r\nContent-Length: x{SECRET}\r\n\r\n",
            f"HTTP/1.1 200 OK\r\nSet-Cookie : {SECRET}\r\nContent-Length: 0\r\n\r\n",
            f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {SECRET}\r\n\r\n",
            f"{SECRET}\r\n\r\n",
            f"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{SECRET}",
        ):
            self.canned.answer = answer.encode()
            connection = self.connect("canned")
            with contextlib.suppress(OSError):
                connection.request("/")
            # Further denials of the same client with the same reason within a second are counted, not logged.
            time.sleep(0.05)
        self.plainly(SECRET.encode() + b"\r\n\r\n")
        time.sleep(1.2)
        eventually(lambda: len(self.proxy.records("svc.proxy.request.rejected")) > 5, what="what was refused")
        pages = [
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60).read()
            for port, path in (
                (self.proxy.admin_port, "/config"),
                (self.proxy.admin_port, "/readyz"),
                (self.proxy.metrics_port, "/metrics"),
            )
        ]
        for module, text in zip(
            ("log", "errors", "config", "readyz", "metrics"),
            (self.proxy.log, self.proxy.errors, *map(bytes.decode, pages)),
            strict=True,
        ):
            self.assertNotIn(SECRET, text, module)
        self.assertIn("<left out>", pages[0].decode())


class PortTaker:
    """
    Takes a port as soon as its owner lets go of it.

    Args:
        port: of the loopback address.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.socket()
        # Remains of earlier connections to the port are no obstacle.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port, self._stop = port, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._socket.bind(("127.0.0.1", self._port))
                self._socket.listen()
            except OSError:
                time.sleep(0.001)
            else:
                return

    def has_it(self) -> bool:
        """Whether it has taken the port; there is nothing that it still tries."""
        self._thread.join(0.5)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Let go of it."""
        self._stop.set()
        self._thread.join(60)
        self._socket.close()


class StartTests(_Case):
    """Proxies that start, end, and do not start."""

    @emits(
        "runtime.message",
        "process.started",
        "process.stopped",
        "process.start_failed",
        "proxy.listener.opened",
        "proxy.policy.default_allow",
        "proxy.drain.started",
        "proxy.drain.finished",
        "admin.drain",
        "notary.profile.weak",
        "notary.generation.issued",
        "notary.generation.failed",
        "pq.leaf.failed",
        "store.opened",
        "store.closed",
        "workload.source.connected",
        "workload.svid.updated",
        "workload.bundle.updated",
    )
    def test_life_cycle(self) -> None:
        """One cannot start for want of a post-quantum leaf; one starts twice on its database, and drains."""
        with ExitStack() as stack:
            authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")], pq=False))
            application = f"127.0.0.1:{webapp.start(stack)}"
            hybrid = RunningProxy(authority, application, settings={"startTimeout": "2s"})
            stack.callback(hybrid.stop)
            hybrid.launch()
            plain = RunningProxy(authority, application, notary={"profile": "classical"})
            stack.enter_context(plain)
            credentials = Credentials.fetch(authority, short_folder(stack))
            with RawConnection(plain.port, credentials) as connection:
                self.assertEqual(200, connection.request("/bytes/1", fields=SIGN).status)
            self.assertEqual(1, hybrid.wait())
            plain.halt()
            plain.start()
            self.assertEqual((202, 403), (self.drain(plain), self.drain(plain, Origin="http://evil.example")))
            self.assert_condition(plain, "listeners", "draining", ready=False)
            plain.halt()
            self.assert_logged(plain, hybrid)
            audits = [each for each in plain.records() if each["event"]["category"] == "audit"]
            self.assertEqual([1, 1, 2, 3], [each["audit"]["seq"] for each in audits])
            [begun, refused] = plain.records("svc.admin.drain")
            self.assertEqual(("success", "failure"), (begun["event"]["outcome"], refused["event"]["outcome"]))
            self.assertEqual("127.0.0.1", begun["attributes"]["source.address"])

    def drain(self, proxy: RunningProxy, **fields: str) -> int:
        """Request a drain; return the status."""
        url = f"http://127.0.0.1:{proxy.admin_port}/drain"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, b"", fields), timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


class CredentialTests(_Case):
    """Events of the proxy that issuers cause."""

    @emits(
        "pq.leaf.obtained",
        "workload.source.stale",
        "proxy.connection.revoked",
        "workload.identity.changed",
        "workload.identity.withdrawn",
        "notary.identity.ended",
    )
    def test_issuers(self) -> None:
        """The post-quantum issuer, the roots, the name and the whole identity are withdrawn and restored."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            python = other_python(folder / "python")
            own = {"executable": str(python), "ttl": "12s"}
            guest = entry("/ns/shop/sa/web", ttl="1h")
            authority = RunningAuthority(entries=[entry("/ns/shop/sa/api", **own), guest], pq=False)
            stack.enter_context(authority)
            issuer = self.issuer(stack, authority)
            notary = {"pqIssuer": f"unix://{folder}/issuer.sock"}
            issuer.config["pqIssuer"] = {"socket": notary["pqIssuer"]}
            stack.enter_context(issuer)
            proxy = RunningProxy(
                authority,
                f"127.0.0.1:{webapp.start(stack)}",
                notary=notary,
                settings={"withdrawalGrace": "500ms"},
                python=python,
            )
            stack.enter_context(proxy)
            issuer.kill()
            self.assert_condition(proxy, "pqIssuer", "pq_issuer_unavailable", ready=True)
            self.assert_condition(proxy, "credentials", "expired", ready=False)
            issuer.start()
            self.assert_condition(proxy, "credentials", None, ready=True)
            self.assert_condition(proxy, "pqIssuer", None, ready=True)
            self.roots_change(stack, authority, proxy)
            self.name_ends(authority, proxy, own, guest)
            self.assert_logged(proxy)

    def issuer(self, stack: ExitStack, authority: RunningAuthority) -> RunningAuthority:
        """A post-quantum issuer beside an authority."""
        settings = {"socket": None, "bundleFile": None, "entries": None, "workloadApi": authority.address}
        issuer = RunningAuthority(settings=settings, entries=[], pq=False)
        stack.callback(issuer.stop)
        return issuer

    def roots_change(self, stack: ExitStack, authority: RunningAuthority, proxy: RunningProxy) -> None:
        """An authority without its former keys starts: connections of peers that the old keys vouched for end."""
        credentials = Credentials.fetch(authority, short_folder(stack))
        connection = stack.enter_context(RawConnection(proxy.port, credentials))
        self.assertEqual(200, connection.request("/bytes/1").status)
        authority.kill()
        eventually(lambda: proxy.records("svc.workload.source.stale"), 60)
        authority.start()
        self.assertTrue(connection.ended())

    def name_ends(
        self, authority: RunningAuthority, proxy: RunningProxy, own: dict[str, str], guest: dict[str, object]
    ) -> None:
        """The registration entry gets another name, and is deleted."""
        guest = {**guest, "spiffeID": f"spiffe://example.org{guest['spiffeID']}"}
        renamed = entry("spiffe://example.org/ns/shop/sa/renamed", **own)
        for entries in ([renamed, guest], [guest | {"executable": "/bin/true"}]):
            authority.config["entries"] = entries
            authority.write_config()
            if len(entries) == 2:
                eventually(lambda: proxy.records("svc.workload.identity.changed"), 60)
        self.assert_condition(proxy, "credentials", "identity_withdrawn", ready=False)


class AuthorityTests(_Case):
    """Events of an authority."""

    @emits(
        "authority.started",
        "authority.keys.begun",
        "authority.svid.issued",
        "authority.pq_leaf.issued",
        "authority.refused",
        "authority.rotated",
        "authority.federated",
        "workload.update.rejected",
        "config.warning",
    )
    def test_events(self) -> None:
        """The authority issues, refuses, rotates, federates, and refuses invalid files."""
        with ExitStack() as stack:
            other = stack.enter_context(RunningAuthority("other.example", pq=False))
            folder = short_folder(stack)
            federated = [
                {"trustDomain": "other.example", "bundleFile": str(other.bundle_path)},
                {"trustDomain": "broken.example", "bundleFile": str(folder / "broken.json")},
            ]
            (folder / "broken.json").write_text("{}")
            settings = {"federatesWith": federated, "keys": {"caTtl": "10s"}, "dataDir": str(folder / "keys")}
            authority = stack.enter_context(
                RunningAuthority(entries=[entry("/ns/shop/sa/api", ttl="2s", jwtTtl="2s")], settings=settings)
            )
            proxy = stack.enter_context(RunningProxy(authority, "127.0.0.1:1"))
            Credentials.fetch(authority, folder / "id")
            authority.config["openBundles"] = True
            authority.config["entries"] = []
            authority.write_config()
            eventually(lambda: authority.records("svc.config.warning"), 60)
            del authority.config["openBundles"]
            authority.write_config()
            self.assert_logged(authority, proxy)
