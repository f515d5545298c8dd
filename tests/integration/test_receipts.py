"""``svc receipts`` against a real proxy: its database while it runs and afterwards, and its notary over mutual TLS."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.programs import other_python, run, svc
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared

WORKLOAD = "spiffe://example.org/ns/shop/sa/api"
CLIENT = "spiffe://example.org/ns/shop/sa/web"
#: Who sent a request, at which level, and its path; the newest last.
REQUESTS = (
    ("client", "signRequest", "/bytes/10"),
    ("client", "logRequest", "/bytes/11"),
    ("client", "signRequest", "/status/503"),
    ("auditor", "signRequest", "/bytes/12"),
)


class _Scene:
    """A proxy with records of two clients; four identities, each with an interpreter of its own but the client's."""

    def __init__(self, stack: ExitStack) -> None:
        self.folder = short_folder(stack)
        pythons = {name: other_python(self.folder / name) for name in ("workload", "auditor", "stranger")}
        self.pythons: dict[str, Path] = pythons
        self.authority = stack.enter_context(
            RunningAuthority(
                entries=[
                    entry("/ns/shop/sa/api", executable=str(pythons["workload"])),
                    entry("/ns/audit/sa/reader", executable=str(pythons["auditor"])),
                    entry("/ns/shop/sa/stranger", executable=str(pythons["stranger"])),
                    entry("/ns/shop/sa/web"),
                ]
            )
        )
        self.proxy = RunningProxy(
            self.authority,
            f"127.0.0.1:{webapp.start(stack)}",
            notary={"readers": ["spiffe://example.org/ns/audit/*"]},
            python=pythons["workload"],
        )
        stack.enter_context(self.proxy)
        self.database = str(self.proxy.folder / "notary.db")
        for who, level, path in REQUESTS:
            ran = self.svc(who, "curl", "--expect-id", WORKLOAD, "-n", level, self.proxy.url + path)
            assert ran.returncode == 0, ran.stderr

    def svc(self, who: str, *words: str) -> CompletedProcess[bytes]:
        """Run the command line as one of the identities."""
        given = [*words, "--spiffe-socket-path", self.authority.address]
        if who == "client":
            return svc(*given)
        return run([self.pythons[who], "-m", "svc.cli.main", *given])


SHARED = Shared(_Scene)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.scene: _Scene = SHARED.get()

    def receipts(self, who: str, verb: str, *words: str, status: int = 0) -> CompletedProcess[bytes]:
        """Run a command; it must end with the status."""
        ran = self.scene.svc(who, "receipts", verb, *words)
        self.assertEqual(status, ran.returncode, ran.stderr.decode())
        return ran

    def listed(self, who: str, *words: str) -> list[dict[str, Any]]:
        """The objects of a list."""
        return [json.loads(line) for line in self.receipts(who, "list", "-o", "json", *words).stdout.splitlines()]

    def paths(self, who: str, *words: str) -> list[str]:
        """The paths of a list."""
        return [each["path"] for each in self.listed(who, *words)]

    def verified(self, folder: Path) -> int:
        """Verify every file of a folder; returns their number."""
        files = sorted(folder.iterdir())
        for each in files:
            ran = svc("verify", "--trust-bundle", self.scene.authority.archive_path, "--expect-id", WORKLOAD, each)
            self.assertEqual(0, ran.returncode, ran.stderr.decode())
            self.assertIn(b"receipt ", ran.stdout)
        return len(files)


class DatabaseTests(_Case):
    """With the database of the machine, beside the running proxy."""

    def test_everything(self) -> None:
        """List, show, export and verify; the proxy goes on, and nothing was added to its folder."""
        source = ("--notary", self.scene.database)
        before = sorted(each.name for each in self.scene.proxy.folder.iterdir())
        self.assertEqual([path for _who, _level, path in reversed(REQUESTS)], self.paths("client", *source))
        self.assertEqual(["/status/503"], self.paths("client", *source, "--status", "5xx", "--since", "1h"))
        configured = ("--config", str(self.scene.proxy.folder / "proxy.yaml"))
        self.assertEqual(["/bytes/11"], self.paths("client", *configured, "--path", "*1"))
        newest, unsigned = self.listed("client", *source, "--limit", "1")[0], self.listed("client", *source)[2]
        roots = ("--trust-bundle", str(self.scene.authority.archive_path))
        shown = self.receipts("client", "show", *source, *roots, newest["id"][:12]).stdout.decode()
        self.assertIn("  Signatures: ES256 valid, ML-DSA-65 valid\n", shown)
        shown = self.receipts("client", "show", *source, unsigned["nonce"]).stdout.decode()
        self.assertIn("  Signatures: none (level logRequest)\n", shown)
        # Without files the roots come from the Workload API.
        self.receipts("client", "show", *source, newest["nonce"])
        ran = svc("receipts", "show", *configured, newest["nonce"])
        self.assertEqual(0, ran.returncode, ran.stderr.decode())
        output = self.scene.folder / "local"
        ran = self.receipts("client", "export", *source, "--client", CLIENT, "--output", str(output))
        self.assertEqual(f"exported 2 receipts to {output}\n", ran.stdout.decode())
        self.assertEqual(2, self.verified(output))
        self.assertEqual(before, sorted(each.name for each in self.scene.proxy.folder.iterdir()))
        ran = self.scene.svc("client", "curl", "-n", "signRequest", "--expect-id", WORKLOAD, self.scene.proxy.url + "/")
        self.assertEqual(0, ran.returncode, ran.stderr)


class NotaryTests(_Case):
    """Over mutual TLS: each identity sees what it may read."""

    def source(self) -> tuple[str, ...]:
        """The proxy, pinned."""
        return ("--from", self.scene.proxy.url, "--expect-id", WORKLOAD)

    def test_client(self) -> None:
        """A client sees its own signed receipts, can show and export them, and needs no nonce to find them."""
        limits = ("--until", "2999-01-01T00:00:00Z", "--path", "/*0*")
        self.assertEqual(["/status/503", "/bytes/10"], self.paths("client", *self.source(), *limits))
        [found] = self.listed("client", *self.source(), "--status", "503")
        self.assertEqual((CLIENT, "signRequest"), (found["client"], found["level"]))
        document = json.loads(self.receipts("client", "show", *self.source(), "-o", "json", found["id"]).stdout)
        self.assertTrue(document["verification"]["ok"])
        self.assertEqual(503, document["record"]["claims"]["svc"]["response"]["status"])
        output = self.scene.folder / "remote"
        self.receipts("client", "export", *self.source(), "--status", "503", "--output", str(output))
        self.receipts("client", "export", *self.source(), found["nonce"], "--output", str(output))
        self.assertEqual([f"{found['id']}.json"], [each.name for each in output.iterdir()])
        self.assertEqual(1, self.verified(output))

    def test_workload_and_reader(self) -> None:
        """The workload itself and an identity of notary.readers see the signed receipts of all clients."""
        for who in ("workload", "auditor"):
            paths = self.paths(who, *self.source(), "--path", "/b*")
            self.assertEqual(["/bytes/12", "/bytes/10"], paths, who)
        [found] = self.listed("auditor", *self.source(), "--path", "/bytes/10")
        self.receipts("auditor", "show", *self.source(), found["id"])

    def test_stranger(self) -> None:
        """Another identity sees an empty list, and a receipt is not there for it."""
        ran = self.receipts("stranger", "list", *self.source())
        self.assertEqual(b"", ran.stdout)
        self.assertIn(b"no receipt matches that our identity may read", ran.stderr)
        [found] = self.listed("client", *self.source(), "--status", "503")
        ran = self.receipts("stranger", "show", *self.source(), found["id"], status=1)
        self.assertEqual(b"", ran.stdout)
        self.assertIn(b"(record_missing)", ran.stderr)

    def test_another_server(self) -> None:
        """A proxy of another identity than the expected one is not asked."""
        ran = self.receipts("client", "list", "--from", self.scene.proxy.url, "--expect-id", CLIENT, status=1)
        self.assertIn(b"(identity_unexpected)", ran.stderr)
