"""Tests of the local trust: the Workload API and the file with post-quantum roots."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.trust import LocalTrust, NotASocket, SocketAbsent, read_pq_anchors
from svc.envelope.profile import Profile
from svc.identity.pqbundle import PqBundles
from svc.testing.workload import MemorySource
from svc.workload.errors import PqFileMalformed, PqFileMissing, PqFileRefused
from tests.cli.doubles import default_world, settled


class RunningSource(MemorySource):
    """A source that counts its starts and stops."""

    def __init__(self, socket: str, *, reactor: object, start_timeout: float) -> None:
        world = default_world()
        super().__init__(world.client, world.bundles)
        self.socket, self.start_timeout = socket, start_timeout
        self.started = self.stopped = 0

    def startService(self) -> None:
        self.started += 1

    def stopService(self) -> Deferred[None]:
        self.stopped += 1
        return succeed(None)


class TrustTests(SynchronousTestCase):
    """The sources of trust anchors."""

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
        return PqBundles().with_bundle(default_world().pq_authority.bundle()).serialize()

    def test_socket_absent(self) -> None:
        """A missing socket is reported at once, with the flag that names another one."""
        trust = LocalTrust(Clock(), self.socket, Profile.HYBRID, None)
        error = self.assertRaises(SocketAbsent, settled, Deferred.fromCoroutine(trust.trust()))
        self.assertIn(f"{self.folder}/agent.sock", str(error))
        self.assertIn("--spiffe-socket-path", error.hint)

    def test_no_socket(self) -> None:
        """A file or a folder where the socket should be is reported at once."""
        self.put("agent.sock")
        for address, kind in ((self.socket, "a file of another kind"), (f"unix://{self.folder}", "a folder")):
            trust = LocalTrust(Clock(), address, Profile.HYBRID, None)
            error = self.assertRaises(NotASocket, settled, Deferred.fromCoroutine(trust.trust()))
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
        self.assertEqual((found.anchors.spiffe, len(found.anchors.pq)), (default_world().bundles, 1))
        self.assertIsNone(found.stale_since)
        self.assertEqual(found.pq_file, f"{self.folder}/pq-bundle.json")
        settled(Deferred.fromCoroutine(trust.close()))
        self.assertEqual([(source.started, source.stopped, source.start_timeout) for source in made], [(1, 1, 10.0)])

    def test_pq_file_changes(self) -> None:
        """Post-quantum roots are read again when their file changes; one that can no longer be used is an error."""
        self.listen()
        trust = LocalTrust(Clock(), self.socket, Profile.HYBRID, None, RunningSource)

        def roots() -> int:
            return len(settled(Deferred.fromCoroutine(trust.trust())).anchors.pq)

        self.assertEqual(0, roots())
        self.put("pq-bundle.json", self.bundle())
        self.assertEqual(1, roots())
        self.put("pq-bundle.json", b"{}")
        self.assertRaises(PqFileMalformed, roots)

    def test_pq_file(self) -> None:
        """Beside the socket by default; a named file must be there; classical reads none."""
        self.assertEqual(len(read_pq_anchors(Profile.HYBRID, None, self.socket)), 0)
        self.assertRaises(PqFileMissing, read_pq_anchors, Profile.HYBRID, f"{self.folder}/x", self.socket)
        self.put("pq-bundle.json", self.bundle())
        self.assertEqual(len(read_pq_anchors(Profile.PQ, None, self.socket)), 1)
        self.assertEqual(len(read_pq_anchors(Profile.CLASSICAL, None, self.socket)), 0)

    def test_pq_file_wrong(self) -> None:
        """A named file that is missing is reported so, whatever its folder; so is one that holds something else."""
        error = self.assertRaises(PqFileMissing, read_pq_anchors, Profile.HYBRID, "/tmp/no-such.json", self.socket)
        self.assertIn("/tmp/no-such.json", str(error))
        other = self.put("other.json", b"root:x:0:0")
        wrong = self.assertRaises(PqFileMalformed, read_pq_anchors, Profile.HYBRID, other, self.socket)
        self.assertIn("is it the right file?", wrong.hint)

    def test_pq_file_refused(self) -> None:
        """A file beside the socket that is refused is an error; it is not treated as missing."""
        os.chmod(self.put("pq-bundle.json", self.bundle()), 0o666)
        self.assertRaises(PqFileRefused, read_pq_anchors, Profile.HYBRID, None, self.socket)
