"""The systemd units of the package against the configuration that they start with."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import svc
from svc.proxy.config import NotarySettings, ProxySettings
from svc.settings import Settings

UNITS = Path(svc.__file__).parent / "data" / "units"
HARDENING = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "SystemCallArchitectures": "native",
    "LimitCORE": "0",
}
#: How long the store may take to close after the drain.
CLOSING = 10


def unit(name: str) -> ConfigParser:
    """Read a unit; a key that appears twice is an error."""
    found = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    found.optionxform = str  # type: ignore[assignment]  # the keys of units have capitals
    found.read_string((UNITS / name).read_text())
    return found


def default(model: type[Settings], key: str) -> object:
    """The default of a key."""
    return model.model_fields[key].default


class UnitTests(SynchronousTestCase):
    """``svc/data/units``."""

    def test_names(self) -> None:
        """There is one unit for each daemon, and one for several proxies; each names its own file."""
        names = sorted(path.name for path in UNITS.iterdir())
        self.assertEqual(
            names,
            [f"svc-{each}.service" for each in ("agent", "authority", "broker", "proxy", "proxy@")],
        )
        for name in names:
            first = (UNITS / name).read_text().partition("\n")[0]
            self.assertEqual(first, f"# /etc/systemd/system/{name}")
            self.assertEqual(unit(name).sections(), ["Unit", "Service", "Install"])

    def test_commands(self) -> None:
        """Each starts the daemon that it is named after, in the foreground, with the file that was checked before."""
        for name in ("agent", "authority", "broker", "proxy", "proxy@"):
            service = unit(f"svc-{name}.service")["Service"]
            plugin = f"svc-{name.removesuffix('@')}"
            file = f"{name.removesuffix('@')}{'-%i' if '@' in name else ''}.yaml"
            arguments = f"{plugin} --config /etc/svc/{file}"
            self.assertEqual(service["ExecStart"], f"/opt/svc/.venv/bin/twistd --nodaemon --pidfile= {arguments}")
            self.assertEqual(service["ExecStartPre"], f"/opt/svc/.venv/bin/twistd {arguments} --check-config --offline")

    def test_start(self) -> None:
        """A unit is started when its process serves; the process itself bounds how long that may take."""
        for path in UNITS.iterdir():
            service = unit(path.name)["Service"]
            self.assertEqual((service["Type"], service["TimeoutStartSec"]), ("notify", "infinity"))

    def test_hardening(self) -> None:
        """Each has what docs/security.md lists; only the authority runs as root, with two capabilities."""
        for path in UNITS.iterdir():
            service = unit(path.name)["Service"]
            for key, value in HARDENING.items():
                self.assertEqual(service[key], value, (path.name, key))
            if path.name == "svc-authority.service":
                self.assertNotIn("User", service)
                self.assertEqual(service["CapabilityBoundingSet"], "CAP_SYS_PTRACE CAP_CHOWN")
            else:
                self.assertEqual((service["ProtectHome"], service["PrivateTmp"]), ("yes", "yes"))
                self.assertEqual(service["StateDirectoryMode"], "0700")

    def test_agent(self) -> None:
        """The agent may give files away and send signals, nothing else; its files outlive it."""
        service = unit("svc-agent.service")["Service"]
        for key in ("AmbientCapabilities", "CapabilityBoundingSet"):
            self.assertEqual(service[key], "CAP_CHOWN CAP_KILL")
        self.assertEqual(service["User"], "svc-agent")
        kept = (service["RuntimeDirectory"], service["RuntimeDirectoryMode"], service["RuntimeDirectoryPreserve"])
        self.assertEqual(kept, ("svc-agent", "0755", "yes"))

    def test_folders(self) -> None:
        """The defaults lie in the folders that systemd makes, and others can reach the sockets of the authority."""
        proxy, authority = unit("svc-proxy.service")["Service"], unit("svc-authority.service")["Service"]
        database = default(NotarySettings, "path")
        self.assertEqual(database, f"/var/lib/{proxy['StateDirectory']}/notary.db")
        self.assertEqual((authority["RuntimeDirectory"], authority["RuntimeDirectoryMode"]), ("svc", "0755"))
        self.assertEqual(authority["StateDirectoryMode"], "0755")
        for path in UNITS.iterdir():
            service = unit(path.name)["Service"]
            self.assertEqual(service["WorkingDirectory"], f"/var/lib/{service['StateDirectory']}")

    def test_stop(self) -> None:
        """systemd waits longer than a drain and the end of the store take."""
        drain = default(ProxySettings, "drainTimeout")
        assert isinstance(drain, float)
        for name in ("svc-proxy.service", "svc-proxy@.service"):
            self.assertGreater(float(unit(name)["Service"]["TimeoutStopSec"]), drain + CLOSING)

    def test_template(self) -> None:
        """The unit for several proxies differs in names alone."""
        text = (UNITS / "svc-proxy.service").read_text()
        for one, several in (
            ("svc-proxy.service", "svc-proxy@.service"),
            ("Description=svc-proxy", "Description=svc-proxy of %i"),
            ("User=svc-proxy", "User=svc-%i"),
            ("/etc/svc/proxy.yaml", "/etc/svc/proxy-%i.yaml"),
            ("StateDirectory=svc\n", "StateDirectory=svc-proxy-%i\n"),
            ("/var/lib/svc\n", "/var/lib/svc-proxy-%i\n"),
        ):
            self.assertIn(one, text)
            text = text.replace(one, several)
        self.assertEqual(text, (UNITS / "svc-proxy@.service").read_text())
