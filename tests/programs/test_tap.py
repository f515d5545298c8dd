"""The plugins of twistd in processes of their own: starts that fail, and the reactor and modules that are loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.authority.keystore import ReadOnlyKeys
from svc.identity import TrustDomain
from svc.process.clock import utc_now
from svc.proxy.startup_checks import opened
from svc.settings import ConfigInvalid
from tests.peers.daemon import environment
from tests.proxy.test_tap import RIGHT as PROXY
from tests.proxy.test_tap import OptionsCase

AUTHORITY = "trustDomain: prod.example\nsocket: unix:///run/svc/agent.sock\n"
BROKER = """
trustDomain: x.org
listeners: [{name: a, listen: "127.0.0.1:8883", tls: {spiffe: true}, acl: []}]
"""
#: Parses options as twistd does, and prints what is loaded after that.
LOADED = """
import sys
from svc.proxy.tap import Options
try:
    Options().parseOptions(sys.argv[1:])
except SystemExit as end:
    print("status", end.code)
reactor = sys.modules.get("twisted.internet.reactor")
print("reactor", type(reactor).__name__)
print([name for name in ("svc.proxy.assembly", "spiffe", "sqlite3") if name in sys.modules])
"""
#: Parses options as twistd does, and prints which reactor that installed.
REACTOR = """
import sys
from svc.authority.tap import Options
options = Options()
options.parseOptions(sys.argv[1:])
reactor = sys.modules.get("twisted.internet.reactor")
print(options["settings"].trustDomain, type(reactor).__name__)
"""


def started(tap: str, config: Path) -> subprocess.CompletedProcess[str]:
    """Make the service of a plugin in a process of its own."""
    program = f"import sys; from {tap} import Options, makeService; options = Options()"
    program += "; options.parseOptions(sys.argv[1:]); makeService(options)"
    command = [sys.executable, "-c", program, "--config", str(config.resolve())]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), timeout=300)


class ProxyLoadedTests(SynchronousTestCase):
    """Which modules are loaded after the options were parsed."""

    def loaded(self, *arguments: str) -> list[str]:
        """Run the program."""
        path = Path(self.mktemp()).absolute()
        path.write_text(PROXY)
        command = [sys.executable, "-c", LOADED, "--config", str(path), *arguments]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=True)
        return done.stdout.replace(str(path), "FILE").splitlines()

    def test_check(self) -> None:
        """Checking a file loads neither a reactor nor the Workload API client nor the database."""
        self.assertEqual(
            self.loaded("--check-config", "--offline"),
            ["FILE is valid", "status 0", "reactor NoneType", "[]"],
        )

    def test_reactor(self) -> None:
        """To run, the proxy's own reactor is installed before anything imports another."""
        self.assertEqual(self.loaded(), ["reactor PlainEPollReactor", "[]"])


class ProxyStartTests(OptionsCase):
    """Starts of the proxy that fail."""

    def test_check_without_driver(self) -> None:
        """A database whose driver is not installed gives one sentence, the install command, and status 1."""
        url = "postgresql:///notary?host=/run/postgresql"
        self.path.write_text(f'{PROXY}notary: {{profile: classical, database: "{url}"}}\n')
        self.assertEqual(self.parse("--config", str(self.path), "--check-config", "--offline")[0], 0)
        program = "import sys; sys.modules['psycopg'] = None; from svc.proxy.tap import Options"
        program += "; Options().parseOptions(sys.argv[1:])"
        command = [sys.executable, "-c", program, "--config", str(self.path.resolve()), "--check-config"]
        done = subprocess.run(command, capture_output=True, check=False, env=environment(), timeout=300)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        error, advice = done.stderr.decode().splitlines()
        self.assertIn("svc: notary.database needs the package psycopg", error)
        self.assertIn("pip install -c constraints.txt '.[postgresql]'", advice)

    def test_policy_files(self) -> None:
        """A policy file that is not valid fails the start with each defect and its name; --offline reads none."""
        policy = Path(self.mktemp()).resolve()
        policy.write_text("{kind: SvcClusterPolicy, apiVersion: svc.internal/v1alpha1, metadata: {name: A}, spec: 1}")
        self.path.write_text(f"{PROXY}policy: {{files: [{policy}]}}\nnotary: {{profile: classical}}\n")
        done = started("svc.proxy.tap", self.path)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual([str(policy)] * 2, [line.split(": ")[1] for line in done.stderr.splitlines()])
        self.assertEqual(0, self.parse("-c", str(self.path), "--check-config", "--offline")[0])
        [check, *_others] = opened(self.options["settings"])
        self.assertEqual(f"policy files {policy}", check.what)
        self.assertRaises(ConfigInvalid, check.test)


class AuthorityTests(SynchronousTestCase):
    """The plugin of the authority."""

    def test_reactor(self) -> None:
        """Settings are read, and the asyncio reactor is installed."""
        path = Path(self.mktemp()).absolute()
        path.write_text(AUTHORITY)
        command = [sys.executable, "-c", REACTOR, "--config", str(path)]
        said = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, check=False)
        self.assertEqual(("prod.example AsyncioSelectorReactor\n", ""), (said.stdout, said.stderr))

    def test_write_keys(self) -> None:
        """``--write-keys`` makes a file that the same configuration starts with, and replaces none."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        path, keys = folder / "authority.yaml", folder / "keys.json"
        path.write_text(
            f"trustDomain: prod.example\nworkloadApi: unix:///run/agent.sock\nkeysFile: {keys}\n"
            "pqIssuer: {listen: '127.0.0.1:0'}\n"
        )
        command = [sys.executable, "-c", REACTOR, "--config", str(path), "--write-keys", str(keys)]
        said = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, check=False)
        self.assertEqual((0, "", ""), (said.returncode, said.stdout, said.stderr))
        self.assertEqual(0o600, keys.stat().st_mode & 0o777)
        found = ReadOnlyKeys(str(keys), TrustDomain("prod.example")).open(utc_now())
        self.assertEqual((0, 1), (len(found.x509), len(found.pq)))
        again = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, check=False)
        self.assertEqual(1, again.returncode)
        self.assertIn(f"new keys cannot be written to {keys}: File exists", again.stderr)


class BrokerTests(SynchronousTestCase):
    """The plugin of the broker."""

    def test_deny_lists(self) -> None:
        """A deny list that is not valid fails the start with each defect and its file."""
        listed, config = Path(self.mktemp()).resolve(), Path(self.mktemp())
        listed.write_text("{kind: SvcDenyList, apiVersion: svc.internal/v1alpha1, metadata: {name: A}, spec: 1}")
        config.write_text(f"{BROKER}policy: {{files: [{listed}]}}\n")
        done = started("svc.broker.tap", config)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual([str(listed)] * 2, [line.split(": ")[1] for line in done.stderr.splitlines()], done.stderr)
