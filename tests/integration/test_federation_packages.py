"""Two authorities that federate by bootstrap packages: one file and one fingerprint, as docs/federation.md shows it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.identity import TrustDomain
from svc.workload.pqfile import read_pq_bundles
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.programs import svc
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import TOP, eventually

PAGE: Final = TOP / "docs" / "federation.md"
SOCKET: Final = "unix:///run/svc/federation.sock"
#: What is another one in each run.
VARYING: Final = (
    (r'"?svcfed1:([a-z.]+):[a-z2-7]{52}~[a-z2-7]{6}"?', r"REFERENCE \1"),
    (r'"?(?:[a-z2-7]{4}-){12}[a-z2-7]{4}"?', "BASE32"),
    (r"SHA256:[A-Za-z0-9+/]{43}", "SHA256"),
    (r"(?:[0-9]{5} ){11}[0-9]{5}", "DIGITS"),
    (r"20[0-9]{2}-[0-9T:-]+Z", "TIME"),
    (r'"/.*/([ab]\.json)"', r"\1"),
)
AS_NOBODY: Final = """
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    connection.connect(sys.argv[1])
    connection.sendall(b"GET /v1/federation HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    print(connection.recv(12).decode())
except OSError as error:
    print(type(error).__name__)
"""


class Machine:
    """An authority with federation, and the words of its administrator."""

    def __init__(self, stack: ExitStack, name: str) -> None:
        self.folder = short_folder(stack)
        self.trust_domain = f"{name}.example"
        self.socket = self.folder / "federation.sock"
        self.peers = self.folder / "keys" / "peers"
        settings = {
            "dataDir": str(self.folder / "keys"),
            "keys": {"caTtl": "180d"},
            "federation": {"socket": f"unix://{self.socket}"},
        }
        self.authority = RunningAuthority(
            self.trust_domain, entries=[entry("/workload")], settings=settings, folder=self.folder
        )
        stack.enter_context(self.authority)

    def federation(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[bytes]:
        """Run a command of svc federation with this authority."""
        ran = svc("federation", *words, "--authority", f"unix://{self.socket}")
        assert ran.returncode == status, (words, ran.stdout, ran.stderr)
        return ran

    def export(self) -> Path:
        """Write its package."""
        path = self.folder / "package.json"
        self.federation("export", "bootstrap-package", "-f", str(path))
        return path

    def imports(self, path: Path, *words: str, status: int = 0) -> str:
        """Import a package; returns the result, or what is on standard error."""
        ran = self.federation("import", "bootstrap-package", "-f", str(path), *words, status=status)
        found = re.search(r"^result: (\w+)$", ran.stdout.decode(), re.MULTILINE)
        return found[1] if found else ran.stderr.decode()

    def info(self) -> dict[str, Any]:
        """Its state."""
        document: dict[str, Any] = json.loads(self.federation("info", "-o", "json").stdout)
        return document


class Case(SynchronousTestCase):
    """Two machines."""

    def setUp(self) -> None:
        """Start both authorities."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.stack = stack
        self.a, self.b = Machine(stack, "a"), Machine(stack, "b")


class TwoMachinesTests(Case):
    """From two authorities that do not know each other to verified requests both ways."""

    def test_page(self) -> None:
        """The commands of the page print what it shows; traffic is verified both ways, also after a kill."""
        folder = short_folder(self.stack)
        port = webapp.start(self.stack)
        allowed = [f"spiffe://{each.trust_domain}/workload" for each in self.both]
        policy = {"policy": {"default": "deny", "allow": allowed}}
        proxies = [
            self.stack.enter_context(RunningProxy(each.authority, f"127.0.0.1:{port}", settings=policy))
            for each in self.both
        ]
        self.assertEqual([1, 1], [self._requests(*each) for each in self._ways(proxies)])
        heard: dict[str, str] = {}
        recorded = _commands(PAGE.read_text())
        self.assertEqual("abbab", "".join(name for name, _command, _expected in recorded))
        for name, command, expected in recorded:
            machine = {"a": self.a, "b": self.b}[name]
            words = shlex.split(command)[1:]
            if "--expect-fingerprint" in words:
                words[-1] = heard["a" if name == "b" else "b"]
            places = {SOCKET: f"unix://{machine.socket}"} | {each: str(folder / each) for each in ("a.json", "b.json")}
            ran = svc(*(places.get(word, word) for word in words))
            self.assertEqual((0, b""), (ran.returncode, ran.stderr), command)
            self.assertEqual(_shown(expected), _shown(ran.stdout.decode()), command)
            if "export" in words:
                heard[name] = re.findall(r'digits: "(.*)"', ran.stdout.decode())[0]
        eventually(lambda: [self._requests(*each) for each in self._ways(proxies)] == [0, 0])
        for machine in self.both:
            (record,) = machine.authority.records("svc.authority.peer.pinned")
            self.assertEqual("audit", record["event"]["category"])
            self.assertEqual("", record["attributes"]["previous_fingerprint"])
            machine.authority.kill()
            machine.authority.start()
        eventually(lambda: [self._requests(*each) for each in self._ways(proxies)] == [0, 0])

    @property
    def both(self) -> tuple[Machine, Machine]:
        """Both machines."""
        return self.a, self.b

    def _ways(self, proxies: list[RunningProxy]) -> list[tuple[Machine, Machine, RunningProxy]]:
        return [(self.b, self.a, proxies[0]), (self.a, self.b, proxies[1])]

    def _requests(self, client: Machine, server: Machine, proxy: RunningProxy) -> int:
        """The status of one request whose statement and receipt are verified by what the client's authority gave."""
        expected = f"spiffe://{server.trust_domain}/workload"
        ran = svc(
            "curl", "--expect-id", expected, "-n", "signRequest", proxy.url + "/bytes/10",
            "--spiffe-socket-path", client.authority.address,
        )  # fmt: skip
        return ran.returncode


class ImportTests(Case):
    """What is pinned, renewed and refused by running authorities."""

    def test_relationship(self) -> None:
        """Renewal, rollback, other roots and a rebootstrap, with both fingerprints in the log."""
        first = self.a.export()
        old = first.with_name("old.json")
        old.write_bytes(first.read_bytes())
        wrong = self.b.info()["reference"]
        self.assertIn("(wrong_trust_domain)", self.b.imports(first, "--expect-fingerprint", wrong, status=1))
        self.assertIn("(own_trust_domain)", self.a.imports(first, status=1))
        self.assertEqual([], self.b.info()["peers"])
        self.assertEqual("pinned", self.b.imports(first, "--m2m-endpoint", "https://a.example:8443"))
        self.assertEqual("unchanged", self.b.imports(first))
        eventually(lambda: self.a.export().read_bytes() != old.read_bytes() and _issued(first) > _issued(old))
        self.assertEqual("renewed", self.b.imports(first))
        self.assertIn("(package_rolled_back)", self.b.imports(old, status=1))
        (peer,) = self.b.info()["peers"]
        self.assertEqual("a.example:8443", peer["m2mEndpoint"])

        before = self.a.info()["fingerprint"]["base32"]
        self.a.authority.stop()
        (self.a.folder / "keys" / "federation.json").unlink()
        self.a.authority.start()
        after = self.a.info()["fingerprint"]["base32"]
        self.assertNotEqual(before, after)
        again = self.a.export()
        self.assertIn("(already_federated)", self.b.imports(again, status=1))
        self.assertIn("(continuity_working)", self.b.imports(again, "--rebootstrap", status=1))
        self.assertEqual(before, self.b.info()["peers"][0]["fingerprint"])
        self.assertEqual("rebootstrapped", self.b.imports(again, "--force-rebootstrap", "--expect-fingerprint", after))
        attributes = [each["attributes"] for each in self.b.authority.records("svc.authority.peer.pinned")]
        changes = [(each["previous_fingerprint"], each["fingerprint"], each["result"]) for each in attributes]
        begun = [
            each["attributes"]["fingerprint"] for each in self.a.authority.records("svc.authority.federation.begun")
        ]
        self.assertEqual([before, after], begun)
        expected = [("", before, "pinned"), (before, before, "renewed"), (before, after, "rebootstrapped")]
        self.assertEqual(expected, changes)

    def test_disk(self) -> None:
        """A package that cannot be stored is not in force; a partial file of a crash is removed at the next start."""
        package = self.a.export()
        self.peers_blocked(self.b)
        self.assertIn("(peer_not_stored)", self.b.imports(package, status=1))
        names = [TrustDomain("b.example")]
        self.assertEqual(names, sorted(read_pq_bundles(self.b.authority.pq_bundle_path).entries))
        self.b.peers.unlink()
        self.assertEqual("pinned", self.b.imports(package))
        both = [TrustDomain("a.example"), *names]
        self.assertEqual(both, sorted(read_pq_bundles(self.b.authority.pq_bundle_path).entries))
        partial = self.b.peers / ".a.example.json.x1"
        partial.write_text("{")
        self.b.authority.kill()
        self.b.authority.start()
        self.assertEqual(["a.example"], [each["trustDomain"] for each in self.b.info()["peers"]])
        self.assertFalse(partial.exists())
        self.b.authority.stop()
        (self.b.peers / "a.example.json").unlink()
        self.b.authority.start()
        self.assertEqual([], self.b.info()["peers"])
        self.assertEqual(names, sorted(read_pq_bundles(self.b.authority.pq_bundle_path).entries))

    def peers_blocked(self, machine: Machine) -> None:
        """Put a file where the folder of peers has to be made: so root cannot write there, either."""
        machine.peers.write_text("")


class SocketTests(Case):
    """Who may use the socket, and what it answers."""

    def test_another_user(self) -> None:
        """Its mode keeps others out; one that gets through all the same is refused by the kernel's word on it."""
        if os.geteuid() != 0:
            raise SkipTest("needs root to become another user")
        self.assertEqual(0o600, stat.S_IMODE(self.a.socket.stat().st_mode))
        self.a.folder.chmod(0o755)
        self.assertEqual("PermissionError", self.as_nobody())
        self.a.socket.chmod(0o666)
        self.assertEqual("HTTP/1.1 403", self.as_nobody())
        (record,) = eventually(lambda: self.a.authority.records("svc.authority.refused"))
        self.assertEqual(("caller_refused", 65534), (record["detail_reason"], record["attributes"]["uid"]))

    def test_requests(self) -> None:
        """Other paths and methods, a body beyond the limit, and a package in pieces; adminAddr has none of it."""
        package = self.a.export().read_bytes()
        self.assertEqual(404, self.ask("GET", "/v1/other"))
        self.assertEqual(405, self.ask("GET", "/v1/import"))
        self.assertEqual(413, self.ask("POST", "/v1/import", b" " * (256 * 1024 + 2)))
        self.assertEqual(413, self.ask("POST", "/v1/import", b" " * (256 * 1024 + 1)))
        self.assertEqual(200, self.ask("POST", "/v1/import", [package[:1], package[1:-1], package[-1:]]))
        for path in ("/v1/federation", "/v1/bootstrap-package"):
            connection = http.client.HTTPConnection("127.0.0.1", self.b.authority.admin_port, timeout=60)
            connection.request("GET", path)
            self.assertEqual(404, connection.getresponse().status)
            connection.close()

    def as_nobody(self) -> str:
        """What another user gets."""
        command = [sys.executable, "-c", AS_NOBODY, str(self.a.socket)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    def ask(self, method: str, path: str, body: Any = None) -> int:
        """The status of a request to the second machine."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.b.socket))
        headers = {"content-length": str(sum(map(len, body)))} if isinstance(body, list) else {}
        connection.request(method, path, body, headers)
        status = connection.getresponse().status
        connection.close()
        return status


def _commands(page: str) -> list[tuple[str, str, str]]:
    """The machine, the command and the output of each run on the page."""
    found: list[tuple[str, str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^(?=[ab]\$ )", block, flags=re.MULTILINE):
            if part.startswith(("a$ ", "b$ ")):
                command, _end, expected = part.partition("\n")
                found.append((command[0], command[3:], expected))
    return found


def _shown(text: str) -> str:
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    return text


def _issued(path: Path) -> str:
    ran = svc("federation", "inspect", "bootstrap-package", "-f", str(path))
    return re.findall(r'issuedAt: "(.*)"', ran.stdout.decode())[0]
