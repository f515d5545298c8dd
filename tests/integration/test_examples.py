"""
The programs of docs/examples, unchanged: real processes with identities of a real authority.

What they are made of is tested in ``tests.embedding``.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.identity import BundleArchive
from svc.notary.evidence import EvidenceFile
from tests.embedding.network import AUTHORITY, NOW, PQ_AUTHORITY, generation
from tests.peers.authority import RunningAuthority, entry
from tests.peers.daemon import environment
from tests.peers.folders import short_folder
from tests.peers.programs import svc
from tests.peers.waiting import TOP, Shared, answers, end_process, eventually, free_port

EXAMPLES = TOP / "docs" / "examples"
OWN = "spiffe://prod.example.org/ns/demo/sa/greeter"
ANYBODY = "spiffe://prod.example.org/*"


class Programs:
    """An authority, and the two servers of the documentation."""

    def __init__(self, stack: ExitStack) -> None:
        self.folder = short_folder(stack)
        self.authority = stack.enter_context(
            RunningAuthority("prod.example.org", entries=[entry("/ns/demo/sa/greeter")], folder=self.folder)
        )
        self._stack = stack
        self.greeter = f"127.0.0.1:{free_port()}"
        self.site = f"127.0.0.1:{free_port()}"
        self.web = f"127.0.0.1:{free_port()}"
        self.klein = f"127.0.0.1:{free_port()}"
        self.database = self.folder / "notary" / "notary.db"
        agent, pq = self.authority.address, self.authority.pq_address
        interface, port = self.web.split(":")
        string = f"spiffe:{port}:interface={interface}:agent={self.authority.socket_path}:allow=prod.example.org/*"
        self.notarized = self.serve("notarized.py", agent, pq, self.site, self.database)
        self.serve("klein_app.py", agent, pq, self.klein, self.folder / "notes" / "notary.db")
        self.serve("greeter.py", agent, self.greeter, ANYBODY)
        self.serve("-m", "twisted", "web", "--listen", string, "--path", EXAMPLES)
        for address in (self.greeter, self.site, self.web, self.klein):
            eventually(partial(answers, int(address.split(":")[1])), 60, address)

    def serve(self, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a server that runs as long as the authority."""
        process = self.start(*command)
        self._stack.callback(end_process, process)
        return process

    def start(self, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a server; who does ends it."""
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=EXAMPLES,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment(),
    )


PROGRAMS = Shared(Programs)
#: A client that says somebody else calls; ``svc curl`` refuses to.
FORGER = """
import sys
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import react
from svc.embedding import Workload

class Forger(Protocol):
    def __init__(self):
        self.answer, self.ended = b"", Deferred()
    def connectionMade(self):
        name = b"URI=spiffe://prod.example.org/ns/admin/sa/root"
        lines = [b"X-Forwarded-Client-Cert: By=x;Hash=x;" + name, b"X_Forwarded_Client_Cert: By=x;Hash=x;" + name]
        self.transport.write(b"\\r\\n".join([b"GET / HTTP/1.1", b"Host: a", b"Connection: close", *lines, b"", b""]))
    def dataReceived(self, data):
        self.answer += data
    def connectionLost(self, reason):
        self.ended.callback(None)

async def main(reactor, agent, address, server):
    workload = await Workload.open(agent, reactor=reactor)
    forger = await workload.client_endpoint(address, expect=server).connect(Factory.forProtocol(Forger))
    await forger.ended
    print(forger.answer.decode().replace(chr(13), ""), end="")

react(main, sys.argv[1:])
"""
#: The same site for somebody else.
CHOOSY = (
    (EXAMPLES / "notarized.py")
    .read_text()
    .replace('"spiffe://prod.example.org/*"', '"spiffe://prod.example.org/ns/demo/sa/x"')
)


def example(name: str) -> ModuleType:
    """Import a program without running it."""
    spec = importlib.util.spec_from_file_location(f"docs_example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PageTests(SynchronousTestCase):
    """What the page shows."""

    def test_each_program_stands_in_the_page(self) -> None:
        """docs/embedding.md and docs/broker.md show every program as it is, and no other."""
        page = "".join((TOP / "docs" / f"{name}.md").read_text() for name in ("embedding", "broker"))
        shown = set(re.findall(r"^```python\n(\"\"\"\n.*?)^```", page, flags=re.MULTILINE | re.DOTALL))
        self.assertEqual(shown, {path.read_text() for path in EXAMPLES.glob("*.py")})

    def test_each_program_is_short(self) -> None:
        """About thirty lines of code: more would show that the library lacks something."""
        for path in sorted(EXAMPLES.glob("*.py")):
            text = path.read_text()
            start = ast.parse(text).body[0].end_lineno or 0
            lines = [line for line in text.splitlines()[start:] if line.strip()]
            self.assertLessEqual(len(lines), 32, path.name)

    def test_each_program_imports_without_side_effects(self) -> None:
        """Importing a program runs nothing, and each has a docstring that says how to call it."""
        names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
        self.assertEqual(
            names,
            [
                *("brokered", "evidence", "greeter", "guest", "klein_app", "notarized", "statement", "treq_client"),
                "uplink",
            ],
        )
        for name in names:
            module = example(name)
            self.assertIn(f"python docs/examples/{name}.py", module.__doc__ or "")
            self.assertTrue(callable(module.main))


class OwnProtocolTests(SynchronousTestCase):
    """A protocol of one's own."""

    def setUp(self) -> None:
        """Let them run."""
        self.programs: Programs = PROGRAMS.get()
        self.agent, self.pq = self.programs.authority.address, self.programs.authority.pq_address

    def test_the_statement_of_a_guest_is_verified(self) -> None:
        """The guest's statement is fetched over the connection and verified, with its post-quantum signature."""
        found = run("guest.py", self.agent, self.pq, self.programs.greeter, OWN)
        self.assertEqual((found.returncode, found.stdout), (0, f"welcome, {OWN}, post-quantum: True\n"), found.stderr)

    def test_another_greeter_is_refused(self) -> None:
        """A server with another identity than the expected one sees no statement."""
        found = run("guest.py", self.agent, self.pq, self.programs.greeter, f"{OWN}-2")
        self.assertEqual((found.returncode, found.stdout), (1, ""))
        self.assertIn(f"is {OWN}; expected {OWN}-2 (identity_unexpected)", found.stderr)

    def test_an_endpoint_string_serves_any_program(self) -> None:
        """twistd's own web server listens as a workload by its endpoint string alone."""
        found = svc(
            "curl", "--spiffe-socket-path", self.agent, "--validate=false", f"https://{self.programs.web}/guest.py"
        )
        self.assertEqual(found.stdout, (EXAMPLES / "guest.py").read_bytes(), found.stderr)


class NotarizedTests(SynchronousTestCase):
    """A site behind the notary, in one process."""

    def setUp(self) -> None:
        """Let it run."""
        self.programs: Programs = PROGRAMS.get()
        self.agent = self.programs.authority.address
        self.url = f"https://{self.programs.site}/"

    def curl(self, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
        """Ask as people do."""
        return svc("curl", "--spiffe-socket-path", self.agent, "--expect-id", OWN, *arguments)

    def test_a_client_program_verifies_it(self) -> None:
        """The client example verifies the statement of the site."""
        found = run("statement.py", self.agent, self.url, ANYBODY)
        self.assertRegex(
            found.stdout, rf"\A200, 52 octets from {OWN}\nstatement [\w-]{{43}}, post-quantum: True\n\Z", found.stderr
        )

    def test_statement_and_receipt_verify(self) -> None:
        """``svc curl`` verifies both before it shows the page, and the evidence holds offline."""
        evidence = self.programs.folder / "evidence.json"
        found = self.curl("-n", "signRequest", "-o", "json", "--save-evidence", evidence, self.url)
        self.assertEqual(found.returncode, 0, found.stderr)
        document = json.loads(found.stdout)
        self.assertEqual((document["verification"]["ok"], document["verification"]["postQuantum"]), (True, True))
        verified = run("evidence.py", evidence, self.programs.authority.archive_path)
        self.assertIn(f"consistent, time asserted: {OWN}, receipt ", verified.stdout, verified.stderr)
        self.assertIn(", complete\n", verified.stdout)

    def test_the_reserved_path_is_the_notarys(self) -> None:
        """The site never sees it, though its resource answers every path."""
        found = self.curl("--validate=false", f"{self.url}.well-known/svc-notary")
        self.assertEqual(json.loads(found.stdout)["issuer"], OWN)

    def test_a_forged_caller_is_refused(self) -> None:
        """What a client writes into the field that names callers never reaches the site."""
        asked = subprocess.run(
            [sys.executable, "-c", FORGER, self.agent, self.programs.site, ANYBODY],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
            env=environment(),
        )
        self.assertTrue(asked.stdout.startswith("HTTP/1.1 200 OK"), asked.stdout)
        self.assertTrue(asked.stdout.endswith(f"\n\nhello, {OWN}\n"), asked.stdout)

    def test_who_is_not_allowed_is_refused(self) -> None:
        """A verified caller that ``allow`` does not name gets 403 from the notary, and the site gets no request."""
        address = f"127.0.0.1:{free_port()}"
        issuer, database = self.programs.authority.pq_address, self.programs.folder / "choosy.db"
        choosy = self.programs.start("-c", CHOOSY, self.agent, issuer, address, database)
        self.addCleanup(end_process, choosy)
        eventually(partial(answers, int(address.split(":")[1])), 60, address)
        found = self.curl("--validate=false", "-i", f"https://{address}/")
        self.assertIn(b"403 Forbidden", found.stdout, found.stderr)
        self.assertIn(b'"code":"policy_deny"', found.stdout)

    def test_it_ends_in_order(self) -> None:
        """
        SIGTERM ends the program with status 0, its database closed; a port that is taken is reported with its reason.
        """
        second = run("notarized.py", self.agent, self.programs.authority.pq_address, self.programs.site, "other.db")
        self.assertEqual(second.returncode, 1)
        self.assertIn("(listen_failed)", second.stderr)
        again = PROGRAMS.get()
        self.assertEqual(end_process(again.notarized), 0)
        self.assertFalse(Path(f"{again.database}-wal").exists())
        Shared.end()


class KleinTests(SynchronousTestCase):
    """treq as a client, Klein as an application."""

    def setUp(self) -> None:
        """Let them run."""
        self.programs: Programs = PROGRAMS.get()
        self.agent = self.programs.authority.address
        self.path = self.programs.folder / "treq.json"

    def test_a_receipt_for_each_side(self) -> None:
        """treq returns a body whose receipt verifies, and ``svc verify`` reads the evidence that it kept."""
        url = f"https://{self.programs.klein}/notes/today"
        found = run("treq_client.py", self.agent, url, ANYBODY, self.path)
        self.addCleanup(self.path.unlink, missing_ok=True)
        self.assertRegex(
            found.stdout,
            rf"\A200 {OWN} wrote 8 octets to today\nreceipt [\w-]{{43}} of {OWN}, post-quantum: True\n\Z",
            found.stderr,
        )
        verified = svc("verify", "--spiffe-socket-path", self.agent, self.path)
        self.assertEqual(verified.returncode, 0, verified.stderr)
        again = run("treq_client.py", self.agent, url, ANYBODY, self.path)
        self.assertIn(f"{self.path} exists already and is not overwritten (file_exists)", again.stderr)

    def test_another_server(self) -> None:
        """A server with another identity than the expected one gets no request."""
        url = f"https://{self.programs.klein}/notes/today"
        found = run("treq_client.py", self.agent, url, f"{OWN}-2", self.path)
        self.assertEqual((found.returncode, found.stdout), (1, ""))
        self.assertIn(f"is {OWN}; expected {OWN}-2 (identity_unexpected)", found.stderr)


class EvidenceTests(SynchronousTestCase):
    """Verifying evidence offline."""

    def archive(self) -> bytes:
        """What the authority keeps beside its socket."""
        empty = BundleArchive()
        return empty.observe(AUTHORITY.bundles(), NOW, pq=PQ_AUTHORITY.bundles()).serialize()

    def test_evidence_holds_years_later(self) -> None:
        """After all certificates ended the evidence is still consistent, and its time is only asserted."""
        data = EvidenceFile(generation().statement.envelope).serialize()
        found = example("evidence").verify(data, self.archive(), NOW + timedelta(days=1000))
        self.assertTrue(found.ok)
        self.assertTrue(found.time_asserted)

    def test_changed_evidence_is_refused(self) -> None:
        """One changed character of a signature is found."""
        document = json.loads(EvidenceFile(generation().statement.envelope).serialize())
        signature = document["statement"]["signatures"][0]["signature"]
        document["statement"]["signatures"][0]["signature"] = ("B" if signature[0] != "B" else "C") + signature[1:]
        with self.assertRaises(SvcError) as refused:
            example("evidence").verify(json.dumps(document).encode(), self.archive(), NOW)
        self.assertEqual(refused.exception.reason, "signature_invalid")
