"""
``bin/quickstart``: sets everything up, makes one verified request, and shows what came of it.

Owns what a person sees. What goes wrong is one line and a hint.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from svc.errors import SvcError
from svc.quickstart.processes import Running, State, answers_tcp, answers_unix, free_port
from svc.settings import HostPort

TRUST_DOMAIN: Final = "quickstart.example"
IDENTITY: Final = "/ns/demo/sa/web"
_BIN: Final = Path(sys.executable).parent
_STATE: Final = Path(".quickstart/state.json")
_PAGE: Final = "<!doctype html><title>svc</title><p>This page came through a verified connection.</p>\n"


class PortTaken(SvcError):
    """the port {port} on 127.0.0.1 is taken"""

    reason = "port_taken"
    hint = "give another one with --port, or stop what runs: bin/quickstart --stop"


class UpstreamAbsent(SvcError):
    """nothing answers at {upstream}"""

    reason = "upstream_absent"
    hint = "start your application first, or leave --upstream out to use the built-in one"


class IdentityUnavailable(SvcError):
    """the SPIRE agent at {socket} gives this user no identity: {what}"""

    reason = "identity_unavailable"
    hint = "is that the path of a running agent? then make a registration entry for uid {uid}"


class RequestFailed(SvcError):
    """svc curl ended with status {status}"""

    reason = "request_failed"
    hint = "the logs are in {folder}"


class Quickstart:
    """
    One run.

    Args:
        options: the parsed command line.
        checkout: the folder of the project.
    """

    def __init__(self, options: argparse.Namespace, checkout: Path) -> None:
        self._options = options
        self._state = State(checkout / _STATE)
        self._folder = Path(tempfile.mkdtemp(prefix="svc-quickstart-"))
        self._pq_bundle = self._folder / "pq-bundle.json"
        self._processes: list[Running] = []
        self._began = time.monotonic()
        self._trust_domain = TRUST_DOMAIN
        #: The socket of the SPIRE agent that is used, if any.
        self._spire: Path | None = None
        self._admin = 0

    def run(self) -> None:
        """
        Do everything.

        Raises:
            SvcError: with what went wrong.
        """
        options = self._options
        try:
            if answers_tcp(options.port):
                raise PortTaken(port=options.port)
            if options.spire_socket is not None:
                # Before anything is started: without an identity all of it would be for nothing.
                self._spire = Path(options.spire_socket.removeprefix("unix://")).absolute()
                self._trust_domain = _own_trust_domain(self._spire)
            upstream = self._application()
            socket = self._identities()
            self._proxy(upstream, socket)
            self._request(socket)
        except BaseException:
            self._end()
            # Goes where nothing was written yet; logs stay.
            with contextlib.suppress(OSError):
                self._folder.rmdir()
            raise
        if options.keep:
            self._state.keep(self._folder, self._processes)
            self._say(f"everything keeps running; logs: {self._folder}")
            self._say("stop it with: bin/quickstart --stop")
        else:
            logs = self._folder
            self._end()
            self._say(f"stopped; logs: {logs} (--keep leaves everything running, bin/quickstart --stop ends it)")

    def _application(self) -> str:
        if self._options.upstream is not None:
            address = HostPort.parse(self._options.upstream)
            if address.host in ("127.0.0.1", "localhost") and not answers_tcp(address.port):
                raise UpstreamAbsent(upstream=address)
            self._say(f"application: yours at {address}")
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
        self._say(f"application: twisted.web serves {files} at 127.0.0.1:{port}, plain HTTP")
        return f"127.0.0.1:{port}"

    def _identities(self) -> str:
        """Start an authority, or beside a SPIRE that is there only its post-quantum issuer."""
        pq_socket = self._folder / "pq.sock"
        socket = self._folder / "agent.sock"
        settings: dict[str, object] = {"pqIssuer": {"socket": f"unix://{pq_socket}"}}
        spire = self._spire
        if spire is not None:
            socket = spire
            settings["trustDomain"] = self._trust_domain
            settings["workloadApi"] = f"unix://{socket}"
            # The folder of SPIRE's socket is SPIRE's: the roots of the issuer lie beside its own socket.
            settings["pqIssuer"] = {"socket": f"unix://{pq_socket}", "bundleFile": str(self._pq_bundle)}
        else:
            settings["trustDomain"] = self._trust_domain
            settings["socket"] = f"unix://{socket}"
            spiffe_id = f"spiffe://{self._trust_domain}{IDENTITY}"
            settings["entries"] = [{"spiffeID": spiffe_id, "uid": os.geteuid(), "ttl": "1h"}]
        config = self._write("authority.yaml", settings)
        authority = self._start("authority", [*_twistd(), "svc-authority", "--config", str(config)])
        authority.wait_until(lambda: answers_unix(pq_socket) and answers_unix(socket), 30.0)
        what = "the SPIRE that is there, with a post-quantum issuer beside it" if spire else "svc-authority"
        self._say(f"identities: trust domain {self._trust_domain} by {what}")
        return f"unix://{socket}"

    def _proxy(self, upstream: str, socket: str) -> None:
        options = self._options
        self._admin = free_port()
        config = self._write(
            "proxy.yaml",
            {
                "trustDomain": self._trust_domain,
                "spiffeSocketPath": socket,
                "metricsAddr": f"127.0.0.1:{free_port()}",
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
                        "listen": f"127.0.0.1:{options.port}",
                        "upstream": upstream,
                        "notarization": "workload",
                    }
                ],
            },
        )
        proxy = self._start("proxy", [*_twistd(), "svc-proxy", "--config", str(config)])
        proxy.wait_until(self._ready, 30.0)
        self._say(f"proxy: svc-proxy terminates SPIFFE mTLS at 127.0.0.1:{options.port}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _request(self, socket: str) -> None:
        command = ["svc", "curl", "-n", "signRequest", "--print-workload", "--print-receipt", "-i"]
        command += ["--spiffe-socket-path", socket]
        if self._options.spire_socket is not None:
            command += ["--pq-bundle", str(self._pq_bundle)]
        command += [f"https://127.0.0.1:{self._options.port}/"]
        self._say(f"request: {' '.join(command)}")
        print(file=sys.stderr, flush=True)
        done = subprocess.run([str(_BIN / command[0]), *command[1:]], check=False, stdin=subprocess.DEVNULL)
        print(file=sys.stderr, flush=True)
        if done.returncode != 0:
            raise RequestFailed(status=done.returncode, folder=self._folder)
        self._say("verified: the workload's statement and the receipt of this very request")

    def _start(self, name: str, command: list[str]) -> Running:
        running = Running.start(name, command, self._folder)
        self._processes.append(running)
        return running

    def _write(self, name: str, settings: dict[str, object]) -> Path:
        path = self._folder / name
        path.write_text(json.dumps(settings, indent=2) + "\n")
        return path

    def _end(self) -> None:
        for each in reversed(self._processes):
            each.end()
        self._processes = []

    def _say(self, text: str) -> None:
        print(f"quickstart {time.monotonic() - self._began:4.1f} s  {text}", file=sys.stderr, flush=True)


def _twistd() -> list[str]:
    return [str(_BIN / "twistd"), "--nodaemon", "--pidfile="]


def _own_trust_domain(socket: Path) -> str:
    """Ask a running Workload API who we are."""
    from spiffe import WorkloadApiClient
    from spiffe.errors import PySpiffeError

    if not answers_unix(socket):
        what = "nobody answers there" if socket.exists() else "no such file"
        raise IdentityUnavailable(socket=socket, what=what, uid=os.geteuid())
    try:
        with WorkloadApiClient(f"unix://{socket}") as client:
            return str(client.fetch_x509_svid(timeout=10.0).spiffe_id.trust_domain)
    except (PySpiffeError, OSError, ValueError) as error:
        raise IdentityUnavailable(socket=socket, what=error, uid=os.geteuid()) from error


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/quickstart",
        allow_abbrev=False,
        description="Start an authority, an application and the proxy, make one verified request, show the reports.",
    )
    parser.add_argument("--upstream", metavar="HOST:PORT", help="your own application instead of the built-in one")
    parser.add_argument("--spire-socket", metavar="PATH", help="use the SPIRE agent at this socket")
    parser.add_argument("--port", type=int, default=8443, help="where the proxy listens on 127.0.0.1 (8443)")
    parser.add_argument("--keep", action="store_true", help="leave everything running")
    parser.add_argument("--stop", action="store_true", help="end what an earlier run with --keep left, and exit")
    options = parser.parse_args(arguments)
    if options.upstream is not None:
        try:
            address = HostPort.parse(options.upstream)
        except ValueError as error:
            parser.error(f"--upstream {options.upstream}: expected {error}")
        if not address.host or not address.port:
            parser.error(f"--upstream {options.upstream}: expected a host and a port above 0")
    if not 1 <= options.port <= 65535:
        parser.error(f"--port {options.port}: expected 1 to 65535")
    return options


def main(arguments: list[str]) -> int:
    """
    Run the quickstart.

    Args:
        arguments: the command line without the program.

    Returns:
        The exit status.
    """
    options = _options(arguments)
    checkout = Path(os.environ.get("SVC_CHECKOUT", "."))
    try:
        if options.stop:
            ended = State(checkout / _STATE).stop()
            said = f"stopped {', '.join(ended)}" if ended else "nothing was running"
            print(f"quickstart: {said}", file=sys.stderr)
        else:
            Quickstart(options, checkout).run()
    except SvcError as error:
        print(f"quickstart: {error}", file=sys.stderr)
        if error.advice():
            print(f"            {error.advice()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("quickstart: interrupted", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
