"""``twistd svc-authority`` as a process, and py-spiffe as its client."""

from __future__ import annotations

import itertools
import json
import os
import socket
import stat
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from spiffe import WorkloadApiClient
from spiffe._proto import workload_pb2, workload_pb2_grpc
from spiffe.errors import PySpiffeError
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.identity import SvidInvalid, TrustDomain, X509Svid, verify_svid
from svc.identity.archive import BundleArchive
from svc.identity.trustbundle import parse_bundle_file
from svc.workload.pqfile import read_pq_bundles
from svc.workload.update import Update, read_update
from tests.peers.authority import RunningAuthority, entry
from tests.peers.daemon import DaemonFailed, twistd
from tests.peers.waiting import TOP, eventually, runs

HEADER = (("workload.spiffe.io", "true"),)
FETCH_AS_OTHER = """
import os, sys
from spiffe import WorkloadApiClient
client = WorkloadApiClient(sys.argv[1])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(client.fetch_x509_svid(timeout=60).spiffe_id)
"""


class AuthorityCase(SynchronousTestCase):
    """A test with authorities of its own."""

    def running(self, *arguments: Any, **keys: Any) -> RunningAuthority:
        """Start one that ends with the test."""
        authority = RunningAuthority(*arguments, **keys)
        self.addCleanup(authority.stop)
        return authority.start()

    def client(self, authority: RunningAuthority) -> WorkloadApiClient:
        """Make a py-spiffe client."""
        client = WorkloadApiClient(authority.address, default_timeout=60)
        self.addCleanup(client.close)
        return client

    def stub(self, authority: RunningAuthority) -> Any:
        """Make a bare gRPC client, which adds no header by itself."""
        channel = grpc.insecure_channel(authority.address)
        self.addCleanup(channel.close)
        return workload_pb2_grpc.SpiffeWorkloadAPIStub(channel)

    def first(self, authority: RunningAuthority) -> Update:
        """Fetch one update and verify it as the source does."""
        call = self.stub(authority).FetchX509SVID(workload_pb2.X509SVIDRequest(), metadata=HEADER, timeout=60)
        return read_update(next(call), datetime.now(UTC))

    def ended(self, authority: RunningAuthority, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it with further arguments until it ends."""
        authority.write_config()
        environment = {**os.environ, "PYTHONPATH": str(TOP)}
        command = [*authority.command(), *arguments]
        return subprocess.run(
            command, cwd=authority.folder, env=environment, capture_output=True, text=True, timeout=180, check=False
        )

    def built(self, **keys: Any) -> RunningAuthority:
        """Make one that is not started."""
        authority = RunningAuthority(**keys)
        self.addCleanup(authority.stop)
        return authority

    def names(self, authority: RunningAuthority) -> list[Any]:
        """Fetch the identities that this process gets."""
        return [each.svid.spiffe_id for each in self.first(authority).svids]

    def status(self, call: Callable[[], Any]) -> grpc.StatusCode:
        """Make a call that fails and return its status."""
        return self.assertRaises(grpc.RpcError, call).code()

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for a condition."""
        return eventually(condition)


class WorkloadApiTests(AuthorityCase):
    """The five calls, from py-spiffe."""

    def test_x509_context(self) -> None:
        """py-spiffe gets SVIDs in the order of the entries, with bundle; they verify by our rules too."""
        authority = self.running(entries=[entry("/a"), entry("/nobody", uid=4711), entry("/b", hint="external")])
        context = self.client(authority).fetch_x509_context()
        names = [str(svid.spiffe_id) for svid in context.x509_svids]
        self.assertEqual(names, ["spiffe://example.org/a", "spiffe://example.org/b"])
        update = self.first(authority)
        self.assertEqual([each.hint for each in update.svids], ["", "external"])
        self.assertEqual([each.name for each in update.bundles.trust_domains], ["example.org"])

    def test_bundles(self) -> None:
        """Bundles have calls of their own and are equal to the bundle file."""
        authority = self.running()
        bundles = self.client(authority).fetch_x509_bundles().bundles
        self.assertEqual([str(bundle.trust_domain) for bundle in bundles], ["example.org"])
        on_disk = parse_bundle_file(authority.bundle_path.read_bytes(), TrustDomain("example.org"))
        (bundle,) = bundles
        self.assertEqual(tuple(bundle.x509_authorities), on_disk.bundle_for(TrustDomain("example.org")).certificates)
        (jwt_bundle,) = self.client(authority).fetch_jwt_bundles().bundles
        self.assertEqual(len(jwt_bundle.jwt_authorities), 1)

    def test_jwt(self) -> None:
        """JWT-SVIDs are fetched, validated by the authority and by py-spiffe with the JWT bundle."""
        client = self.client(self.running(entries=[entry("/a", jwtTtl="2m"), entry("/b")]))
        both = client.fetch_jwt_svids({"us", "them"})
        self.assertEqual([str(each.spiffe_id) for each in both], ["spiffe://example.org/a", "spiffe://example.org/b"])
        svid = client.fetch_jwt_svid({"us"})
        self.assertLessEqual(abs(svid.expiry - time.time() - 120), 30)
        self.assertEqual(client.validate_jwt_svid(svid.token, "us").spiffe_id, svid.spiffe_id)
        self.assertRaises(PySpiffeError, client.validate_jwt_svid, svid.token, "them")
        self.assertRaises(PySpiffeError, client.validate_jwt_svid, svid.token[:-6] + "AAAAAA", "us")
        (bundle,) = client.fetch_jwt_bundles().bundles
        from spiffe import JwtSvid

        self.assertEqual(JwtSvid.parse_and_validate(svid.token, bundle, {"us"}).spiffe_id, svid.spiffe_id)

    def test_jwt_of_one_identity(self) -> None:
        """A named identity is given to those entitled to it and to no other."""
        stub = self.stub(self.running(entries=[entry("/a"), entry("/b"), entry("/c", uid=4711)]))

        def fetch(spiffe_id: str, *audience: str) -> Any:
            request = workload_pb2.JWTSVIDRequest(audience=audience, spiffe_id=spiffe_id)
            return stub.FetchJWTSVID(request, metadata=HEADER, timeout=60)

        found = fetch("spiffe://example.org/b", "us").svids
        self.assertEqual([each.spiffe_id for each in found], ["spiffe://example.org/b"])
        denied, invalid = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT
        self.assertEqual(self.status(lambda: fetch("spiffe://example.org/c", "us")), denied)
        self.assertEqual(self.status(lambda: fetch("nonsense", "us")), invalid)
        self.assertEqual(self.status(lambda: fetch("")), invalid)
        self.assertEqual(self.status(lambda: fetch("", "")), invalid)
        self.assertEqual(self.status(lambda: fetch("", *["a"] * 33)), invalid)

    def test_rotation(self) -> None:
        """An open py-spiffe watch gets a new SVID at half of its life, again and again."""
        authority = self.running(ttl="4s")
        seen: list[tuple[float, int]] = []
        errors: list[Exception] = []
        watch = self.client(authority).stream_x509_contexts(
            lambda context: seen.append((time.monotonic(), context.default_svid.leaf.serial_number)), errors.append
        )
        self.addCleanup(watch.cancel)
        self.until(lambda: len(seen) >= 6)
        gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(seen)]
        # On a busy machine single rotations are late, and the next ones follow sooner.
        self.assertTrue(1.0 < statistics.median(gaps) < 2.6, gaps)
        self.assertEqual(len({serial for _, serial in seen}), len(seen))
        self.assertEqual(errors, [])

    def test_every_algorithm(self) -> None:
        """py-spiffe and our own rules accept each configured algorithm."""
        for algorithm in ("ECDSA-P384", "Ed25519", "RSA", "ML-DSA-65"):
            keys = {"caAlgorithm": algorithm, "svidAlgorithm": algorithm}
            post_quantum = algorithm.startswith("ML-DSA")
            settings = {"keys": keys, **({"bundleFile": None} if post_quantum else {})}
            authority = self.running(settings=settings, pq=False)
            self.assertEqual(str(self.client(authority).fetch_x509_svid().spiffe_id), "spiffe://example.org/workload")
            update = self.first(authority)
            evidence = verify_svid(update.svids[0].svid.chain, update.bundles, datetime.now(UTC))
            self.assertEqual((evidence.algorithm.name, evidence.post_quantum), (algorithm, post_quantum))


class RefusalTests(AuthorityCase):
    """Callers that are refused, and how the refusal is reported."""

    def test_header(self) -> None:
        """A call without the security header, or with another value, is INVALID_ARGUMENT for every method."""
        stub = self.stub(self.running())
        calls: list[Callable[..., Any]] = [
            lambda **keys: next(stub.FetchX509SVID(workload_pb2.X509SVIDRequest(), timeout=60, **keys)),
            lambda **keys: next(stub.FetchX509Bundles(workload_pb2.X509BundlesRequest(), timeout=60, **keys)),
            lambda **keys: next(stub.FetchJWTBundles(workload_pb2.JWTBundlesRequest(), timeout=60, **keys)),
            lambda **keys: stub.FetchJWTSVID(workload_pb2.JWTSVIDRequest(audience=["a"]), timeout=60, **keys),
            lambda **keys: stub.ValidateJWTSVID(workload_pb2.ValidateJWTSVIDRequest(), timeout=60, **keys),
        ]
        wrong: list[dict[str, Any]] = [
            {},
            {"metadata": (("workload.spiffe.io", "false"),)},
            {"metadata": (("workload.spiffe.io", "True"),)},
            {"metadata": HEADER * 2},
        ]
        for call in calls:
            for keys in wrong:
                self.assertEqual(self.status(lambda: call(**keys)), grpc.StatusCode.INVALID_ARGUMENT)  # noqa: B023

    def test_unknown_caller(self) -> None:
        """A caller that no entry matches is denied every SVID and bundle, and the log has its attributes."""
        authority = self.running(entries=[entry("/a", uid=4711)])
        stub = self.stub(authority)
        calls: list[Callable[[], Any]] = [
            lambda: next(stub.FetchX509SVID(workload_pb2.X509SVIDRequest(), metadata=HEADER, timeout=60)),
            lambda: stub.FetchJWTSVID(workload_pb2.JWTSVIDRequest(audience=["a"]), metadata=HEADER, timeout=60),
            lambda: next(stub.FetchX509Bundles(workload_pb2.X509BundlesRequest(), metadata=HEADER, timeout=60)),
            lambda: next(stub.FetchJWTBundles(workload_pb2.JWTBundlesRequest(), metadata=HEADER, timeout=60)),
        ]
        for call in calls:
            error = self.assertRaises(grpc.RpcError, call)
            self.assertEqual(error.code(), grpc.StatusCode.PERMISSION_DENIED)
            self.assertEqual(error.details(), "no identity issued")
        record = self.until(lambda: authority.records("svc.authority.refused"))[0]
        self.assertEqual(record["attributes"]["uid"], os.geteuid())
        self.assertEqual(record["attributes"]["pid"], os.getpid())

    def test_open_bundles(self) -> None:
        """With openBundles callers without an entry get bundles and still no SVID."""
        authority = self.running(entries=[], settings={"openBundles": True})
        self.assertEqual(len(self.client(authority).fetch_x509_bundles().bundles), 1)
        self.assertRaises(PySpiffeError, self.client(authority).fetch_x509_svid)

    def test_executable(self) -> None:
        """An entry for this interpreter matches, one for another program does not; a digest is compared too."""
        program = os.path.realpath(sys.executable)
        digest = subprocess.run(["sha256sum", program], check=True, capture_output=True, text=True).stdout.split()[0]
        authority = self.running(
            entries=[
                entry("/other", executable="/bin/sh"),
                entry("/wrong-digest", executable=program, executableSha256="0" * 64),
                entry("/right", executable=sys.executable, executableSha256=digest),
            ]
        )
        names = [str(each.spiffe_id) for each in self.client(authority).fetch_x509_svids()]
        self.assertEqual(names, ["spiffe://example.org/right"])

    def test_other_user(self) -> None:
        """Another user that may connect gets its own identity and not ours."""
        if os.geteuid() != 0:
            raise SkipTest("needs root to become another user")
        authority = self.running(
            entries=[entry("/root"), entry("/nobody", uid=65534, gid=None)], settings={"socketMode": "0666"}
        )
        authority.folder.chmod(0o755)
        command = [sys.executable, "-c", FETCH_AS_OTHER, authority.address]
        found = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        self.assertEqual((found.stdout.strip(), found.stderr), ("spiffe://example.org/nobody", ""))

    def test_socket_mode(self) -> None:
        """By default the sockets belong to the own user alone."""
        authority = self.running()
        for path in (authority.socket_path, authority.pq_socket_path):
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)

    def test_socket_group(self) -> None:
        """Mode and group are set on both sockets."""
        if os.geteuid() != 0:
            raise SkipTest("needs root to give the socket away")
        authority = RunningAuthority()
        self.addCleanup(authority.stop)
        authority.config.update(socketMode="0660", socketGroup=4711)
        authority.config["pqIssuer"].update(socketMode="0660", socketGroup=4712)
        authority.start()
        for path, group in ((authority.socket_path, 4711), (authority.pq_socket_path, 4712)):
            status = path.stat()
            self.assertEqual((status.st_mode & 0o777, status.st_gid), (0o660, group))

    def test_many_connections(self) -> None:
        """One user cannot use up every connection; those beyond the limit are closed, the others go on."""
        authority = self.running()
        held: list[socket.socket] = []
        self.addCleanup(lambda: [each.close() for each in held])
        for _ in range(560):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(authority.socket_path))
            held.append(connection)
        self.until(lambda: _closed(held[-1]))
        self.assertFalse(_closed(held[0]))
        for each in held:
            each.close()
        self.until(lambda: _works(self.client(authority)))


def _closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while True:
            if not connection.recv(4096):
                return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def _works(client: WorkloadApiClient) -> bool:
    try:
        return client.fetch_x509_svid() is not None
    except PySpiffeError:
        return False


class ProcessTests(AuthorityCase):
    """Starting, stopping, crashing."""

    def test_bad_config(self) -> None:
        """Each defect is one line with key, value and what was expected; exit status 1; no other output."""
        authority = self.built(settings={"socketMode": "0644", "unknown": 1, "openBundles": 3})
        for arguments in ((), ("--check-config",)):
            ended = self.ended(authority, *arguments)
            self.assertEqual((ended.returncode, ended.stdout), (1, ""))
            lines = ended.stderr.splitlines()
            self.assertEqual(len(lines), 3, ended.stderr)
            self.assertTrue(all(line.startswith("svc: ") for line in lines))
            self.assertIn("socketMode: '0644': expected", ended.stderr)

    def test_program_alone(self) -> None:
        """An entry with a program and no user is refused by --check-config: entry, value and what to do."""
        digest = "0" * 64
        entries = [
            entry("/a"),
            entry("/b", uid=None, executable="/bin/sh"),
            entry("/c", uid=None, executableSha256=digest),
            entry("/d", uid=None, gid=os.getegid(), executable="/bin/sh"),
        ]
        ended = self.ended(self.built(entries=entries), "--check-config")
        self.assertEqual((ended.returncode, ended.stdout), (1, ""))
        first, second = ended.stderr.splitlines()
        self.assertIn("entries[1].executable: /bin/sh: expected uid or gid as well", first)
        self.assertIn("spiffe://example.org/b", first)
        self.assertIn(f"entries[2].executableSha256: {digest}: expected uid or gid as well", second)

    def test_rules_between_keys(self) -> None:
        """Contradicting keys are reported the same way."""
        ended = self.ended(self.built(settings={"socketMode": "0660", "pqIssuer": {}}))
        self.assertEqual((ended.returncode, len(ended.stderr.splitlines())), (1, 2))

    def test_check_config(self) -> None:
        """A good configuration is checked without anything being opened."""
        authority = self.built()
        ended = self.ended(authority, "--check-config", "--offline")
        message = f"{authority.config_path} is valid\n"
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, message, ""))
        self.assertFalse(authority.socket_path.exists())

    def test_missing_config(self) -> None:
        """A file that is not there is one line."""
        authority = self.built()
        authority.config_path = authority.folder / "other.yaml"
        command = authority.command()
        ended = subprocess.run(command, cwd=authority.folder, capture_output=True, text=True, check=False, timeout=180)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("other.yaml", ended.stderr)

    def test_wrong_reactor(self) -> None:
        """Under another reactor it exits with one line and a hint."""
        authority = self.built()
        authority.write_config()
        command = [*twistd(), "--reactor=epoll", *authority.arguments()]
        ended = subprocess.run(command, cwd=authority.folder, capture_output=True, text=True, check=False, timeout=180)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("svc: svc-authority needs the asyncio reactor, and EPollReactor is installed", ended.stderr)
        self.assertIn("--reactor=asyncio", ended.stderr)

    def test_explicit_reactor(self) -> None:
        """--reactor=asyncio is accepted."""
        authority = self.built()
        plain = authority.command

        def command() -> list[str]:
            return [plain()[0], "--reactor=asyncio", *plain()[1:]]

        authority.command = command  # type: ignore[assignment]
        authority.start()
        self.assertTrue(_works(self.client(authority)))

    def test_second_instance(self) -> None:
        """
        A socket in use is refused with a clear line; the first instance goes on, and its files stay what they were.
        """
        authority = self.running()
        paths = (authority.bundle_path, authority.pq_bundle_path, authority.archive_path)
        before = [path.read_bytes() for path in paths]
        # With the same port for its pages the second one would not come so far.
        authority.config["adminAddr"] = ""
        ended = self.ended(authority)
        self.assertEqual(ended.returncode, 1)
        self.assertEqual([path.read_bytes() for path in paths], before)
        sentence = f"the socket {authority.socket_path} is served by another process"
        self.assertIn(f"svc: {sentence}", ended.stderr)
        records = [json.loads(line) for line in ended.stdout.splitlines()]
        [logged] = [record for record in records if record["event"]["name"] == "svc.process.start_failed"]
        self.assertEqual(f"could not start: {sentence}", logged["message"])
        self.assertEqual("stop the other process, or give this one another socket", logged["detail"])
        self.assertNotIn("Traceback", ended.stderr)
        self.assertTrue(_works(self.client(authority)))

    def test_second_pq_socket(self) -> None:
        """When only the second socket is taken, the first one is not left behind."""
        authority = self.running()
        other = self.built(settings={"pqIssuer": {"socket": authority.pq_address}})
        ended = self.ended(other)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("is served by another process", ended.stderr)
        self.assertFalse(other.socket_path.exists())

    def test_open_folder(self) -> None:
        """A folder that others can write is refused."""
        authority = self.built(settings={"pqIssuer": None, "bundleFile": None})
        authority.folder.chmod(0o777)
        ended = self.ended(authority)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("writable by others", ended.stderr)

    def test_folder_below_an_open_one(self) -> None:
        """Absent folders are made with mode 0755, below one that all may write, as an emptyDir; a check makes none."""
        authority = self.built()
        authority.folder.chmod(0o2777)
        inner, public = authority.folder / "inner", authority.folder / "public"
        authority.socket_path, authority.pq_socket_path = inner / "agent.sock", inner / "pq.sock"
        authority.config |= {"socket": authority.address, "bundleFile": str(public / "bundle.json")}
        authority.config["pqIssuer"] = {"socket": authority.pq_address, "bundleFile": str(public / "pq-bundle.json")}
        checked = self.ended(authority, "--check-config")
        self.assertEqual((0, ""), (checked.returncode, checked.stderr))
        self.assertIn(f"ok  folder of post-quantum roots {public}", checked.stdout)
        self.assertFalse(inner.exists() or public.exists())
        self.addCleanup(os.umask, os.umask(0o077))
        authority.executed = True
        authority.start()
        self.assertTrue(_works(self.client(authority)))
        self.assertEqual([0o755, 0o755], [stat.S_IMODE(each.stat().st_mode) for each in (inner, public)])
        self.assertTrue(read_pq_bundles(public / "pq-bundle.json").entries)

    def test_no_folder_around_it(self) -> None:
        """Of several absent folders none is made; the start fails with the path, and so does the check."""
        authority = self.built()
        nowhere = authority.folder / "absent" / "inner"
        authority.config["bundleFile"] = str(nowhere / "bundle.json")
        ended = self.ended(authority)
        self.assertEqual(1, ended.returncode)
        self.assertIn(f"svc: the folder {nowhere} cannot be written: No such file or directory", ended.stderr)
        self.assertFalse(nowhere.parent.exists())
        checked = self.ended(authority, "--check-config")
        self.assertEqual(1, checked.returncode)
        self.assertIn(f"no  folder of SPIFFE bundle {nowhere}", checked.stdout)

    def test_crash(self) -> None:
        """After kill -9 the next instance replaces the stale socket and continues the sequence."""
        authority = self.running()
        before = self.first(authority).bundles
        authority.kill()
        self.assertTrue(authority.socket_path.exists())
        authority.start()
        after = self.first(authority).bundles
        self.assertNotEqual(before, after)
        self.assertEqual(read_pq_bundles(authority.pq_bundle_path).entries[TrustDomain("example.org")].sequence, 2)
        archived = BundleArchive.parse(authority.archive_path.read_bytes())
        windows = archived.spiffe.bundle_for(TrustDomain("example.org")).anchors
        self.assertEqual([each.last_seen is None for each in windows], [False, True])

    def test_stop(self) -> None:
        """SIGTERM ends it soon, also with open watches and idle connections, and removes the sockets."""
        authority = self.running()
        ended = threading.Event()
        watch = self.client(authority).stream_x509_contexts(
            lambda context: None, lambda error: ended.set(), retry_connect=False
        )
        self.addCleanup(watch.cancel)
        with socket.socket(socket.AF_UNIX) as idle:
            idle.connect(str(authority.pq_socket_path))
            self.until(lambda: authority.records("svc.authority.svid.issued"))
            began = time.monotonic()
            authority.halt()
            self.assertLess(time.monotonic() - began, 20)
        self.assertTrue(ended.wait(60))
        self.assertEqual(sorted(path.name for path in authority.folder.glob("*.sock")), [])
        self.assertNotIn("Traceback", authority.log)
        self.assertEqual([], authority.records("svc.runtime.failure"))

    def test_log(self) -> None:
        """All output is log records, and no record contains a key or a token."""
        authority = self.running()
        token = self.client(authority).fetch_jwt_svid({"us"}).token
        self.client(authority).fetch_x509_svid()
        authority.halt()
        lines = authority.log.splitlines()
        self.assertEqual(len(authority.records()), len(lines))
        self.assertTrue(authority.records("svc.authority.started"))
        self.assertNotIn(token, authority.log)
        self.assertNotIn("PRIVATE", authority.log)

    def test_daemon(self) -> None:
        """It also runs as a daemon: the event loop survives the fork."""
        authority = self.built()
        authority.write_config()
        pid_file = authority.folder / "pid"
        command = [*twistd(), f"--pidfile={pid_file}", f"--logfile={authority.log_path}", *authority.arguments()]
        subprocess.run(command, cwd=authority.folder, check=True, timeout=180)
        pid = int(self.until(lambda: pid_file.exists() and pid_file.read_text()))
        self.addCleanup(lambda: Path(f"/proc/{pid}").exists() and os.kill(pid, 9))
        self.until(lambda: _works(self.client(authority)))
        os.kill(pid, 15)
        self.until(lambda: not runs(pid))

    def test_entries_are_read_again(self) -> None:
        """A changed entry reaches open watches; a bad file keeps the old entries; an entry taken out ends the watch."""
        authority = self.running(entries=[entry("/a")])
        names: list[list[str]] = []
        errors: list[Exception] = []
        watch = self.client(authority).stream_x509_contexts(
            lambda context: names.append([each.spiffe_id.path for each in context.x509_svids]),
            errors.append,
            retry_connect=False,
        )
        self.addCleanup(watch.cancel)
        self.until(lambda: names == [["/a"]])
        authority.config["entries"].append({**authority.config["entries"][0], "spiffeID": "spiffe://example.org/b"})
        authority.write_config()
        self.until(lambda: names[-1] == ["/a", "/b"])
        authority.config_path.write_text("trustDomain: [")
        self.until(lambda: authority.records("svc.workload.update.rejected"))
        self.assertTrue(_works(self.client(authority)))
        authority.config["entries"].append(
            {"spiffeID": "spiffe://example.org/c", "executable": os.path.realpath(sys.executable)}
        )
        authority.write_config()
        refused = self.until(lambda: authority.records("svc.workload.update.rejected")[1:])[0]
        self.assertIn("entries[2].executable", refused["detail"])
        self.assertEqual([each.path for each in self.names(authority)], ["/a", "/b"])
        authority.config["entries"] = []
        authority.write_config()
        self.until(lambda: errors)
        self.assertIn("PERMISSION_DENIED", str(errors[0]))


class KeptKeysTests(AuthorityCase):
    """``dataDir``."""

    def kept(self, **keys: Any) -> RunningAuthority:
        """Make one with keys on disk."""
        authority = self.built(**keys)
        authority.config["dataDir"] = str(authority.folder / "keys")
        return authority

    def test_refused(self) -> None:
        """Damaged keys, and keys that others can read, end the start with one line, a hint, and nothing changed."""
        authority = self.kept().start()
        authority.kill()
        file = authority.folder / "keys" / "keys.json"
        whole, roots = file.read_bytes(), authority.archive_path.read_bytes()
        for damage, words in (
            (lambda: file.write_bytes(whole[:-9]), "it is malformed"),
            (lambda: (file.write_bytes(whole), file.chmod(0o640)), "the file has mode 0640, open to others"),
            (lambda: (file.chmod(0o600), file.parent.chmod(0o750)), "the folder has mode 0750, open to others"),
        ):
            damage()
            before = file.read_bytes()
            ended = self.ended(authority)
            self.assertEqual(1, ended.returncode)
            self.assertIn(f"svc: the keys in {file} are not used: {words}", ended.stderr)
            self.assertIn("restore the file", ended.stderr)
            self.assertNotIn("Traceback", ended.stdout + ended.stderr)
            self.assertEqual((before, roots), (file.read_bytes(), authority.archive_path.read_bytes()))
            self.assertFalse(authority.pq_socket_path.exists() and _works(self.client(authority)))
        file.parent.chmod(0o700)
        authority.start()
        self.until(lambda: authority.records("svc.authority.keys.loaded"))

    def test_second_authority(self) -> None:
        """Another authority with other sockets does not get the keys of one that runs."""
        authority = self.kept().start()
        other = self.built()
        other.config["dataDir"] = authority.config["dataDir"]
        ended = self.ended(other)
        self.assertEqual(1, ended.returncode)
        self.assertIn("are in use by another process", ended.stderr)
        self.assertFalse(other.archive_path.exists() or other.socket_path.exists())
        self.assertTrue(_works(self.client(authority)))

    def test_pq_issuer_alone(self) -> None:
        """Beside another Workload API the post-quantum roots are kept, and the bundle has no second one."""
        first = self.running(pq=False)
        settings = {"socket": None, "bundleFile": None, "entries": None, "workloadApi": first.address}
        issuer = self.kept(settings=settings, entries=[])
        issuer.start()
        before = first.pq_bundle_path.read_bytes()
        issuer.kill()
        issuer.start()
        self.assertEqual(before, first.pq_bundle_path.read_bytes())
        (loaded,) = self.until(lambda: issuer.records("svc.authority.keys.loaded"))
        self.assertEqual((0, 0, 1), tuple(loaded["attributes"][kind] for kind in ("x509", "jwt", "pq")))


class FederationTests(AuthorityCase):
    """Two authorities that watch each other's files."""

    def test_federation(self) -> None:
        """Workloads of each get the other's bundles, their SVIDs verify across, and a restart of one is followed."""
        one = RunningAuthority("one.example")
        two = RunningAuthority("two.example")
        for own, other in ((one, two), (two, one)):
            self.addCleanup(own.stop)
            own.config["federatesWith"] = [
                {
                    "trustDomain": other.trust_domain,
                    "bundleFile": str(other.bundle_path),
                    "pqBundleFile": str(other.pq_bundle_path),
                }
            ]
            own.start()
        domains = [TrustDomain("one.example"), TrustDomain("two.example")]
        self.until(lambda: list(self.first(one).bundles.trust_domains) == domains)
        self.assertEqual(list(self.first(two).bundles.trust_domains), domains)
        self.assertTrue(self._across(one, two) and self._across(two, one))
        self.until(lambda: sorted(read_pq_bundles(one.pq_bundle_path).entries) == domains)
        token = self.client(two).fetch_jwt_svid({"us"}).token
        self.until(lambda: self._valid(one, token))

        two.kill()
        two.start()
        self.until(lambda: self._across(one, two) and self._across(two, one))
        archived = BundleArchive.parse(one.archive_path.read_bytes()).spiffe.bundle_for(domains[1])
        self.assertEqual([each.last_seen is None for each in archived.anchors], [False, True])

    def test_refused_file(self) -> None:
        """A foreign bundle that others can write is not served and is logged; correcting the mode is enough."""
        other = self.running("two.example")
        copy = other.folder / "copy.json"
        copy.write_bytes(other.bundle_path.read_bytes())
        copy.chmod(0o666)
        one = self.running(
            "one.example", settings={"federatesWith": [{"trustDomain": "two.example", "bundleFile": str(copy)}]}
        )
        self.assertEqual(len(self.first(one).bundles), 1)
        record = self.until(lambda: one.records("svc.workload.update.rejected"))[0]
        self.assertIn("writable by others", record["detail"])
        copy.chmod(0o644)
        self.until(lambda: len(self.first(one).bundles) == 2)

    def _across(self, verifier: RunningAuthority, other: RunningAuthority) -> bool:
        svid: X509Svid = self.first(other).svids[0].svid
        try:
            verify_svid(svid.chain, self.first(verifier).bundles, datetime.now(UTC))
        except SvidInvalid:
            return False
        return True

    def _valid(self, verifier: RunningAuthority, token: str) -> bool:
        try:
            return self.client(verifier).validate_jwt_svid(token, "us") is not None
        except PySpiffeError:
            return False


class PagesTests(AuthorityCase):
    """The pages of ``adminAddr``."""

    def test_ready(self) -> None:
        """They answer once it serves; what becomes of a file of a federated trust domain is shown."""
        missing = {"trustDomain": "two.example", "bundleFile": "/no/such.json"}
        authority = self.running(settings={"federatesWith": [missing]})
        self.assertEqual((200, {"live": True}), authority.page("/livez"))
        self.until(lambda: authority.page("/readyz")[0] == 200)
        conditions = authority.readiness()
        failing = {name: each["reason"] for name, each in conditions.items() if not each["ok"]}
        self.assertEqual({"federation": "file_missing"}, failing)
        self.assertEqual({"roots", "files", "listeners", "federation"}, set(conditions))

    def test_status(self) -> None:
        """The document has roots, the identities that it issues to, what was issued and what was refused."""
        authority = self.running(entries=[entry("/a"), entry("/b", uid=4711)])
        call = self.stub(authority).FetchX509SVID(workload_pb2.X509SVIDRequest(), metadata=HEADER, timeout=60)
        self.addCleanup(call.cancel)
        next(call)
        request = workload_pb2.JWTSVIDRequest(audience=["us"], spiffe_id="spiffe://example.org/b")
        self.status(lambda: self.stub(authority).FetchJWTSVID(request, metadata=HEADER, timeout=60))
        code, document = self.until(lambda: self.held(authority, 1))
        self.assertEqual((200, "svc.status/1", "authority"), (code, document["schema"], document["process"]))
        self.assertEqual(
            [("spiffe://example.org/b", 0)], [(each["spiffeID"], each["svids"]) for each in document["entries"][1:]]
        )
        self.assertEqual(["x509", "jwt", "pq"], [each["kind"] for each in document["roots"]])
        self.assertEqual({"x509": 1, "jwt": 0, "pqLeaves": 0}, document["issued"])
        [refused] = document["lastErrors"]
        self.assertEqual(("svc.authority.refused", "permission_denied"), (refused["event"], refused["reason"]))
        call.cancel()
        self.until(lambda: self.held(authority, 0))

    def held(self, authority: RunningAuthority, count: int) -> tuple[int, dict[str, Any]] | None:
        """The status page, once streams hold this many SVIDs of the first identity."""
        page = authority.page("/status")
        return page if page[1]["entries"][0]["svids"] == count else None

    def test_taken(self) -> None:
        """With a port that is taken it does not start, and says which key to change; no socket is left."""
        taken = self.running().config["adminAddr"]
        other = self.built(settings={"adminAddr": taken})
        ran = self.ended(other)
        self.assertEqual(1, ran.returncode)
        self.assertIn(f"svc: adminAddr cannot be opened at {taken}: Address already in use", ran.stderr)
        self.assertIn("choose another one in adminAddr", ran.stderr)
        self.assertFalse(other.socket_path.exists())

    def test_disabled(self) -> None:
        """Without ``adminAddr`` it serves as before, and opens no port."""
        authority = self.running(settings={"adminAddr": ""})
        self.assertTrue(self.until(lambda: authority.records("svc.authority.started")))
        self.assertEqual(0, authority.page("/livez")[0])


class PqOnlyStartTests(AuthorityCase):
    """The start of the PQ issuer beside another implementation of the Workload API."""

    def test_waits_for_spire(self) -> None:
        """While the other implementation is not there, the issuer serves nothing and keeps waiting."""
        folder = RunningAuthority("example.org")
        self.addCleanup(folder.stop)
        folder.config = {
            "trustDomain": "example.org",
            "adminAddr": f"127.0.0.1:{folder.admin_port}",
            "workloadApi": f"unix://{folder.folder}/spire.sock",
            "pqIssuer": {"socket": folder.pq_address},
        }
        folder.start()
        self.assertTrue(folder.pq_bundle_path.exists())
        [started] = self.until(lambda: folder.records("svc.authority.started"))
        self.assertTrue(started["attributes"]["pq_only"])
        self.until(lambda: folder.readiness()["credentials"].get("reason") == "credentials_missing")
        self.assertEqual(503, folder.page("/readyz")[0])
        document = folder.page("/status")[1]
        self.assertEqual(([], ["pq"]), (document["identities"], [each["kind"] for each in document["roots"]]))

    def test_without_pq_issuer(self) -> None:
        """workloadApi without pqIssuer is a configuration error."""
        authority = RunningAuthority("example.org")
        self.addCleanup(authority.stop)
        authority.config = {"trustDomain": "example.org", "adminAddr": "0", "workloadApi": authority.address}
        self.assertRaises(DaemonFailed, authority.start)
