"""Tests of what connects the command line to the outside world: dialing, trust, reactor, log records."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import tempfile
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionRefusedError as TwistedRefused
from twisted.internet.error import DNSLookupError
from twisted.internet.task import Clock
from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import Interrupted
from svc.cli.exchange.demands import Demands
from svc.cli.exchange.dialing import _address, explained
from svc.cli.exchange.errors import MaxTimeExceeded
from svc.cli.exchange.judgement import acceptable_server
from svc.cli.exchange.line import Connected
from svc.cli.exchange.reactor import limited, run_on
from svc.cli.exchange.target import Target
from svc.cli.exchange.trust import LocalTrust, SocketAbsent, SocketIsNone, read_pq_anchors
from svc.cli.globals import GlobalOptions
from svc.cli.logs import make_observer
from svc.cli.output import Console
from svc.errors import SvcError
from svc.identity.pqbundle import PqBundles
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.notary.profile import Profile
from svc.telemetry.events import Severity
from svc.testing.workload import MemorySource
from svc.transport import errors as transport_errors
from svc.workload.errors import PqFileMalformed, PqFileMissing, PqFileRefused
from tests.cli.doubles import MemoryDialer, NotaryServer, right_world, settled

TARGET = Target.parse("https://api.test:8443/")


def caused(error: Exception, cause: Exception) -> Any:
    error.__cause__ = cause
    return error


class DialingTests(SynchronousTestCase):
    """Which server is acceptable, and what is told where none answers."""

    def test_acceptable(self) -> None:
        """Without --expect-id any workload of the own trust domain, and none of another; with it exactly those."""
        own = TrustDomain.parse("example.org")
        here, there = SpiffeID.parse("spiffe://example.org/a"), SpiffeID.parse("spiffe://other.org/a")
        anyone = acceptable_server(Demands(), own)
        self.assertEqual((anyone.matches(here), anyone.matches(there)), (True, False))
        named = acceptable_server(Demands(expected=(there,)), own)
        self.assertEqual((named.matches(here), named.matches(there)), (False, True))

    def test_words(self) -> None:
        """Each way in which no connection comes about has its own reason and a hint."""
        failed = transport_errors.ConnectFailed(address="api.test:8443", detail="no route to host")
        refused = transport_errors.ConnectFailed(address="a", detail="x")
        named = transport_errors.ConnectFailed(address="a", detail="x")
        for error, reason in (
            (failed, "connect_failed"),
            (caused(refused, TwistedRefused()), "connection_refused"),
            (caused(named, DNSLookupError()), "name_unresolved"),
            (transport_errors.ConnectTimeout(address="a", detail="10 s"), "connect_timeout"),
            (transport_errors.HandshakeFailed(address="a", alert="", detail="x"), "handshake_failed"),
            (transport_errors.HandshakeTimeout(address="a", seconds=10.0), "handshake_timeout"),
            (
                transport_errors.PeerIdentityUnexpected(address="a", alert="", spiffe_id="i", expected="e"),
                "identity_unexpected",
            ),
        ):
            told = explained(error, TARGET)
            self.assertEqual(told.reason, reason)
            self.assertTrue(told.advice(), reason)
            self.assertNotIn("{", str(told) + told.advice())

    def test_unexpected(self) -> None:
        """Who named an identity is told to compare it; who named none, that another trust domain needs it."""
        error = transport_errors.PeerIdentityUnexpected(address="a", alert="", spiffe_id="i", expected="e")
        self.assertIn("correct --expect-id", explained(error, TARGET, pinned=True).advice())
        self.assertIn("--expect-id i", explained(error, TARGET).advice())

    def test_svid_reason(self) -> None:
        """An invalid SVID of the server is told with the precise reason below it."""
        error = transport_errors.PeerSvidInvalid(address="a", alert="", detail="expired", cause="it expired")
        told = explained(error, TARGET)
        self.assertEqual((told.reason, getattr(told, "detail_reason", "")), ("svid_invalid", "expired"))

    def test_others_stay(self) -> None:
        """An error with a good sentence of its own stays as it is."""
        error = transport_errors.PqRequired(address="a", alert="")
        self.assertIs(explained(error, TARGET), error)

    def test_address(self) -> None:
        """A connection that follows another one goes to the same address, whatever the name resolves to by then."""
        self.assertEqual(_address(TARGET, None).host, "api.test")
        dialer = MemoryDialer(NotaryServer(right_world()), None)
        before: Connected = settled(Deferred.fromCoroutine(dialer.dial(None)))
        address = _address(TARGET, before)
        self.assertEqual((address.host, address.port), ("192.0.2.7", 8443))


class RunningSource(MemorySource):
    """A source that counts its starts and stops."""

    def __init__(self, socket: str, *, reactor: object, start_timeout: float) -> None:
        world = right_world()
        super().__init__(world.client, world.bundles)
        self.socket, self.start_timeout = socket, start_timeout
        self.started = self.stopped = 0

    def startService(self) -> None:
        self.started += 1

    def stopService(self) -> Deferred[None]:
        self.stopped += 1
        return succeed(None)


class TrustTests(SynchronousTestCase):
    """Where trust comes from."""

    def setUp(self) -> None:
        # The folders of trial are too deep for the address of a socket.
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.socket = f"unix://{self.folder}/agent.sock"

    def put(self, name: str, data: bytes = b"") -> str:
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, 0o600)
        return path

    def listen(self) -> None:
        bound = socket.socket(socket.AF_UNIX)
        self.addCleanup(bound.close)
        bound.bind(f"{self.folder}/agent.sock")

    def bundle(self) -> bytes:
        return PqBundles().with_bundle(right_world().pq_authority.bundle()).serialize()

    def test_socket_absent(self) -> None:
        """A socket that is not there is told at once, with the flag that names another one."""
        trust = LocalTrust(Clock(), self.socket, Profile.HYBRID, None)
        error = self.assertRaises(SocketAbsent, settled, Deferred.fromCoroutine(trust.trust()))
        self.assertIn(f"{self.folder}/agent.sock", str(error))
        self.assertIn("--spiffe-socket-path", error.advice())

    def test_no_socket(self) -> None:
        """A file or a folder where the socket should be is told at once."""
        self.put("agent.sock")
        for address, kind in ((self.socket, "a file of another kind"), (f"unix://{self.folder}", "a folder")):
            trust = LocalTrust(Clock(), address, Profile.HYBRID, None)
            error = self.assertRaises(SocketIsNone, settled, Deferred.fromCoroutine(trust.trust()))
            self.assertIn(kind, str(error))
            self.assertEqual(error.reason, "workload_api_unavailable")

    def test_asked_once(self) -> None:
        """The Workload API is started once, for ten seconds at most, and stopped at the end."""
        self.listen()
        self.put("pq-bundle.json", self.bundle())
        made: list[RunningSource] = []

        def make(*args: Any, **options: Any) -> RunningSource:
            made.append(RunningSource(*args, **options))
            return made[-1]

        trust = LocalTrust(Clock(), self.socket, Profile.HYBRID, None, make)
        for _again in range(2):
            found = settled(Deferred.fromCoroutine(trust.trust()))
        self.assertEqual((found.anchors.spiffe, len(found.anchors.pq)), (right_world().bundles, 1))
        self.assertIsNone(found.stale_since)
        self.assertEqual(found.pq_file, f"{self.folder}/pq-bundle.json")
        settled(Deferred.fromCoroutine(trust.close()))
        self.assertEqual([(source.started, source.stopped, source.start_timeout) for source in made], [(1, 1, 10.0)])

    def test_pq_file(self) -> None:
        """Beside the socket by default; a named file must be there; classical reads none."""
        self.assertEqual(len(read_pq_anchors(Profile.HYBRID, None, self.socket)), 0)
        self.assertRaises(PqFileMissing, read_pq_anchors, Profile.HYBRID, f"{self.folder}/x", self.socket)
        self.put("pq-bundle.json", self.bundle())
        self.assertEqual(len(read_pq_anchors(Profile.PQ, None, self.socket)), 1)
        self.assertEqual(len(read_pq_anchors(Profile.CLASSICAL, None, self.socket)), 0)

    def test_pq_file_wrong(self) -> None:
        """A named file that is missing is missing, whatever its folder; one that holds something else is told so."""
        error = self.assertRaises(PqFileMissing, read_pq_anchors, Profile.HYBRID, "/tmp/no-such.json", self.socket)
        self.assertIn("/tmp/no-such.json", str(error))
        other = self.put("other.json", b"root:x:0:0")
        wrong = self.assertRaises(PqFileMalformed, read_pq_anchors, Profile.HYBRID, other, self.socket)
        self.assertIn("is it the right file?", wrong.advice())

    def test_pq_file_refused(self) -> None:
        """A file beside the socket that is not to be trusted is an error, not the absence of one."""
        os.chmod(self.put("pq-bundle.json", self.bundle()), 0o666)
        self.assertRaises(PqFileRefused, read_pq_anchors, Profile.HYBRID, None, self.socket)


class FakeReactor(Clock):
    """A reactor that runs what is due, and may be stopped by a signal."""

    def __init__(self, *, signal_after: float | None = None) -> None:
        super().__init__()
        self.signal_after = signal_after
        self.begin: list[Any] = []
        self.before: list[Any] = []
        self.stopped = False

    def callWhenRunning(self, function: Any) -> None:
        self.begin.append(function)

    def addSystemEventTrigger(self, _phase: str, _event: str, function: Any) -> None:
        self.before.append(function)

    def stop(self) -> None:
        if self.stopped:
            raise AssertionError("stopped twice")
        self.stopped = True
        for function in self.before:
            function()

    def run(self) -> None:
        for function in self.begin:
            function()
        while not self.stopped:
            self.advance(0.5)
            if self.signal_after is not None and self.seconds() >= self.signal_after and not self.stopped:
                self.stop()


class ReactorTests(SynchronousTestCase):
    """Running until something is done."""

    def run_on(self, reactor: FakeReactor, start: Any) -> Any:
        self.closed = 0

        async def close() -> None:
            self.closed += 1

        try:
            return run_on(reactor, start, close)
        finally:
            self.assertEqual(reactor.stopped, True)

    def test_result(self) -> None:
        """The result is given once the reactor has stopped and everything was given back."""
        self.assertEqual(self.run_on(FakeReactor(), lambda: succeed(7)), 7)
        self.assertEqual(self.closed, 1)

    def test_error(self) -> None:
        """An error is raised as it is."""

        def start() -> Deferred[None]:
            async def work() -> None:
                raise SvcError

            return Deferred.fromCoroutine(work())

        self.assertRaises(SvcError, self.run_on, FakeReactor(), start)
        self.assertEqual(self.closed, 1)

    def test_signal(self) -> None:
        """A signal cancels what runs and gives everything back."""
        cancelled: list[Deferred[None]] = []
        waiting: Deferred[None] = Deferred(cancelled.append)
        self.assertRaises(Interrupted, self.run_on, FakeReactor(signal_after=2), lambda: waiting)
        self.assertEqual((len(cancelled), self.closed), (1, 1))

    def test_time_limit(self) -> None:
        """Work that takes too long is cancelled; without a limit nothing is scheduled."""
        clock = Clock()
        cancelled: list[object] = []

        async def work(_means: object) -> None:
            await Deferred(cancelled.append)

        working = limited(clock, 2.0, work, None)  # type: ignore[arg-type]
        clock.advance(1.9)
        self.assertNoResult(working)
        clock.advance(0.1)
        self.failureResultOf(working, MaxTimeExceeded)
        self.assertEqual((len(cancelled), clock.getDelayedCalls()), (1, []))

        async def quick(_means: object) -> int:
            return 1

        self.assertEqual(self.successResultOf(limited(clock, None, quick, None)), 1)  # type: ignore[arg-type]
        self.assertEqual(self.successResultOf(limited(clock, 5.0, quick, None)), 1)  # type: ignore[arg-type]
        self.assertEqual(clock.getDelayedCalls(), [])


class LogTests(SynchronousTestCase):
    """Which verbosity shows what."""

    def shown(self, verbosity: int, log_format: str = "text") -> list[str]:
        stderr = io.BytesIO()
        options = GlobalOptions(verbosity=verbosity, log_format=log_format)
        observer = make_observer(options, Console(io.BytesIO(), stderr, {}))
        log = Logger(namespace="svc.test", observer=observer)
        for level in ("error", "warn", "info", "debug"):
            getattr(log, level)(level)
        log.debug("trace", svc_severity=Severity.TRACE)
        Logger(namespace="twisted.internet", observer=observer).info("noise")
        return stderr.getvalue().decode().splitlines()

    def test_verbosity(self) -> None:
        """-2 shows errors, each step one severity more, 2 and above the trace and Twisted's own remarks."""
        for verbosity, count in ((-9, 1), (-2, 1), (-1, 2), (0, 3), (1, 4), (2, 6), (9, 6)):
            self.assertEqual(len(self.shown(verbosity)), count, verbosity)

    def test_json(self) -> None:
        """Records are JSON of the common schema on demand."""
        (record,) = [json.loads(line) for line in self.shown(-2, "json")]
        self.assertEqual((record["schema"], record["severity"], record["component"]), ("svc.log/1", "ERROR", "svc"))
