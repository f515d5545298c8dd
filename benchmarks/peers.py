"""
Everything that is measured, on one machine: an authority, an application, our proxy, and its peers.

Owns their processes; :mod:`benchmarks.configurations` says what they do. Independent of loads and figures.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding
from spiffe import WorkloadApiClient

from benchmarks import configurations
from benchmarks.configurations import BULK_SIZE, IDENTITY, TRUST_DOMAIN, Ground
from svc.errors import SvcError
from svc.quickstart.processes import Running, answers_tcp, answers_unix, free_port

LEVELS: Final = ("none", "workload", "logRequest", "signRequest")
#: Those of messages through an MQTT listener.
MQTT_LEVELS: Final = ("none", "logRequest", "signRequest")
_BIN: Final = Path(sys.executable).parent
START_SECONDS: Final = 30.0


class PeerMissing(SvcError):
    """{program} is not installed"""

    reason = "peer_missing"
    hint = "as root: apt-get install haproxy stunnel4 caddy nginx-light mosquitto; bin/bench does it where it can"


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
        tls: whether its clients use TLS.
    """

    name: str
    port: int
    pid: int
    tls: bool = True


class Stage:
    """
    The processes of one run, in one folder.

    Args:
        folder: for all its files; its path is short, since it holds Unix sockets.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._processes: list[Running] = []
        self._notaries: dict[int, Path] = {}
        self._ground = Ground(folder, plain=free_port(), tls=free_port())

    @property
    def folder(self) -> Path:
        """The folder of all files of the run."""
        return self._folder

    @property
    def credentials(self) -> Path:
        """The folder of the clients' credentials."""
        return self._ground.credentials

    @property
    def plain_port(self) -> int:
        """Where the application listens without TLS."""
        return self._ground.plain

    def start(self) -> None:
        """
        Start what all measurements of HTTP need: the authority and the application.

        Raises:
            SvcError: what is missing or did not start.
        """
        self.start_authority()
        self._nginx()

    def start_authority(self) -> None:
        """
        Start the authority, and export credentials for the peers.

        Raises:
            SvcError: what is missing or did not start.
        """
        self._authority()
        self._export()

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

    def reload(self, device: Device, **changes: object) -> None:
        """
        Change keys of our proxy's configuration, and have it read.

        Args:
            device: one of its sides.
            changes: by key.
        """
        path = self._folder / f"{self._name(device)}.yaml"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        os.kill(device.pid, signal.SIGHUP)

    def records(self, device: Device, event: str) -> list[dict[str, Any]]:
        """
        Read what our proxy has logged.

        Args:
            device: one of its sides.
            event: the name of an event.

        Returns:
            The attributes of its records, oldest first.
        """
        lines = (self._folder / f"{self._name(device)}.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if f'"{event}"' in line]
        return [record["attributes"] for record in found]

    def _name(self, device: Device) -> str:
        return next(each.name for each in self._processes if each.pid == device.pid)

    # -- What every device needs ---------------------------------------------------------------------------------------

    def _authority(self) -> None:
        socket, pq_socket = self._folder / "agent.sock", self._folder / "pq.sock"
        entry = {"spiffeID": IDENTITY, "uid": os.geteuid(), "ttl": "2h"}
        settings = {
            "trustDomain": TRUST_DOMAIN,
            "adminAddr": "0",
            "socket": f"unix://{socket}",
            "pqIssuer": {"socket": f"unix://{pq_socket}"},
            "entries": [entry],
        }
        config = self._write("authority.yaml", json.dumps(settings))
        command = [*twistd(), "svc-authority", "--config", str(config)]
        self._start("authority", command, lambda: answers_unix(socket) and answers_unix(pq_socket))

    def _export(self) -> None:
        """Take an SVID and the bundle as PEM files, for programs without the Workload API."""
        folder = self.credentials
        folder.mkdir(mode=0o700)
        chain, key, roots = folder / "chain.pem", folder / "key.pem", folder / "roots.pem"
        with WorkloadApiClient(f"unix://{self._folder}/agent.sock") as client:
            context = client.fetch_x509_context(timeout=60.0)
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
        config = self._write("nginx.conf", configurations.nginx(self._ground))
        command = [program("nginx"), "-e", str(self._folder / "nginx.err"), "-c", str(config)]
        self._start("nginx", command, lambda: answers_tcp(self._ground.plain) and answers_tcp(self._ground.tls))

    # -- The devices ---------------------------------------------------------------------------------------------------

    def haproxy(self) -> tuple[Device, Device]:
        """
        Start haproxy with one thread.

        Returns:
            Its inbound and its outbound side.
        """
        inbound, outbound = free_port(), free_port()
        config = self._write(f"haproxy-{inbound}.cfg", configurations.haproxy(self._ground, inbound, outbound))
        running = self._start(
            f"haproxy-{inbound}",
            [program("haproxy"), "-db", "-f", str(config)],
            lambda: answers_tcp(inbound) and answers_tcp(outbound),
        )
        return Device("haproxy", inbound, running.pid), Device("haproxy outbound", outbound, running.pid, tls=False)

    def haproxy_tcp(self, upstream: int | None = None) -> Device:
        """
        Start haproxy with one thread, relaying octets.

        Args:
            upstream: the port that it relays to; that of the application by default.

        Returns:
            The device.
        """
        port = free_port()
        text = configurations.haproxy_tcp(self._ground, port, upstream or self._ground.plain)
        config = self._write(f"haproxy-tcp-{port}.cfg", text)
        running = self._start(
            f"haproxy-tcp-{port}", [program("haproxy"), "-db", "-f", str(config)], lambda: answers_tcp(port)
        )
        return Device("haproxy tcp", port, running.pid)

    def stunnel(self) -> Device:
        """
        Start stunnel; it serves each connection in a thread of its own.

        Returns:
            The device.
        """
        port = free_port()
        config = self._write("stunnel.conf", configurations.stunnel(self._ground, port))
        running = self._start("stunnel", [program("stunnel4"), str(config)], lambda: answers_tcp(port))
        return Device("stunnel", port, running.pid)

    def caddy(self) -> Device:
        """
        Start caddy on one core.

        Returns:
            The device.
        """
        port = free_port()
        config = self._write("caddy.json", json.dumps(configurations.caddy(self._ground, port)))
        command = ["env", "GOMAXPROCS=1", f"HOME={self._folder}", program("caddy"), "run", "--config", str(config)]
        running = self._start("caddy", command, lambda: answers_tcp(port))
        return Device("caddy", port, running.pid)

    def proxy(self, *, options: Sequence[str] = ()) -> dict[str, Device]:
        """
        Start our proxy with one listener for each level of notarization, one for TCP, and one outbound listener.

        Args:
            options: more options of ``twistd``.

        Returns:
            Its sides by level, ``tcp`` and ``outbound``.
        """
        ports = {level: free_port() for level in LEVELS}
        outbound, tcp, admin = free_port(), free_port(), free_port()
        settings = configurations.proxy(self._ground, ports, outbound, tcp, admin, free_port())
        config = self._write(f"proxy-{admin}.yaml", json.dumps(settings))
        command = [*twistd(), *options, "svc-proxy", "--config", str(config)]
        running = self._start(f"proxy-{admin}", command, lambda: _is_ready(admin))
        self._notaries[running.pid] = Path(str(settings["notary"]["path"]))  # type: ignore[index]  # a mapping
        devices = {level: Device(f"ours, {level}", port, running.pid) for level, port in ports.items()}
        devices["tcp"] = Device("ours, tcp", tcp, running.pid)
        devices["outbound"] = Device("ours, outbound", outbound, running.pid, tls=False)
        return devices

    def mqtt_proxy(self, broker: Device) -> dict[str, Device]:
        """
        Start our proxy before a broker, with one listener for each level of notarization.

        Args:
            broker: the broker.

        Returns:
            Its sides by level.
        """
        ports, admin = {level: free_port() for level in MQTT_LEVELS}, free_port()
        settings = configurations.mqtt_proxy(self._ground, ports, broker.port, admin, free_port())
        config = self._write(f"mqtt-proxy-{admin}.yaml", json.dumps(settings))
        command = [*twistd(), "svc-proxy", "--config", str(config)]
        running = self._start(f"mqtt-proxy-{admin}", command, lambda: _is_ready(admin))
        return {level: Device(f"ours, {level}", port, running.pid) for level, port in ports.items()}

    def flooded_proxy(self, upstreams: dict[str, int]) -> dict[str, Device]:
        """
        Start our proxy before servers that are flooded, or flood, and before the application.

        Args:
            upstreams: the ports of the servers by name of a listener.

        Returns:
            Its sides by name of a listener; that before the application is ``http``.
        """
        upstreams = {"http": self._ground.plain, **upstreams}
        ports, admin = {name: free_port() for name in upstreams}, free_port()
        policies = self._write("refusing.yaml", configurations.REFUSING)
        settings = configurations.flooded_proxy(self._ground, policies, ports, upstreams, admin, free_port())
        config = self._write(f"flooded-proxy-{admin}.yaml", json.dumps(settings))
        command = [*twistd(), "svc-proxy", "--config", str(config)]
        running = self._start(f"flooded-proxy-{admin}", command, lambda: _is_ready(admin))
        return {name: Device(f"ours, {name}", port, running.pid) for name, port in ports.items()}

    def notary(self, device: Device) -> Path:
        """
        Find the notary database of a proxy of ours.

        Args:
            device: a side of the proxy.

        Returns:
            Its path.
        """
        return self._notaries[device.pid]

    def twisted_web(self) -> Device:
        """
        Start Twisted's own reverse proxy, ``twisted.web.proxy``, on Twisted's own transports.

        Returns:
            The device.
        """
        script = Path(__file__).with_name("twistedweb.py")
        return self.script("twisted.web", [sys.executable, str(script)])

    def script(self, name: str, command: Sequence[str]) -> Device:
        """
        Start a reverse proxy that takes its port, the application's port and the folder of the credentials.

        Args:
            name: as the table calls it.
            command: the program with its first arguments.

        Returns:
            The device.
        """
        port = free_port()
        arguments = [str(port), str(self._ground.plain), str(self.credentials)]
        running = self._start(name, [*command, *arguments], lambda: answers_tcp(port))
        return Device(name, port, running.pid)

    # -- Processes -----------------------------------------------------------------------------------------------------

    def _start(self, name: str, command: list[str], ready: Callable[[], bool]) -> Running:
        running = Running.start(name, command, self._folder)
        self._processes.append(running)
        running.wait_until(ready, START_SECONDS)
        return running

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text)
        return path


def twistd() -> list[str]:
    """
    Say how a service of ours is started.

    Returns:
        The argument list up to the name of the plugin.
    """
    return [str(_BIN / "twistd"), "--nodaemon", "--pidfile="]


def program(name: str) -> str:
    """
    Find a program, also where Debian keeps those of administrators.

    Args:
        name: its name.

    Returns:
        Its path.

    Raises:
        PeerMissing: it is not installed.
    """
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
