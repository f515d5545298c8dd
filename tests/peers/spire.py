"""
A real SPIRE in a temporary folder: a server, and one agent that a join token attested.

::

    spire = RunningSpire("example.org", entries=[entry("/ns/pay/sa/api")])
    spire.start()
    ...                  # spire.address is unix:///…/agent.sock
    spire.stop()
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from spiffe import WorkloadApiClient
from spiffe.errors import PySpiffeError
from twisted.trial.unittest import SkipTest

from tests.peers.folders import make_folder, remove_folder
from tests.peers.waiting import TOP, NotInTime, end_process, eventually, free_port

NEEDS_TOOLS = ("spire",)
VARIABLE = "SVC_TEST_SPIRE"
_SERVER = """
server {{
    trust_domain = "{domain}"
    bind_address = "127.0.0.1"
    bind_port = "{port}"
    socket_path = "{folder}/api.sock"
    data_dir = "{folder}/server"
    ca_ttl = "24h"
    default_x509_svid_ttl = "{ttl}"
    federation {{ bundle_endpoint {{ address = "127.0.0.1" port = {bundle_port} profile "https_spiffe" {{}} }} }}
    experimental {{ cache_reload_interval = "{interval}" }}
}}
plugins {{
    DataStore "sql" {{
        plugin_data {{ database_type = "sqlite3" connection_string = "{folder}/server/datastore.sqlite3" }}
    }}
    NodeAttestor "join_token" {{ plugin_data {{}} }}
    KeyManager "disk" {{ plugin_data {{ keys_path = "{folder}/server/keys.json" }} }}
}}
"""
_AGENT = """
agent {{
    trust_domain = "{domain}"
    server_address = "127.0.0.1"
    server_port = {port}
    trust_bundle_path = "{folder}/bootstrap.pem"
    socket_path = "{folder}/agent.sock"
    data_dir = "{folder}/agent"
    experimental {{ sync_interval = "{interval}" }}
}}
plugins {{
    NodeAttestor "join_token" {{ plugin_data {{}} }}
    KeyManager "disk" {{ plugin_data {{ directory = "{folder}/agent" }} }}
    WorkloadAttestor "unix" {{ plugin_data {{ discover_workload_path = true }} }}
}}
"""
#: How often the server reads its entries and the agent asks for them; five seconds each where nothing is said.
_INTERVAL = "250ms"


class SpireFailed(Exception):
    """SPIRE ended, was not ready in time, or refused a command; carries what it wrote."""


def programs() -> Path:
    """
    Find SPIRE.

    Returns:
        The folder with ``spire-server`` and ``spire-agent``.

    Raises:
        SkipTest: it has not been built.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        asked = [str(TOP / "bin" / "tools"), "--check", "spire"]
        given = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    folder = Path(given)
    if not given or not all(os.access(folder / name, os.X_OK) for name in ("spire-server", "spire-agent")):
        raise SkipTest("SPIRE is missing: bin/tools spire builds it, with Go 1.26 or newer and gcc")
    return folder


@dataclass(frozen=True)
class Entry:
    """
    A registration entry.

    Args:
        path: of the SPIFFE ID.
        selectors: all of them must match the caller.
        ttl: seconds that X.509-SVIDs are valid; 0 for the server's default.
        federates_with: names of other trust domains.
        admin: whether the identity may use the server's API.
        hint: by which processes that get several SVIDs choose.
    """

    path: str
    selectors: tuple[str, ...]
    ttl: int = 0
    federates_with: tuple[str, ...] = ()
    admin: bool = False
    hint: str = ""


def entry(
    path: str,
    *,
    program: Path | None = None,
    ttl: int = 0,
    federates_with: Sequence[str] = (),
    admin: bool = False,
    hint: str = "",
) -> Entry:
    """
    Make a registration entry for processes of the user that runs the tests.

    Args:
        path: of the SPIFFE ID.
        program: only processes that run it; any program otherwise.
        ttl: seconds that X.509-SVIDs are valid; 0 for the server's default.
        federates_with: names of trust domains whose bundles come with it.
        admin: whether the identity may use the server's API.
        hint: by which processes that get several SVIDs choose.

    Returns:
        The entry.
    """
    selectors = [f"unix:uid:{os.geteuid()}"]
    if program is not None:
        selectors.append(f"unix:path:{program.resolve()}")
    return Entry(path, tuple(selectors), ttl, tuple(federates_with), admin, hint)


class RunningSpire:
    """
    One SPIRE server, its agent and their folder.

    Args:
        trust_domain: its name.
        entries: registration entries; by default one that gives ``/workload`` to this user.
        ttl: the life of X.509-SVIDs where an entry does not say it.
    """

    def __init__(
        self, trust_domain: str = "example.org", *, entries: Sequence[Entry] | None = None, ttl: str = "1h"
    ) -> None:
        self.trust_domain = trust_domain
        self._entries = (entry("/workload"),) if entries is None else tuple(entries)
        self._programs = programs()
        self.folder = make_folder("svc-spire-")
        self.socket_path = self.folder / "agent.sock"
        self.port, self.bundle_port = free_port(), free_port()
        settings = {
            "domain": trust_domain,
            "folder": self.folder,
            "port": self.port,
            "bundle_port": self.bundle_port,
            "ttl": ttl,
            "interval": _INTERVAL,
        }
        for name, template in (("server", _SERVER), ("agent", _AGENT)):
            (self.folder / name).mkdir(mode=0o700)
            (self.folder / f"{name}.conf").write_text(template.format_map(settings))
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        """The address of the Workload API."""
        return f"unix://{self.socket_path}"

    def log(self, name: str) -> str:
        """
        Read what a process wrote.

        Args:
            name: ``server`` or ``agent``.

        Returns:
            All of it.
        """
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> RunningSpire:
        """
        Start both, make the entries and wait until the agent is healthy and serves them.

        Returns:
            Itself.

        Raises:
            SpireFailed: one of them did not get ready.
        """
        self.start_server()
        (self.folder / "bootstrap.pem").write_text(self.bundle("pem"))
        self.start_agent(token=self._token())
        for each in self._entries:
            self.add(each)
        ours = [each for each in self._entries if len(each.selectors) == 1]
        if ours:
            eventually(lambda: {each.path for each in ours} <= set(self.served()), 60, "the agent serving its entries")
        return self

    def start_server(self) -> None:
        """
        Start the server and wait until it is healthy.

        Raises:
            SpireFailed: it did not get healthy.
        """
        self._start("server", "api.sock")

    def start_agent(self, token: str | None = None) -> None:
        """
        Start the agent and wait until it is healthy.

        Args:
            token: a join token; without one it must have been attested before, and its keys lie in its folder.

        Raises:
            SpireFailed: it did not get healthy.
        """
        self._start("agent", "agent.sock", *(("-joinToken", token) if token else ()))

    def kill(self, name: str) -> None:
        """
        End a process as a crash does.

        Args:
            name: ``server`` or ``agent``.
        """
        self._end(name, signal.SIGKILL)

    def lose_data(self) -> None:
        """End both as a crash does, and start them with nothing of what they have kept: other keys, other entries."""
        for name in ("agent", "server"):
            self.kill(name)
            remove_folder(self.folder / name)
            (self.folder / name).mkdir(mode=0o700)
        self.start()

    def stop(self) -> None:
        """End both as an operator does, and remove their folder."""
        for name in ("agent", "server"):
            self._end(name, signal.SIGTERM)
        remove_folder(self.folder)

    def add(self, wanted: Entry) -> str:
        """
        Make a registration entry.

        Args:
            wanted: the entry.

        Returns:
            Its identifier; the agent serves it about half a second later.

        Raises:
            SpireFailed: the server refused it.
        """
        (result,) = json.loads(self.server("entry", "create", *self._described(wanted)))["results"]
        return str(result["entry"]["id"])

    def update(self, identifier: str, wanted: Entry) -> None:
        """
        Replace what an entry says, its SPIFFE ID too.

        Args:
            identifier: what :meth:`add` gave.
            wanted: what it is to say.

        Raises:
            SpireFailed: the server refused it.
        """
        self.server("entry", "update", "-entryID", identifier, *self._described(wanted))

    def remove(self, identifier: str) -> None:
        """
        Take an entry out.

        Args:
            identifier: what :meth:`add` gave.

        Raises:
            SpireFailed: the server refused it.
        """
        self.server("entry", "delete", "-entryID", identifier)

    def served(self) -> list[str]:
        """
        Ask the agent with py-spiffe which identities this process has.

        Returns:
            Their paths; none where the agent denies or does not answer.
        """
        try:
            with WorkloadApiClient(self.address) as client:
                return [each.spiffe_id.path for each in client.fetch_x509_svids(timeout=30.0)]
        except PySpiffeError:
            return []

    def bundle(self, form: str = "spiffe") -> str:
        """
        Export the bundle of the trust domain.

        Args:
            form: ``spiffe`` for JSON, or ``pem``.

        Returns:
            The text.
        """
        return self.server("bundle", "show", "-format", form)

    def federate(self, other: RunningSpire) -> None:
        """
        Follow the bundle endpoint of another SPIRE, beginning with its present bundle.

        Args:
            other: the other one; call it the other way round too where both are to trust.

        Raises:
            SpireFailed: the server refused it.
        """
        bundle = self.folder / f"{other.trust_domain}.json"
        bundle.write_text(other.bundle())
        self.server(
            *("federation", "create", "-trustDomain", other.trust_domain),
            *("-bundleEndpointURL", f"https://127.0.0.1:{other.bundle_port}", "-bundleEndpointProfile", "https_spiffe"),
            *("-endpointSpiffeID", f"spiffe://{other.trust_domain}/spire/server"),
            *("-trustDomainBundlePath", str(bundle), "-trustDomainBundleFormat", "spiffe"),
        )

    def part(self, other: RunningSpire) -> None:
        """
        End the federation with another SPIRE: follow it no more, and forget its bundle, which outlives that.

        Args:
            other: one that was federated with.
        """
        name = f"spiffe://{other.trust_domain}"
        self.server("federation", "delete", "-id", name)
        self.server("bundle", "delete", "-id", name, "-mode", "dissociate")

    def mint(self, path: str, folder: Path, ttl: int = 3600) -> tuple[Path, Path]:
        """
        Let the server make an SVID for which there is no entry.

        Args:
            path: of the SPIFFE ID.
            folder: where its files go.
            ttl: seconds that it is valid.

        Returns:
            The files of certificate and key.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.server("x509", "mint", "-spiffeID", self._id(path), "-ttl", f"{ttl}s", "-write", str(folder))
        return folder / "svid.pem", folder / "key.pem"

    def refresh(self, other: RunningSpire) -> None:
        """
        Read the bundle endpoint of another SPIRE now, instead of a minute later.

        Args:
            other: one that was federated with.
        """
        self.server("federation", "refresh", "-id", other.trust_domain)

    def rotate_root(self) -> None:
        """Make a new root of the trust domain and issue from it; the old one stays in the bundle."""
        prepared = json.loads(self.server("localauthority", "x509", "prepare", "-output", "json"))
        identifier = prepared["prepared_authority"]["authority_id"]
        self.server("localauthority", "x509", "activate", "-authorityID", identifier)

    def server(self, *arguments: str) -> str:
        """
        Give the server a command.

        Args:
            arguments: the command and its options.

        Returns:
            What it answered.

        Raises:
            SpireFailed: it refused.
        """
        command = [str(self._programs / "spire-server"), *arguments, "-socketPath", str(self.folder / "api.sock")]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
        if ran.returncode != 0:
            raise SpireFailed(f"{' '.join(arguments)}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def __enter__(self) -> RunningSpire:
        with ExitStack() as stack:
            stack.callback(self.stop)
            self.start()
            stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _described(self, wanted: Entry) -> list[str]:
        arguments = ["-spiffeID", self._id(wanted.path), "-parentID", self._id("/host"), "-output", "json"]
        for selector in wanted.selectors:
            arguments += ["-selector", selector]
        for other in wanted.federates_with:
            arguments += ["-federatesWith", f"spiffe://{other}"]
        if wanted.admin:
            arguments.append("-admin")
        if wanted.hint:
            arguments += ["-hint", wanted.hint]
        if wanted.ttl:
            arguments += ["-x509SVIDTTL", str(wanted.ttl)]
        return arguments

    def _id(self, path: str) -> str:
        return f"spiffe://{self.trust_domain}{path}"

    def _token(self) -> str:
        made = self.server("token", "generate", "-spiffeID", self._id("/host"), "-output", "json")
        return str(json.loads(made)["value"])

    def _start(self, name: str, socket: str, *options: str) -> None:
        program = str(self._programs / f"spire-{name}")
        config, path = self.folder / f"{name}.conf", self.folder / socket
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [program, "run", "-config", str(config), *options],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._running[name] = process
        ask = [program, "healthcheck", "-socketPath", str(path)]

        def healthy() -> bool:
            if process.poll() is not None:
                raise SpireFailed(f"{name} ended: {self.log(name)[-2000:]}")
            return path.exists() and subprocess.run(ask, capture_output=True, check=False).returncode == 0

        try:
            eventually(healthy, 60, f"a healthy {name}")
        except NotInTime as error:
            raise SpireFailed(f"{name} is not healthy: {self.log(name)[-2000:]}") from error

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            end_process(process, number)
