"""The source of SVIDs against real Workload APIs: our authority, and servers that misbehave."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from spiffe._proto import workload_pb2, workload_pb2_grpc
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from svc.identity import BundleSet, SpiffeID, TrustDomain, verify_svid
from svc.identity.matchers import ExactID
from svc.process.clock import utc_now
from svc.testing.ca import TestAuthority, chain_der, key_der
from svc.workload.errors import (
    IdentityWithdrawn,
    NoIdentityIssued,
    NoWorkloadApi,
    PqIssuerError,
    UpdateRejected,
    WorkloadApiSilent,
    WorkloadApiUnavailable,
    WorkloadSocketDenied,
    WorkloadSocketMissing,
    WorkloadSocketUnserved,
)
from svc.workload.pqclient import fetch_pq_leaf
from svc.workload.pqfile import PqBundleSource, read_pq_bundles
from svc.workload.source import WorkloadSource
from tests.peers.authority import RunningAuthority, entry
from tests.peers.waiting import PATIENCE, TOP, free_port
from tests.workload.messages import bundle_der

DOMAIN = TrustDomain("example.org")
WAIT_AS_OTHER = """
import os, sys
import grpc
from twisted.internet import reactor
from svc.workload.source import WorkloadSource
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
source = WorkloadSource(sys.argv[1], reactor=reactor, start_timeout=3.0)
source.startService()
ready = source.when_ready()
ready.addErrback(lambda failure: print(failure.type.__name__))
ready.addCallback(lambda _: source.stopService())
ready.addCallback(lambda _: reactor.stop())
reactor.run()
"""


class SourceCase(TestCase):
    """A test with sources and authorities that end with it."""

    timeout = 600

    def running(self, *arguments: Any, **keys: Any) -> RunningAuthority:
        """Start an authority."""
        authority = RunningAuthority(*arguments, **keys)
        self.addCleanup(authority.stop)
        return authority.start()

    def source(self, address: str, **keys: Any) -> WorkloadSource:
        """Start a source."""
        source = WorkloadSource(address, reactor=reactor, **{"start_timeout": 60.0, **keys})
        source.startService()
        self.addCleanup(source.stopService)
        return source

    async def until(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Wait for a condition while the reactor runs."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > deadline:
                self.fail(f"not within {seconds} s")
            await deferLater(reactor, 0.02)
        return found

    def folder(self) -> Path:
        """Make a folder with a short name."""
        temporary = tempfile.TemporaryDirectory(prefix="svc-")
        self.addCleanup(temporary.cleanup)
        return Path(temporary.name)


class AuthorityTests(SourceCase):
    """The source at our authority."""

    async def test_first_update(self) -> None:
        """The source is ready soon, with the SVID, the bundle and the matching state."""
        authority = self.running(entries=[entry("/a"), entry("/b", hint="external")])
        source = self.source(authority.address, trust_domain=DOMAIN)
        await source.when_ready()
        self.assertEqual(str(source.svid.spiffe_id), "spiffe://example.org/a")
        self.assertEqual([str(each.spiffe_id.path) for each in source.svids], ["/a", "/b"])
        verify_svid(source.svid.chain, source.bundles, utc_now())
        self.assertEqual(source.state.phase, "connected")
        external = self.source(authority.address, hint="external")
        await external.when_ready()
        self.assertEqual(external.svid.spiffe_id.path, "/b")

    async def test_rotation(self) -> None:
        """A rotated SVID is in force within a second of its issue."""
        authority = self.running(ttl="4s")
        source = self.source(authority.address)
        await source.when_ready()
        changes: list[datetime] = []
        source.subscribe(lambda: changes.append(datetime.now(UTC)))
        await self.until(lambda: len(changes) >= 3)
        records = await self.until(lambda: authority.records("svc.authority.svid.issued")[1:4])
        issued = [datetime.fromisoformat(each["timestamp"]) for each in records]
        delays = [(seen - when).total_seconds() for seen, when in zip(changes, issued, strict=False)]
        # Not each time on a busy machine: one of three shows that nothing waits for anything.
        self.assertLess(min(delays), 1.0)
        self.assertEqual(source.state.failures, 0)

    async def test_crash_and_restart(self) -> None:
        """During kill -9 the last good values are kept; after the restart new ones arrive without further action."""
        authority = self.running()
        source = self.source(authority.address)
        await source.when_ready()
        svid, bundles = source.svid, source.bundles
        authority.kill()
        await self.until(lambda: source.state.phase == "stale")
        self.assertEqual((source.svid, source.bundles), (svid, bundles))
        await deferLater(reactor, 1.0)
        self.assertEqual((source.svid, source.bundles), (svid, bundles))
        authority.start()
        began = time.monotonic()
        await self.until(lambda: source.bundles != bundles)
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(source.state.phase, "connected")
        verify_svid(source.svid.chain, source.bundles, utc_now())

    async def test_short_outage(self) -> None:
        """After a short outage the new values are there soon."""
        authority = self.running()
        source = self.source(authority.address)
        await source.when_ready()
        before = source.bundles
        authority.kill()
        authority.start()
        await self.until(lambda: source.bundles != before, seconds=60)

    async def test_denied_later(self) -> None:
        """
        When the entry is taken out, the last good values stay and the state names the denial, until that lasted for the
        grace; an entry that is there again brings the identity back.
        """
        authority = self.running()
        source = self.source(authority.address, withdrawal_grace=4.0)
        await source.when_ready()
        svid, entries = source.svid, authority.config["entries"]
        authority.config["entries"] = []
        authority.write_config()
        await self.until(lambda: source.state.phase == "stale")
        self.assertIn("PERMISSION_DENIED", str(source.state.last_error))
        self.assertEqual(source.svid, svid)
        await self.until(lambda: source.state.phase == "withdrawn")
        self.assertRaises(IdentityWithdrawn, lambda: source.svid)
        authority.config["entries"] = entries
        authority.write_config()
        await self.until(lambda: source.state.phase == "connected")
        self.assertEqual(source.svid.spiffe_id, svid.spiffe_id)

    async def test_late_socket(self) -> None:
        """A source that starts before the authority gets its SVID when that appears."""
        authority = RunningAuthority()
        self.addCleanup(authority.stop)
        source = self.source(authority.address)
        await deferLater(reactor, 0.5)
        self.assertEqual(source.state.phase, "starting")
        authority.start()
        await source.when_ready()
        self.assertEqual(str(source.svid.spiffe_id), "spiffe://example.org/workload")

    async def test_federated(self) -> None:
        """Federated bundles are there, and follow a change of the file."""
        other = self.running("two.example")
        federated = {"trustDomain": "two.example", "bundleFile": str(other.bundle_path)}
        one = self.running("one.example", settings={"federatesWith": [federated]})
        source, foreign = self.source(one.address), self.source(other.address)
        await source.when_ready()
        await foreign.when_ready()
        await self.until(lambda: TrustDomain("two.example") in source.bundles)
        verify_svid(foreign.svid.chain, source.bundles, utc_now())
        before = source.bundles
        other.kill()
        other.start()
        await self.until(lambda: source.bundles != before)
        await self.until(lambda: foreign.bundles != before and foreign.state.phase == "connected")
        self.assertEqual(
            source.bundles.bundle_for(TrustDomain("two.example")),
            foreign.bundles.bundle_for(TrustDomain("two.example")),
        )

    async def test_stop(self) -> None:
        """Stopping ends the thread within bounded time and keeps the values readable."""
        authority = self.running()
        source = self.source(authority.address)
        await source.when_ready()
        began = time.monotonic()
        await source.stopService()
        self.assertLess(time.monotonic() - began, 10)
        await self.until(lambda: not _threads())
        self.assertEqual(source.state.phase, "stopped")
        self.assertTrue(source.svid.chain)


def _threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "svc-workload-api"]


class UnavailableTests(SourceCase):
    """The error at the end of the start-up wait."""

    async def error(self, address: str, kind: type[WorkloadApiUnavailable]) -> None:
        """Wait for the error and look at it."""
        source = self.source(address, start_timeout=3.0)
        began = time.monotonic()
        error: Any = await self.assertFailure(source.when_ready(), WorkloadApiUnavailable)
        self.assertLess(time.monotonic() - began, 20)
        self.assertIs(type(error), kind, str(error))
        self.assertIn(address, str(error))
        self.assertTrue(error.hint)
        await source.stopService()

    async def test_each_cause(self) -> None:
        """A file that is not there, a socket nobody serves, no entry, another protocol, and a server that is silent."""
        missing, dead, silent = (self.folder() / "a.sock" for _ in range(3))
        with socket.socket(socket.AF_UNIX) as crashed:
            crashed.bind(str(dead))
        with socket.socket(socket.AF_UNIX) as hung:
            hung.bind(str(silent))
            hung.listen(16)
            causes: list[tuple[str, type[WorkloadApiUnavailable]]] = [
                (f"unix://{missing}", WorkloadSocketMissing),
                (f"unix://{dead}", WorkloadSocketUnserved),
                (self.running(entries=[]).address, NoIdentityIssued),
                (self.running().pq_address, NoWorkloadApi),
                (f"unix://{silent}", WorkloadApiSilent),
            ]
            # All at once, since each of them takes the whole time of the start.
            await gatherResults([Deferred.fromCoroutine(self.error(*each)) for each in causes], consumeErrors=True)

    async def test_denied_by_the_file_system(self) -> None:
        """A socket that this user may not open."""
        folder = self.folder()
        folder.chmod(0o755)
        path = folder / "a.sock"
        with socket.socket(socket.AF_UNIX) as closed:
            closed.bind(str(path))
            closed.listen()
            path.chmod(0)
            if os.geteuid() != 0:
                await self.error(f"unix://{path}", WorkloadSocketDenied)
                return
            # Root may open every socket: a child that has become another user tries it.
            environment = {**os.environ, "PYTHONPATH": str(TOP)}
            command = [sys.executable, "-c", WAIT_AS_OTHER, f"unix://{path}"]
            found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
            self.assertEqual((found.stdout.strip(), found.stderr), ("WorkloadSocketDenied", ""))


class ScriptedWorkloadApi(workload_pb2_grpc.SpiffeWorkloadAPIServicer):
    """A Workload API that sends what a test wants."""

    def __init__(self, folder: Path) -> None:
        self.address = f"unix://{folder}/scripted.sock"
        self.authority = TestAuthority("example.org", now=datetime.now(UTC))
        self.script: list[Any] = []
        self.calls = 0
        self.ended = threading.Event()
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        workload_pb2_grpc.add_SpiffeWorkloadAPIServicer_to_server(self, self.server)
        self.server.add_insecure_port(self.address)
        self.server.start()

    def stop(self) -> None:
        """End it."""
        self.ended.set()
        self.server.stop(0).wait(5)

    def good(self, path: str = "/a", **keys: Any) -> Any:
        """Make a good message."""
        svid = self.authority.svid(path, **keys)
        return workload_pb2.X509SVIDResponse(
            svids=[
                workload_pb2.X509SVID(
                    spiffe_id=str(svid.spiffe_id),
                    x509_svid=chain_der(svid),
                    x509_svid_key=key_der(svid),
                    bundle=bundle_der(self.authority.bundle()),
                )
            ]
        )

    def FetchX509SVID(self, request: Any, context: Any) -> Iterator[Any]:
        """Send the script; it may grow meanwhile."""
        self.calls += 1
        sent = 0
        while not self.ended.wait(0.02) and context.is_active():
            while sent < len(self.script):
                item = self.script[sent]
                sent += 1
                if item is None:
                    return
                yield item


class LiarTests(SourceCase):
    """A Workload API with invalid updates."""

    def setUp(self) -> None:
        """Start it."""
        self.scripted = ScriptedWorkloadApi(self.folder())
        self.addCleanup(self.scripted.stop)

    async def test_empty_update(self) -> None:
        """An update without an SVID on a stream that stays open ends the identity after the grace, asked for twice."""
        self.scripted.script.append(self.scripted.good())
        source = self.source(self.scripted.address, withdrawal_grace=4.0)
        await source.when_ready()
        self.scripted.script.append(workload_pb2.X509SVIDResponse())
        await self.until(lambda: source.state.phase == "stale")
        self.scripted.script = [workload_pb2.X509SVIDResponse()]
        await self.until(lambda: source.state.phase == "withdrawn")
        self.assertEqual(2, self.scripted.calls)
        self.scripted.script.append(self.scripted.good())
        await self.until(lambda: source.state.phase == "connected")

    async def test_bad_updates(self) -> None:
        """Bad updates keep the last good values, each is counted, and the stream stays open for the next good one."""
        self.scripted.script.append(self.scripted.good())
        source = self.source(self.scripted.address)
        await source.when_ready()
        svid = source.svid
        past = datetime.now(UTC) - timedelta(hours=1)
        untrusted = TestAuthority("example.org", now=datetime.now(UTC))
        foreign = self.scripted.good()
        foreign.svids[0].bundle = bundle_der(untrusted.bundle())
        garbage = self.scripted.good()
        garbage.svids[0].x509_svid = b"\x30\x82\x01"
        expired = self.scripted.good(not_before=past - timedelta(hours=1), not_after=past)
        for count, bad in enumerate((workload_pb2.X509SVIDResponse(), garbage, expired, foreign), 1):
            self.scripted.script.append(bad)
            await self.until(lambda count=count: source.state.rejected == count)  # type: ignore[misc]
            self.assertEqual(source.svid, svid)
            self.assertEqual(source.state.phase, "stale")
            self.assertIsInstance(source.state.last_error, UpdateRejected)
        self.scripted.script.append(self.scripted.good("/b"))
        await self.until(lambda: source.svid.spiffe_id.path == "/b")
        self.assertEqual((source.state.phase, self.scripted.calls), ("connected", 1))

    async def test_ended_stream(self) -> None:
        """A server that ends its streams is asked again, not in a busy loop."""
        self.scripted.script.extend([self.scripted.good(), None])
        source = self.source(self.scripted.address)
        await source.when_ready()
        began = time.monotonic()
        await deferLater(reactor, 2.0)
        await self.until(lambda: self.scripted.calls >= 3)
        self.assertLessEqual(self.scripted.calls, 4 * (time.monotonic() - began))
        self.assertTrue(source.svid.chain)

    async def test_large_message(self) -> None:
        """A message beyond gRPC's 4 MiB does not reach the parser and keeps the last good values."""
        self.scripted.script.append(self.scripted.good())
        source = self.source(self.scripted.address)
        await source.when_ready()
        huge = self.scripted.good()
        huge.svids[0].bundle = b"\x30" * (5 * 1024 * 1024)
        self.scripted.script.append(huge)
        await self.until(lambda: source.state.failures >= 1)
        self.assertIn("RESOURCE_EXHAUSTED", str(source.state.last_error))
        self.assertEqual(source.svid.spiffe_id.path, "/a")


class PqIssuerTests(SourceCase):
    """Getting post-quantum leaves."""

    async def issuer_error(self, asked: Deferred[Any], reason: str) -> PqIssuerError:
        """Assert that a request for a leaf fails with this reason."""
        error: PqIssuerError = await self.assertFailure(asked, PqIssuerError)
        self.assertEqual(error.reason, reason)
        return error

    async def leaf_of(self, address: str, source: WorkloadSource, bundles: BundleSet, **keys: Any) -> None:
        """Get a leaf and verify it."""
        leaf = await fetch_pq_leaf(address, source.svid, source, reactor, now=utc_now, pq_bundles=bundles, **keys)
        evidence = verify_svid(leaf.chain, bundles, utc_now())
        self.assertEqual(evidence.spiffe_id, source.svid.spiffe_id)
        self.assertTrue(evidence.post_quantum)
        self.assertEqual(leaf.not_after, source.svid.not_after)

    async def test_full_authority(self) -> None:
        """Over the Unix socket and over mutual TLS the leaf verifies to the PQ bundle beside the socket."""
        port = free_port()
        pq = {"socket": None, "listen": f"127.0.0.1:{port}", "algorithm": "ML-DSA-87"}
        authority = RunningAuthority()
        self.addCleanup(authority.stop)
        authority.config["pqIssuer"] = {**pq, "socket": authority.pq_address}
        authority.start()
        source = self.source(authority.address)
        await source.when_ready()
        bundles = read_pq_bundles(authority.pq_bundle_path).bundle_set()
        await self.leaf_of(authority.pq_address, source, bundles)
        await self.leaf_of(f"127.0.0.1:{port}", source, bundles, algorithm="ML-DSA-87")
        issuer = SpiffeID.parse("spiffe://example.org/svc/authority")
        await self.leaf_of(f"localhost:{port}", source, bundles, expected=ExactID(issuer))
        await self.until(lambda: len(authority.records("svc.authority.pq_leaf.issued")) == 3)

    async def test_wrong_issuer(self) -> None:
        """An issuer with another identity than the expected one gets no proof, at the socket and over TLS."""
        port = free_port()
        authority = RunningAuthority()
        self.addCleanup(authority.stop)
        authority.config["pqIssuer"]["listen"] = f"127.0.0.1:{port}"
        authority.start()
        source = self.source(authority.address)
        await source.when_ready()
        expected = ExactID(SpiffeID.parse("spiffe://example.org/other"))
        for address, reason in (
            (authority.pq_address, "pq_issuer_malformed"),
            (f"127.0.0.1:{port}", "pq_issuer_unavailable"),
        ):
            asked = fetch_pq_leaf(address, source.svid, source, reactor, now=utc_now, expected=expected)
            await self.issuer_error(asked, reason)
        self.assertEqual(authority.records("svc.authority.pq_leaf.issued"), [])

    async def test_caller_must_agree(self) -> None:
        """A process that holds an SVID of another entry than its own is refused at the Unix socket."""
        authority = self.running(entries=[entry("/a")])
        source = self.source(authority.address)
        await source.when_ready()
        authority.config["entries"][0]["spiffeID"] = "spiffe://example.org/b"
        svid = source.svid
        authority.write_config()
        await self.until(lambda: source.svid.spiffe_id.path == "/b")
        asked = fetch_pq_leaf(authority.pq_address, svid, source, reactor, now=utc_now)
        error = await self.issuer_error(asked, "pq_issuer_refused")
        self.assertIn("403: caller_mismatch", str(error))

    async def test_wrong_root(self) -> None:
        """A leaf that does not verify to the local PQ bundle is not taken."""
        authority = self.running()
        source = self.source(authority.address)
        await source.when_ready()
        untrusted = TestAuthority("example.org", now=utc_now(), algorithm="ML-DSA-65").bundles()
        asked = fetch_pq_leaf(authority.pq_address, source.svid, source, reactor, now=utc_now, pq_bundles=untrusted)
        error = await self.issuer_error(asked, "pq_issuer_malformed")
        self.assertIn("does not verify", str(error))

    async def test_unreachable(self) -> None:
        """Missing, refusing, silent and babbling issuers each have their error, within the time."""
        authority = self.running()
        source = self.source(authority.address)
        await source.when_ready()
        folder = self.folder()

        def ask(address: str) -> Deferred[Any]:
            return fetch_pq_leaf(address, source.svid, source, reactor, now=utc_now, timeout=1.0)

        nobody = await self.issuer_error(ask(f"unix://{folder}/no.sock"), "pq_issuer_unavailable")
        sentence = f"the PQ issuer at unix://{folder}/no.sock cannot be reached: no such file or directory"
        self.assertEqual(sentence, str(nobody))
        await self.issuer_error(ask(f"127.0.0.1:{free_port()}"), "pq_issuer_unavailable")
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(f"{folder}/silent.sock")
            silent.listen()
            await self.issuer_error(ask(f"unix://{folder}/silent.sock"), "pq_issuer_timeout")
        for number, answer in enumerate(
            (
                b"nonsense\r\n\r\n",
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"challenge":"a"}',
                b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
                b"HTTP/1.1 200 OK\r\nContent-Length: 90000000\r\n\r\n" + b"x" * 200_000,
                b"",
            )
        ):
            path = f"{folder}/{number}.sock"
            server = threading.Thread(target=_answer_once, args=(path, answer), daemon=True)
            server.start()
            await self.until(lambda path=path: os.path.exists(path))  # type: ignore[misc]
            error = await self.assertFailure(ask(f"unix://{path}"), PqIssuerError)
            self.assertNotRegex(str(error), "Failure|[\\[<]")
            server.join(60)

    async def test_pq_only(self) -> None:
        """Beside another SPIFFE implementation: its SVIDs, its bundles, our post-quantum leaves, on both paths."""
        port = free_port()
        spire = self.running(entries=[entry("/workload"), entry("/other")], pq=False)
        issuer = RunningAuthority("example.org")
        self.addCleanup(issuer.stop)
        issuer.config = {
            "trustDomain": "example.org",
            "adminAddr": "0",
            "workloadApi": spire.address,
            "pqIssuer": {
                "socket": issuer.pq_address,
                "listen": f"127.0.0.1:{port}",
                "bundleFile": str(issuer.pq_bundle_path),
            },
        }
        issuer.start()
        source = self.source(spire.address)
        await source.when_ready()
        await self.until(lambda: issuer.records("svc.workload.source.connected"))
        pq = PqBundleSource(issuer.pq_bundle_path, reactor=reactor)
        pq.startService()
        self.addCleanup(pq.stopService)
        await self.leaf_of(issuer.pq_address, source, pq.bundles)
        await self.leaf_of(f"127.0.0.1:{port}", source, pq.bundles)
        self.assertFalse(issuer.socket_path.exists())
        await self.until(issuer.archive_path.exists)

        spire.kill()
        await self.leaf_of(issuer.pq_address, source, pq.bundles)
        issuer.kill()
        spire.start()
        issuer.start()
        before = source.bundles
        await self.until(lambda: source.bundles != before or source.state.phase == "connected")
        await self.until(lambda: len(pq.bundles.bundle_for(DOMAIN).anchors) == 2)
        await self.until(lambda: len(issuer.records("svc.workload.source.connected")) == 2)
        await self.leaf_of(issuer.pq_address, source, pq.bundles)

    async def test_pq_only_other_user(self) -> None:
        """Without entries only the listed users are served at the Unix socket."""
        spire = self.running(pq=False)
        issuer = RunningAuthority("example.org")
        self.addCleanup(issuer.stop)
        issuer.config = {
            "trustDomain": "example.org",
            "adminAddr": "0",
            "workloadApi": spire.address,
            "pqIssuer": {
                "socket": issuer.pq_address,
                "bundleFile": str(issuer.pq_bundle_path),
                "allowUids": [os.geteuid() + 4711],
            },
        }
        issuer.start()
        source = self.source(spire.address)
        await source.when_ready()
        await self.until(lambda: issuer.records("svc.workload.source.connected"))
        asked = fetch_pq_leaf(issuer.pq_address, source.svid, source, reactor, now=utc_now)
        error = await self.issuer_error(asked, "pq_issuer_refused")
        self.assertIn("caller_refused", str(error))


def _answer_once(path: str, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            try:
                connection.sendall(answer)
            except OSError:
                return
