"""``svc federation`` with real API servers; a program in the place of kubectl forwards to a manager of the test."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from clusters.kubernetes import CertificateAuthority
from svc.cli.errors import FederationRefused
from svc.cli.federation.tunnel import live_package
from svc.federation.endpoint import Endpoint
from svc.federation.package import VerifiedPackage
from svc.kube.kinds import CLUSTER_NAME, CLUSTERS, FOREIGN_CLUSTERS
from tests.cli.test_federation_clusters import cluster_object
from tests.federation.material import PARTNER, signed
from tests.integration.kube_rig import SERVER
from tests.peers.apiserver import ApiServer, programs
from tests.peers.waiting import eventually

#: Forwards to the port that stands in a file named by the kubeconfig; everything else is for kubectl.
_KUBECTL: Final = """\
#!{python}
import os, sys, time
words = sys.argv[1:]
if "port-forward" not in words:
    os.execv("{kubectl}", ["kubectl", *words])
kubeconfig = words[words.index("--kubeconfig") + 1]
with open(kubeconfig + ".forwards", "w") as file:
    file.write(str(os.getpid()) + " " + " ".join(words))
with open(kubeconfig + ".port") as file:
    port = file.read()
if port == "silent":
    time.sleep(600)
if port:
    for piece in ("Forwarding from ", "127.0.0.1:" + port, " -> 9445\\n"):
        print(piece, end="", flush=True)
        time.sleep(0.01)
    time.sleep(600)
print("error: no such service", file=sys.stderr)
sys.exit(1)
"""


class _Manager:
    """The endpoint of a manager, which serves what it is given, by TLS with a certificate that nobody knows."""

    def __init__(self, folder: Path) -> None:
        self.status, self.body = 200, b""
        self.asked: list[str] = []
        authority = CertificateAuthority(folder / "manager")
        authority.issue("manager", "manager")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "manager" / "manager.crt", folder / "manager" / "manager.key")
        manager = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                manager.asked.append(self.path)
                self.send_response(manager.status)
                self.send_header("Content-Length", str(len(manager.body)))
                self.end_headers()
                self.wfile.write(manager.body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class TunnelCase(SynchronousTestCase):
    """A program in the place of kubectl, and a manager."""

    def setUp(self) -> None:
        """Write the program, and start the manager."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.kubectl = self.folder / "kubectl"
        self.kubectl.write_text(_KUBECTL.format(python=sys.executable, kubectl=programs() / "kubectl"))
        self.kubectl.chmod(0o700)
        self.environment = {"SVC_KUBECTL": str(self.kubectl), "HOME": "/proc/nonexistent"}
        self.package = signed(issued=datetime.now(UTC).replace(microsecond=0))
        self.manager = self.serve(self.folder / "config", self.package)

    def serve(self, kubeconfig: Path, package: VerifiedPackage) -> _Manager:
        """Start a manager that serves a package, and to which a kubeconfig leads."""
        (folder := kubeconfig.parent / f"{kubeconfig.name}.pki").mkdir()
        manager = _Manager(folder)
        self.addCleanup(manager.close)
        manager.body = package.package.serialize()
        Path(f"{kubeconfig}.port").write_text(str(manager.port))
        return manager

    def check_ended(self, kubeconfig: Path) -> str:
        """Check that the program has ended; returns its words."""
        number, _blank, words = Path(f"{kubeconfig}.forwards").read_text().partition(" ")
        self.assertRaises(ProcessLookupError, os.kill, int(number), 0)
        return words


class TunnelTests(TunnelCase):
    """The package by ``kubectl port-forward``."""

    def live(self) -> VerifiedPackage:
        """Fetch the package."""
        return live_package(str(self.folder / "config"), "prod", self.environment)

    def test_fetched(self) -> None:
        """The package of the manager comes through the port that kubectl names, and kubectl has ended then."""
        self.assertEqual(self.package.package, self.live().package)
        self.assertEqual(["/v1/bootstrap-package"], self.manager.asked)
        words = f"--kubeconfig {self.folder}/config --context prod --namespace svc-system"
        forward = "port-forward --address 127.0.0.1 svc/svc-m2m :443"
        self.assertEqual(f"{words} {forward}", self.check_ended(self.folder / "config"))

    def test_refused(self) -> None:
        """Whatever goes wrong has one reason and leaves no kubectl behind."""
        package = self.manager.body
        for status, body, text in (
            (503, b"{}", "HTTP status 503"),
            (200, b"{}", "is no package"),
            (200, package[:-9], "is no package"),
            (200, package + b" " * 2**19, "is no package"),
        ):
            self.manager.status, self.manager.body = status, body
            error = self.assertRaises(FederationRefused, self.live)
            self.assertEqual("tunnel_failed", error.reason)
            self.assertIn(text, str(error))
            self.check_ended(self.folder / "config")
        for port, text in (("1", "does not answer"), ("", "has ended")):
            (self.folder / "config.port").write_text(port)
            self.assertIn(text, str(self.assertRaises(FederationRefused, self.live)))
            self.check_ended(self.folder / "config")

    def test_signals(self) -> None:
        """A signal that ends svc ends kubectl as well."""
        config = self.folder / "config"
        Path(f"{config}.port").write_text("silent")
        code = (
            "import sys; from svc.cli.federation.tunnel import live_package\n"
            "live_package(sys.argv[1], '', {'SVC_KUBECTL': sys.argv[2]})"
        )
        for number in (signal.SIGTERM, signal.SIGHUP):
            Path(f"{config}.forwards").unlink(missing_ok=True)
            running = subprocess.Popen([sys.executable, "-c", code, str(config), str(self.kubectl)])
            eventually(lambda: b" " in _content(f"{config}.forwards"), 60, "kubectl")
            running.send_signal(number)
            self.assertEqual(128 + number, running.wait(60))
            self.check_ended(config)


def _content(path: str) -> bytes:
    return Path(path).read_bytes() if Path(path).exists() else b""


class ClusterTests(TunnelCase):
    """The commands with one API server."""

    def setUp(self) -> None:
        """Let the cluster publish a package."""
        super().setUp()
        self.server = self.published(SERVER.get(), self.package, "192.0.2.1:31443")
        self.partner = signed(trust_domain=PARTNER, issued=self.package.content.issued)
        self.file = self.folder / "partner.json"
        self.file.write_bytes(self.partner.package.serialize())

    def published(self, server: ApiServer, package: VerifiedPackage, address: str) -> ApiServer:
        """Write the status that a manager writes."""
        server.apply_crds()
        self.addCleanup(server.kubectl, "delete", f"{CLUSTERS},{FOREIGN_CLUSTERS}", "--all")
        found = cluster_object(package, address)
        head = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.name, "metadata": found["metadata"]}
        server.kubectl("create", "-f", "-", data=json.dumps(head))
        self.patch_status(server, str(CLUSTERS), CLUSTER_NAME, found["status"])
        return server

    def patch_status(self, server: ApiServer, kind: str, name: str, status: dict[str, Any]) -> None:
        """Change a status."""
        patch = json.dumps({"status": status})
        server.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)

    def svc(self, *words: str, status: int = 0) -> str:
        """Run a command of ``svc federation`` as a process; returns what it prints, or why it was refused."""
        command = [sys.executable, "-m", "svc.cli.main", "federation", *words]
        environment = {"KUBECONFIG": str(self.server.kubeconfig), **self.environment}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(status, ran.returncode, ran.stderr)
        return ran.stderr if status else ran.stdout

    def foreign(self, name: str, server: ApiServer | None = None) -> dict[str, Any]:
        """Read a peer."""
        text = (server or self.server).kubectl(
            "get", str(FOREIGN_CLUSTERS), name, "-o", "json", "--show-managed-fields"
        )
        found: dict[str, Any] = json.loads(text)
        return found

    def test_exchange(self) -> None:
        """What info and export give is taken by import and connect, whose object is of svc-cli and applied again."""
        out = self.folder / "out.json"
        self.svc("export", "bootstrap-package", "-f", str(out))
        reference = self.svc("info").strip()
        self.assertTrue(reference.startswith("svcfed1:prod.example.org:"))
        self.assertIn(reference, self.svc("inspect", "bootstrap-package", "-f", str(out)))
        self.assertIn("(own_trust_domain)", self.svc("import", "bootstrap-package", "-f", str(out), status=1))
        self.assertIn("(same_trust_domain)", self.svc("connect", reference, status=1))
        importing = ("import", "bootstrap-package", "-f", str(self.file), "--m2m-endpoint", "192.0.2.2:443")
        self.svc(*importing)
        made = self.foreign(PARTNER.name)
        [entry] = [each for each in made["metadata"]["managedFields"] if each["manager"] == "svc-cli"]
        self.assertEqual("Apply", entry["operation"])
        self.assertEqual({"trustDomain", "m2mEndpoint", "bootstrapPackage"}, set(made["spec"]))
        self.svc(*importing)
        self.assertEqual(1, self.foreign(PARTNER.name)["metadata"]["generation"])
        self.svc("connect", self.reference("192.0.2.2:444"))
        self.assertEqual("192.0.2.2:444", self.foreign(PARTNER.name)["spec"]["m2mEndpoint"])

    def reference(self, address: str) -> str:
        """The reference of the partner."""
        return str(self.partner.package.with_endpoint(Endpoint.parse(address)).reference)

    def test_rebootstrap(self) -> None:
        """Each --rebootstrap writes another token, and a relationship that works is kept but for force."""
        importing = ("import", "bootstrap-package", "-f", str(self.file))
        self.svc(*importing, "--name", "partner")
        other = {"fingerprint": "-".join(["aaaa"] * 13), "sequence": 1, "data": "e30="}
        times = {"issuedAt": "2026-11-28T00:00:00Z", "notAfter": "2026-12-28T00:00:00Z"}
        status = {"conditions": [], "continuity": "working", "pinned": {**other, **times}}
        self.patch_status(self.server, str(FOREIGN_CLUSTERS), "partner", status)
        self.assertIn("(already_federated)", self.svc(*importing, status=1))
        self.assertIn("(continuity_working)", self.svc(*importing, "--rebootstrap", status=1))
        self.assertNotIn("rebootstrap", self.foreign("partner")["spec"])
        self.svc(*importing, "--force-rebootstrap")
        forced = self.foreign("partner")["spec"]["rebootstrap"]
        self.assertTrue(forced["force"])
        self.patch_status(self.server, str(FOREIGN_CLUSTERS), "partner", {"continuity": "broken"})
        self.svc(*importing, "--rebootstrap")
        again = self.foreign("partner")["spec"]["rebootstrap"]
        self.assertEqual((False, True), (again["force"], again["token"] > forced["token"]))

    def test_two_clusters(self) -> None:
        """Two clusters are read through tunnels and trust each other; one cluster twice is refused."""
        other = ApiServer()
        self.addCleanup(other.stop)
        self.published(other.start(), self.partner, "192.0.2.2:31443")
        files = (self.folder / "first", self.folder / "second")
        for file, server, package in zip(files, (self.server, other), (self.package, self.partner), strict=True):
            file.write_bytes(server.kubeconfig.read_bytes())
            self.serve(file, package)
        both = ("connect", "-K", str(files[0]), "-K", str(files[1]))
        self.assertIn("(same_cluster)", self.svc("connect", "-K", str(files[0]), "-K", str(files[0]), status=1))
        text = self.svc(*both)
        for file in files:
            self.check_ended(file)
        for server, name, package, address in (
            (self.server, PARTNER.name, self.partner, "192.0.2.2:31443"),
            (other, "prod.example.org", self.package, "192.0.2.1:31443"),
        ):
            self.assertIn(f"svcforeignclusters.svc.internal/{name} --timeout=5m", text)
            fingerprint = package.content.fingerprint.grouped
            spec = {"trustDomain": name, "expectedFingerprint": fingerprint, "m2mEndpoint": address}
            self.assertEqual(spec, self.foreign(name, server)["spec"])
        self.svc(*both)
        self.assertEqual(1, self.foreign(PARTNER.name)["metadata"]["generation"])
