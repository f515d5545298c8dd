"""
``bin/quickstart``: starts everything, sends one verified request, shows the result and removes what it made.

Owns the output. An error is one line and a hint.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shlex
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from svc.errors import SvcError
from svc.quickstart import kubernetes
from svc.quickstart.processes import (
    QuickstartError,
    Running,
    State,
    answers_tcp,
    answers_unix,
    free_port,
    port_taken,
    raise_interrupts,
    run,
    uninterrupted,
)
from svc.settings import HostPort

TRUST_DOMAIN: Final = "quickstart.example"
IDENTITY: Final = "/ns/demo/sa/web"
_BIN: Final = Path(sys.executable).parent
_STATE: Final = Path(".quickstart/state.json")
#: The reports of the last run that removed its folder.
_REPORTS: Final = Path(".quickstart/reports.txt")
_PAGE: Final = "<!doctype html><title>svc</title><p>This page came through a verified connection.</p>\n"
#: How the lines of the reports begin that are shown; notices and titles are not indented and shown too.
_SHOWN: Final = (
    *("  SPIFFE ID:", "  Issuer:", "  Issued At:", "  Valid Until:", "  Signatures:", "  Bound To Connection:"),
    *(
        "  Workload Statement ID:",
        "  HTTP Request:",
        "    Method:",
        "    Path:",
        "  HTTP Response:",
        "    Status Code:",
    ),
    *("  Outcome:", "  Client:", "  Server:", "  TLS:", "  Compared With Own Exchange:"),
)


_DESCRIPTION: Final = """\
Start an authority, an application and the proxy, send one request, and show the answer with its verified workload
statement and receipt: the lines that matter. The whole reports are written to .quickstart/reports.txt."""
_EPILOG: Final = """\
At the end, and after an interrupt, the processes are ended and their temporary folder is removed. After an error, and
with --keep, the folder stays and is named; it holds configuration, logs and reports. Exit status: 0 after a verified
answer, 1 after an error or an interrupt, 2 for mistaken arguments.

With --kubernetes it starts a Kubernetes cluster of one node, installs the chart, lets the webhook inject the proxy into
a Deployment, sends one verified request and one that is refused, uninstalls, and shows that nothing is left.

examples:
  bin/quickstart
  bin/quickstart --upstream 127.0.0.1:8080
  bin/quickstart --keep; bin/quickstart --stop
  bin/quickstart --kubernetes"""


class Quickstart:
    """One run, in the folder of the project."""

    def __init__(self, options: argparse.Namespace, checkout: Path) -> None:
        self._options = options
        self._state = State(checkout / _STATE)
        self._reports = checkout / _REPORTS
        self._bin = checkout / "bin"
        # Created by run(), which removes it on every path.
        self._folder = Path(tempfile.gettempdir()).absolute() / f"svc-quickstart-{secrets.token_hex(4)}"
        self._pq_bundle = self._folder / "pq-bundle.json"
        self._processes: list[Running] = []
        self._began = time.monotonic()
        self._trust_domain = TRUST_DOMAIN
        self._spiffe_id = f"spiffe://{TRUST_DOMAIN}{IDENTITY}"
        #: The socket of the SPIRE agent that is used, if any.
        self._spire: Path | None = None
        self._port = self._admin = self._metrics = 0
        #: The end of each svc curl: the socket, whom to expect, the address.
        self._target: list[str] = []

    def run(self) -> None:
        keep = self._options.keep
        try:
            self._folder.mkdir(mode=0o700)
            self._demonstrate()
            if keep:
                self._state.keep(self._folder, self._processes)
                self._report_kept()
                return
            self._reports.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(self._folder / _REPORTS.name, self._reports)
            self._report(f"the whole reports: {self._reports}")
            # Inside, so that an interrupt just before it ends the processes too.
            self._end(remove=True)
        except KeyboardInterrupt:
            self._end(remove=not keep)
            raise
        except BaseException:
            self._end(remove=False)
            raise
        self._report("stopped; --keep leaves everything running")

    def _report_kept(self) -> None:
        """Print where everything is, and three commands that work in any folder."""
        pages = f"127.0.0.1:{self._admin}"
        self._report(f"everything keeps running; configuration, logs and reports: {self._folder}")
        self._report(f"metrics: http://127.0.0.1:{self._metrics}/metrics")
        self._report(f"readiness: http://{pages}/readyz")
        self._report(f"what runs, as a page: http://{pages}/")
        self._report("next, to paste (the folder stays until you remove it):")
        for command in (
            [str(self._bin / "svc"), "curl", "-n", "signRequest", "--print-receipt", *self._target],
            [str(self._bin / "svc"), "status", pages],
            [str(self._bin / "quickstart"), "--stop"],
        ):
            print(f"  {shlex.join(command)}", file=sys.stderr, flush=True)

    def _end(self, *, remove: bool) -> None:
        """Stop the processes; remove the folder, or name it if it is not empty."""
        with uninterrupted():
            for each in reversed(self._processes):
                each.end()
            if remove:
                shutil.rmtree(self._folder, ignore_errors=True)
                return
            with contextlib.suppress(OSError):
                self._folder.rmdir()
            if self._folder.exists():
                self._report(f"stopped; logs and configuration are kept in {self._folder}")

    def _demonstrate(self) -> None:
        options = self._options
        self._port = options.port or free_port()
        if port_taken(self._port):
            raise QuickstartError("port_taken", port=self._port)
        if options.spire_socket is not None:
            # Before anything is started: without an identity nothing else can work.
            self._spire = Path(options.spire_socket.removeprefix("unix://")).absolute()
            self._spiffe_id, self._trust_domain = _own_identity(self._spire)
        upstream = self._application()
        socket = self._identities()
        self._proxy(upstream, socket)
        self._request(socket)

    def _application(self) -> str:
        if self._options.upstream is not None:
            address = HostPort.parse(self._options.upstream)
            if address.host in ("127.0.0.1", "localhost") and not answers_tcp(address.port):
                raise QuickstartError("upstream_absent", upstream=address)
            self._report(f"application: yours at {address}")
            return str(address)
        files = self._folder / "www"
        files.mkdir()
        (files / "index.html").write_text(_PAGE)
        port = free_port()
        command = [
            *_twistd(),
            "web",
            f"--listen=tcp:{port}:interface=127.0.0.1",
            f"--path={files}",
        ]
        self._start("application", command).wait_until(lambda: answers_tcp(port), 20.0)
        self._report(f"application: twisted.web serves {files} at 127.0.0.1:{port}, plain HTTP")
        return f"127.0.0.1:{port}"

    def _identities(self) -> str:
        """Start the authority, or only its post-quantum issuer beside an existing SPIRE."""
        pq_socket = self._folder / "pq.sock"
        socket = self._folder / "agent.sock"
        settings: dict[str, object] = {
            "adminAddr": f"127.0.0.1:{free_port()}",
            "pqIssuer": {"socket": f"unix://{pq_socket}"},
        }
        spire = self._spire
        if spire is not None:
            socket = spire
            settings["trustDomain"] = self._trust_domain
            settings["workloadApi"] = f"unix://{socket}"
            # Not in the folder of SPIRE's socket, which belongs to SPIRE.
            settings["pqIssuer"] = {"socket": f"unix://{pq_socket}", "bundleFile": str(self._pq_bundle)}
        else:
            settings["trustDomain"] = self._trust_domain
            settings["socket"] = f"unix://{socket}"
            settings["entries"] = [{"spiffeID": self._spiffe_id, "uid": os.geteuid(), "ttl": "1h"}]
        config = self._write("authority.yaml", settings)
        authority = self._start("authority", [*_twistd(), "svc-authority", "--config", str(config)])
        authority.wait_until(lambda: answers_unix(pq_socket) and answers_unix(socket), 30.0)
        what = "the SPIRE that is there, with a post-quantum issuer beside it" if spire else "svc-authority"
        self._report(f"identities: trust domain {self._trust_domain} by {what}")
        return f"unix://{socket}"

    def _proxy(self, upstream: str, socket: str) -> None:
        self._admin, self._metrics = free_port(), free_port()
        config = self._write(
            "proxy.yaml",
            {
                "trustDomain": self._trust_domain,
                "spiffeSocketPath": socket,
                "metricsAddr": f"127.0.0.1:{self._metrics}",
                "adminAddr": f"127.0.0.1:{self._admin}",
                "notary": {
                    "path": str(self._folder / "notary.db"),
                    "pqIssuer": f"unix://{self._folder / 'pq.sock'}",
                    "pqBundle": str(self._pq_bundle),
                },
                "workload": {"namespace": "demo", "serviceAccount": "web"},
                "policy": {"default": "allow"},
                "listeners": [
                    {
                        "name": "web",
                        "protocol": "http",
                        "direction": "inbound",
                        "listen": f"127.0.0.1:{self._port}",
                        "upstream": upstream,
                        "notarization": "workload",
                    }
                ],
            },
        )
        proxy = self._start("proxy", [*_twistd(), "svc-proxy", "--config", str(config)])
        proxy.wait_until(self._ready, 30.0)
        self._report(f"proxy: svc-proxy terminates SPIFFE mTLS at 127.0.0.1:{self._port}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _request(self, socket: str) -> None:
        self._target = ["--spiffe-socket-path", socket, "--expect-id", self._spiffe_id]
        if self._spire is not None:
            self._target += ["--pq-bundle", str(self._pq_bundle)]
        self._target += [f"https://127.0.0.1:{self._port}/"]
        command = ["svc", "curl", "-n", "signRequest", "--print-workload", "--print-receipt", "-i", *self._target]
        self._report(f"request: bin/{' '.join(command)}\n")
        path = self._folder / _REPORTS.name
        # It may hold parts of headers and bodies.
        path.touch(mode=0o600)
        with path.open("wb") as file:
            status = run([str(_BIN / command[0]), *command[1:]], stderr=file)
        reports = path.read_text(errors="replace")
        if status != 0:
            print(reports, file=sys.stderr, flush=True)
            raise QuickstartError("request_failed", status=status, folder=self._folder)
        print(f"\n{shortened(reports)}", file=sys.stderr, flush=True)
        self._report("verified: the workload's statement and the receipt of this very request")

    def _start(self, name: str, command: list[str]) -> Running:
        with uninterrupted():
            running = Running.start(name, command, self._folder)
            self._processes.append(running)
        return running

    def _write(self, name: str, settings: dict[str, object]) -> Path:
        path = self._folder / name
        path.write_text(json.dumps(settings, indent=2) + "\n")
        return path

    def _report(self, text: str) -> None:
        print(f"quickstart {time.monotonic() - self._began:4.1f} s  {text}", file=sys.stderr, flush=True)


def _twistd() -> list[str]:
    return [str(_BIN / "twistd"), "--nodaemon", "--pidfile="]


def shortened(reports: str) -> str:
    """The notices, titles and most important fields of the reports of ``svc curl``."""
    lines = reports.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(" ") or line.startswith(_SHOWN))


def _own_identity(socket: Path) -> tuple[str, str]:
    """Request the SPIFFE ID and the trust domain of this user from a running Workload API."""
    from spiffe import WorkloadApiClient
    from spiffe.errors import PySpiffeError

    if not answers_unix(socket):
        what = "nobody answers there" if socket.exists() else "no such file"
        raise QuickstartError("identity_unavailable", socket=socket, what=what, uid=os.geteuid())
    try:
        with WorkloadApiClient(f"unix://{socket}") as client:
            spiffe_id = client.fetch_x509_svid(timeout=10.0).spiffe_id
    except (PySpiffeError, OSError, ValueError) as error:
        raise QuickstartError("identity_unavailable", socket=socket, what=error, uid=os.geteuid()) from error
    return str(spiffe_id), str(spiffe_id.trust_domain)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/quickstart",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("--upstream", metavar="HOST:PORT", help="your own application instead of the built-in one")
    parser.add_argument("--spire-socket", metavar="PATH", help="the SPIRE agent at this socket gives the identities")
    parser.add_argument(
        "--kubernetes",
        action="store_true",
        help="the Helm chart on a Kubernetes cluster of its own instead, with an ordinary Deployment; needs root",
    )
    parser.add_argument(
        "--port", type=int, default=8443, help="where the proxy listens on 127.0.0.1; 0: any free port (default: 8443)"
    )
    parser.add_argument("--keep", action="store_true", help="leave everything running, and keep the folder")
    parser.add_argument("--stop", action="store_true", help="end what earlier runs with --keep left, and exit")
    options = parser.parse_args(arguments)
    if options.kubernetes and not (options.upstream is None and options.spire_socket is None and options.port == 8443):
        parser.error("--kubernetes: the options --upstream, --spire-socket and --port belong to the run without it")
    if options.upstream is not None:
        try:
            address = HostPort.parse(options.upstream)
        except ValueError as error:
            parser.error(f"--upstream {options.upstream}: expected {error}")
        if not address.host or not address.port:
            parser.error(f"--upstream {options.upstream}: expected a host and a port above 0")
    if not 0 <= options.port <= 65535:
        parser.error(f"--port {options.port}: expected 0 to 65535")
    return options


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    checkout = Path(os.environ.get("SVC_CHECKOUT", ".")).absolute()
    try:
        if options.stop:
            ended = [*State(checkout / _STATE).stop(), *kubernetes.stop(checkout)]
            result = f"stopped {', '.join(ended)}" if ended else "nothing was running"
            print(f"quickstart: {result}", file=sys.stderr)
        else:
            raise_interrupts()
            if options.kubernetes:
                kubernetes.KubernetesQuickstart(checkout, shortened).run(keep=options.keep)
            else:
                Quickstart(options, checkout).run()
    except (SvcError, OSError) as error:
        print(f"quickstart: {error}", file=sys.stderr)
        if isinstance(error, SvcError) and error.hint:
            print(f"            {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("quickstart: interrupted", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
