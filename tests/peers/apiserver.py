"""
A real API server of Kubernetes with its etcd, for what needs no node: controllers, CRDs, webhooks, charts.

::

    with ApiServer() as server:
        server.kubectl("get", "namespaces")
        ...              # server.kubeconfig is a file
"""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SkipTest

from clusters.kubernetes import CertificateAuthority, ToolMissing, apply_crds, folder_of
from tests.peers.folders import make_folder, remove_folder
from tests.peers.waiting import NotInTime, end_process, eventually, free_port

NEEDS_TOOLS = ("kubernetes",)


class ApiServerFailed(Exception):
    """The API server or etcd ended, was not ready in time, or refused a command; carries what it wrote."""


def programs(tool: str = "kubernetes") -> Path:
    """
    Find the programs of a tool.

    Raises:
        SkipTest: it has not been built.
    """
    try:
        return folder_of(tool)
    except ToolMissing as missing:
        raise SkipTest(str(missing)) from missing


class ApiServer:
    """
    etcd and one API server on loopback ports, and their folder. No controller and no node runs: nothing is collected,
    and pods stay pending.

    Args:
        flags: further ones of ``kube-apiserver``.

    Attributes:
        url: where it answers.
        kubeconfig: a file, of a user who may do everything.
    """

    def __init__(self, *flags: str) -> None:
        self._programs = programs()
        self._flags = flags
        self.folder = make_folder("svc-apiserver-")
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._authority = CertificateAuthority(self.folder / "pki")
        self._authority.issue("server", "kube-apiserver", sans=("localhost", "127.0.0.1"))
        self.kubeconfig = self.credentials("admin", "system:masters")
        self._tls = ssl.create_default_context(cafile=str(self.folder / "pki" / "ca.crt"))
        self._tls.load_cert_chain(self.folder / "pki" / "admin.crt", self.folder / "pki" / "admin.key")
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def credentials(self, user: str, *groups: str) -> Path:
        """Write a kubeconfig for a user of these groups, who may do what RBAC says."""
        name = user.replace(":", "-")
        self._authority.issue(name, user, groups=groups)
        return self._authority.kubeconfig(self.folder / f"{name}.kubeconfig", self.url, name)

    def start(self) -> ApiServer:
        """
        Start what does not run, and wait until the API server is ready.

        Returns:
            Itself.

        Raises:
            ApiServerFailed: it did not get ready.
        """
        if "etcd" not in self._running:
            self._start("etcd", self._etcd_flags())
        if "kube-apiserver" not in self._running:
            self._start("kube-apiserver", self._server_flags())
        try:
            eventually(self._ready, 60, "a ready API server")
        except NotInTime as error:
            raise ApiServerFailed(self.log("kube-apiserver")[-2000:]) from error
        return self

    def stop(self) -> None:
        """End both, and remove their folder."""
        for name in ("kube-apiserver", "etcd"):
            # All data is thrown away, and a graceful end waits for the last watch.
            self.kill(name)
        remove_folder(self.folder)

    def kill(self, name: str = "kube-apiserver") -> None:
        """End a process as a crash does; :meth:`start` begins it again with what etcd has kept."""
        self._end(name, signal.SIGKILL)

    def restart(self) -> None:
        """End the API server as an operator does, and start it again on the same port."""
        self._end("kube-apiserver", signal.SIGTERM)
        self.start()

    def pause(self) -> None:
        """Let the API server hang: connections stay open and nothing is answered."""
        self._running["kube-apiserver"].send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End :meth:`pause`."""
        self._running["kube-apiserver"].send_signal(signal.SIGCONT)

    def compact(self) -> None:
        """
        Forget the history in etcd: lists and watches that go on from before it get 410.

        Watches only where ``--watch-cache=false`` is among the flags; the cache of the API server has its own history.
        """
        revision = self._etcd("/v3/maintenance/status", {})["header"]["revision"]
        self._etcd("/v3/kv/compaction", {"revision": revision, "physical": True})

    def kubectl(self, *arguments: str, data: str = "") -> str:
        """
        Run ``kubectl``.

        Args:
            arguments: the command and its options.
            data: its standard input, for ``-f -``.

        Returns:
            What it printed.

        Raises:
            ApiServerFailed: it failed.
        """
        command = [str(self._programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        ran = subprocess.run(command, input=data, capture_output=True, text=True, check=False, timeout=180)
        if ran.returncode != 0:
            raise ApiServerFailed(f"kubectl {' '.join(arguments)}: {ran.stderr}")
        return ran.stdout

    def apply_crds(self) -> None:
        """Make the custom resources of the product."""
        apply_crds(self.kubectl)

    def log(self, name: str) -> str:
        """Read what ``kube-apiserver`` or ``etcd`` wrote."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> ApiServer:
        with ExitStack() as stack:
            stack.callback(self.stop)
            self.start()
            stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            *(f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=default={peer}",
        ]

    def _server_flags(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            *("--bind-address=127.0.0.1", f"--secure-port={self.port}"),
            *(f"--tls-cert-file={pki / 'server.crt'}", f"--tls-private-key-file={pki / 'server.key'}"),
            f"--client-ca-file={pki / 'ca.crt'}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={pki / 'accounts.key'}",
            f"--service-account-signing-key-file={pki / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/24",
            # Its controller, which makes the default account of each namespace, does not run.
            "--disable-admission-plugins=ServiceAccount",
            *self._flags,
        ]

    def _start(self, name: str, flags: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [str(self._programs / name), *flags],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _ready(self) -> bool:
        for name, process in self._running.items():
            if process.poll() is not None:
                raise ApiServerFailed(f"{name} ended: {self.log(name)[-2000:]}")
        try:
            for path in ("/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"):
                with urllib.request.urlopen(self.url + path, context=self._tls, timeout=5.0) as answer:
                    answer.read()
        except (urllib.error.URLError, OSError):
            return False
        return True

    def _etcd(self, path: str, body: dict[str, object]) -> dict[str, dict[str, int]]:
        request = urllib.request.Request(f"http://127.0.0.1:{self._etcd_port}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            found: dict[str, dict[str, int]] = json.load(answer)
            return found

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            end_process(process, number)
