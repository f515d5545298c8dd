"""
Everything that is measured, on one machine: an authority, an application, our proxy, and its peers.

Owns their configuration files and processes. All devices under test do the same work: terminate mutual TLS 1.3 with the
same SVID and without tickets, put ``X-Forwarded-Client-Cert`` into each request, and pool connections to nginx. Knows
nothing of loads and figures.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding
from spiffe import WorkloadApiClient

from svc.errors import SvcError
from svc.quickstart.processes import Running, answers_tcp, answers_unix, free_port

TRUST_DOMAIN: Final = "bench.example"
IDENTITY: Final = f"spiffe://{TRUST_DOMAIN}/ns/bench/sa/workload"
SMALL: Final = "/small"
BULK: Final = "/bulk"
SMALL_SIZE: Final = 200
BULK_SIZE: Final = 4 * 1024 * 1024
LEVELS: Final = ("none", "workload", "logRequest", "signRequest")
_BIN: Final = Path(sys.executable).parent
_MOST_CONNECTIONS: Final = 8000
_START_SECONDS: Final = 30.0


class PeerMissing(SvcError):
    """{program} is not installed"""

    reason = "peer_missing"
    hint = "as root: apt-get install haproxy nginx-light; bin/benchmark does it where it can"


class BundleMissing(SvcError):
    """the authority gives no bundle for {trust_domain}"""

    reason = "bundle_missing"


@dataclass(frozen=True, slots=True)
class Device:
    """
    One thing to measure.

    Args:
        name: as the table calls it.
        port: where it listens, on 127.0.0.1.
        pid: whose CPU time and memory count.
        tls: whether its clients speak TLS.
    """

    name: str
    port: int
    pid: int
    tls: bool = True


class Stage:
    """
    The processes of one run, in one folder.

    Args:
        folder: where everything lies; its path is short, since it holds Unix sockets.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[Running] = []
        self.credentials = folder / "credentials"
        self.plain_port = free_port()
        self._tls_port = free_port()

    def start(self) -> None:
        """
        Start what all measurements need: the authority and the application.

        Raises:
            SvcError: what is missing or did not start.
        """
        self._authority()
        self._export()
        self._nginx()

    def stop(self) -> None:
        """End everything, the last first."""
        for each in reversed(self._processes):
            each.end()
        self._processes = []

    def end(self, device: Device) -> None:
        """
        End one device.

        Args:
            device: which.
        """
        for each in [each for each in self._processes if each.pid == device.pid]:
            each.end()
            self._processes.remove(each)

    # -- What every device needs ---------------------------------------------------------------------------------------

    def _authority(self) -> None:
        socket, pq_socket = self._folder / "agent.sock", self._folder / "pq.sock"
        entry = {"spiffeID": IDENTITY, "uid": os.geteuid(), "ttl": "2h"}
        settings = {
            "trustDomain": TRUST_DOMAIN,
            "socket": f"unix://{socket}",
            "pqIssuer": {"socket": f"unix://{pq_socket}"},
            "entries": [entry],
        }
        config = self._write("authority.yaml", json.dumps(settings))
        command = [*_twistd(), "svc-authority", "--config", str(config)]
        self._start("authority", command, lambda: answers_unix(socket) and answers_unix(pq_socket))

    def _export(self) -> None:
        """Take an SVID and the bundle as PEM files, for everything that does not speak the Workload API."""
        folder = self.credentials
        folder.mkdir(mode=0o700)
        chain, key, roots = folder / "chain.pem", folder / "key.pem", folder / "roots.pem"
        with WorkloadApiClient(f"unix://{self._folder}/agent.sock") as client:
            context = client.fetch_x509_context(timeout=10.0)
        svid = context.default_svid
        svid.save(str(chain), str(key), Encoding.PEM)
        bundle = context.x509_bundle_set.get_bundle_for_trust_domain(svid.spiffe_id.trust_domain)
        if bundle is None:
            raise BundleMissing(trust_domain=TRUST_DOMAIN)
        bundle.save(str(roots), Encoding.PEM)
        both = folder / "both.pem"
        both.touch(mode=0o600)
        both.write_bytes(chain.read_bytes() + key.read_bytes())

    def _nginx(self) -> None:
        (self._folder / "bulk").write_bytes(os.urandom(BULK_SIZE))
        config = self._write(
            "nginx.conf",
            _NGINX.format(folder=self._folder, plain=self.plain_port, tls=self._tls_port, body="x" * SMALL_SIZE),
        )
        command = [_program("nginx"), "-e", str(self._folder / "nginx.err"), "-c", str(config)]
        self._start("nginx", command, lambda: answers_tcp(self.plain_port) and answers_tcp(self._tls_port))

    # -- The devices ---------------------------------------------------------------------------------------------------

    def haproxy(self) -> tuple[Device, Device]:
        """
        Start haproxy with one thread.

        Returns:
            Its inbound and its outbound side.
        """
        inbound, outbound = free_port(), free_port()
        config = self._write(
            f"haproxy-{inbound}.cfg",
            _HAPROXY.format(
                mutual_tls=_MUTUAL_TLS.format(folder=self.credentials),
                identity=IDENTITY,
                most=_MOST_CONNECTIONS,
                inbound=inbound,
                outbound=outbound,
                plain=self.plain_port,
                tls=self._tls_port,
            ),
        )
        running = self._start(
            f"haproxy-{inbound}",
            [_program("haproxy"), "-db", "-f", str(config)],
            lambda: answers_tcp(inbound) and answers_tcp(outbound),
        )
        return Device("haproxy", inbound, running.pid), Device("haproxy outbound", outbound, running.pid, tls=False)

    def proxy(self) -> dict[str, Device]:
        """
        Start our proxy with one listener for each level of notarization and one outbound listener.

        Returns:
            Its sides by level, and ``outbound``.
        """
        ports = {level: free_port() for level in LEVELS}
        outbound, admin = free_port(), free_port()
        config = self._write(f"proxy-{admin}.yaml", json.dumps(self._proxy_settings(ports, outbound, admin)))
        command = [*_twistd(), "svc-proxy", "--config", str(config)]
        running = self._start(f"proxy-{admin}", command, lambda: _is_ready(admin))
        devices = {level: Device(f"ours, {level}", port, running.pid) for level, port in ports.items()}
        devices["outbound"] = Device("ours, outbound", outbound, running.pid, tls=False)
        return devices

    def _proxy_settings(self, ports: dict[str, int], outbound: int, admin: int) -> dict[str, object]:
        limits = {"connections": _MOST_CONNECTIONS}
        listeners: list[dict[str, object]] = [
            {
                "name": level,
                "protocol": "http",
                "direction": "inbound",
                "listen": f"127.0.0.1:{port}",
                "upstream": f"127.0.0.1:{self.plain_port}",
                "notarization": level,
                "limits": limits,
            }
            for level, port in ports.items()
        ]
        listeners.append(
            {
                "name": "outbound",
                "protocol": "http",
                "direction": "outbound",
                "listen": f"127.0.0.1:{outbound}",
                "upstream": f"127.0.0.1:{self._tls_port}",
                "peer": IDENTITY,
                "limits": limits,
            }
        )
        return {
            "trustDomain": TRUST_DOMAIN,
            "spiffeSocketPath": f"unix://{self._folder}/agent.sock",
            "metricsAddr": f"127.0.0.1:{free_port()}",
            "adminAddr": f"127.0.0.1:{admin}",
            "notary": {
                "path": str(self._folder / f"notary-{admin}.db"),
                "pqIssuer": f"unix://{self._folder}/pq.sock",
                # The default allows each client 200 a second; here one client is the whole load.
                "receiptsPerSecond": 100_000,
                "receiptsBurst": 1_000_000,
            },
            "workload": {"namespace": "bench", "serviceAccount": "workload"},
            "policy": {"default": "allow"},
            "listeners": listeners,
        }

    def twisted_web(self) -> Device:
        """
        Start Twisted's own reverse proxy, ``twisted.web.proxy``, on Twisted's own transports.

        Returns:
            The device.
        """
        port = free_port()
        script = Path(__file__).with_name("twistedweb.py")
        command = [sys.executable, str(script), str(port), str(self.plain_port), str(self.credentials)]
        running = self._start("twisted-web", command, lambda: answers_tcp(port))
        return Device("twisted.web", port, running.pid)

    # -- Processes -----------------------------------------------------------------------------------------------------

    def _start(self, name: str, command: list[str], ready: Callable[[], bool]) -> Running:
        running = Running.start(name, command, self._folder)
        self._processes.append(running)
        running.wait_until(ready, _START_SECONDS)
        return running

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text)
        return path


def _twistd() -> list[str]:
    return [str(_BIN / "twistd"), "--nodaemon", "--pidfile="]


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise PeerMissing(program=name)
    return found


def _is_ready(admin: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


_NGINX: Final = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.err;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{plain} backlog=4096;
        listen 127.0.0.1:{tls} ssl backlog=4096;
        ssl_certificate {folder}/credentials/chain.pem;
        ssl_certificate_key {folder}/credentials/key.pem;
        ssl_client_certificate {folder}/credentials/roots.pem;
        ssl_verify_client on;
        ssl_verify_depth 4;
        ssl_protocols TLSv1.3;
        ssl_session_tickets off;
        default_type text/plain;
        location = /small {{ return 200 "{body}"; }}
        location = /bulk {{ root {folder}; }}
    }}
}}
"""

_MUTUAL_TLS: Final = "ssl crt {folder}/both.pem ca-file {folder}/roots.pem verify required alpn http/1.1"
_HAPROXY: Final = """\
global
    nbthread 1
    maxconn {most}
    tune.ssl.cachesize 0
    ssl-default-bind-options ssl-min-ver TLSv1.3 no-tls-tickets
    ssl-default-server-options ssl-min-ver TLSv1.3 no-tls-tickets
defaults
    mode http
    timeout connect 5s
    timeout client 120s
    timeout server 120s
    http-reuse always
frontend inbound
    bind 127.0.0.1:{inbound} backlog 4096 {mutual_tls} curves X25519
    http-request set-header X-Forwarded-Client-Cert By={identity};URI={identity}
    default_backend application
backend application
    server nginx 127.0.0.1:{plain}
frontend outbound
    bind 127.0.0.1:{outbound} backlog 4096
    default_backend remote
backend remote
    server nginx 127.0.0.1:{tls} {mutual_tls}
"""
