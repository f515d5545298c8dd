"""The configuration of the manager, and its options."""

from __future__ import annotations

from pathlib import Path

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svc.manager.config import ManagerSettings, SpireSettings
from svc.manager.tap import Options
from svc.settings import ConfigInvalid, HostPort, parse


class ManagerConfigTests(SynchronousTestCase):
    """Defaults, and what is refused."""

    def test_defaults(self) -> None:
        """An empty file waits for the ConfigMap, and serves metrics by HTTPS."""
        settings = parse("", ManagerSettings)
        self.assertIsNone(settings.cluster)
        self.assertTrue(settings.metricsSecure)
        self.assertEqual((HostPort("", 9090), "svc-system"), (settings.metricsAddr, settings.namespace))
        given = parse("cluster: {trustDomain: example.org}", ManagerSettings).cluster
        assert given is not None
        self.assertEqual(("svc-system",), given.licenseNamespaces)
        self.assertEqual((None, None), (given.spire, given.networkPolicies))

    def test_spire(self) -> None:
        """Only the address has no default, and a path of any length that is accepted makes a SPIFFE ID."""
        spire = self.spire("server: spire-server:8081")
        self.assertEqual(("/node", 5.0, HostPort("spire-server", 8081)), (spire.parentID, spire.every, spire.server))
        longest = "/" + "n" * 1023
        self.assertEqual(longest, self.spire(f"server: spire-server:8081, parentID: {longest}").parentID)
        for text, expected in (
            ("server: ':8081'", "cluster.spire.server"),
            ("every: 1s", "cluster.spire.server: missing"),
            (f"server: s:1, parentID: {longest}n", "cluster.spire.parentID"),
            ("server: s:1, parentID: node", "cluster.spire.parentID"),
            ("server: s:1, parentID: /", "cluster.spire.parentID"),
            ("server: s:1, parentID: ''", "cluster.spire.parentID"),
            ("server: s:1, every: 0s", "cluster.spire.every"),
            ("server: s:1, spiffeSocketPath: /agent.sock", "cluster.spire.spiffeSocketPath"),
        ):
            with self.assertRaises(ConfigInvalid) as caught:
                self.spire(text)
            self.assertTrue(str(caught.exception.problems[0]).startswith(expected), caught.exception.problems[0])

    def spire(self, text: str) -> SpireSettings:
        """Read the section."""
        given = parse(f"cluster: {{trustDomain: example.org, spire: {{{text}}}}}", ManagerSettings).cluster
        assert given is not None and given.spire is not None
        return given.spire

    def test_refused(self) -> None:
        """The key and the value are named."""
        for text, expected in (
            ("cluster: {}", "cluster.trustDomain: missing"),
            ("cluster: {trustDomain: example.org, licenseNamespaces: []}", "cluster.licenseNamespaces: a list"),
            ("cluster: {trustDomain: example.org, licenseNamespaces: [A]}", "cluster.licenseNamespaces[0]: 'A'"),
            (
                "cluster: {trustDomain: example.org, networkPolicies: {}}",
                "cluster.networkPolicies.monitoringNamespace: missing",
            ),
            (f"namespace: {'n' * 64}", "namespace: 'nnn"),
        ):
            with self.assertRaises(ConfigInvalid) as caught:
                parse(text, ManagerSettings)
            self.assertTrue(str(caught.exception.problems[0]).startswith(expected), caught.exception.problems[0])


class OptionsTests(SynchronousTestCase):
    """The two options of metrics stand above the file."""

    def read(self, address: str | None, secure: str | None) -> ManagerSettings:
        """Read a file with these options."""
        path = Path(self.mktemp())
        path.write_text("cluster: {trustDomain: example.org}\n")
        options = Options()
        options["metrics-bind-address"], options["metrics-secure"] = address, secure
        return options.read(str(path))

    def test_address(self) -> None:
        """``0`` and nothing disable the page."""
        self.assertEqual(HostPort("127.0.0.1", 9), self.read("127.0.0.1:9", None).metricsAddr)
        self.assertIsNone(self.read("0", None).metricsAddr)
        self.assertIsNone(self.read("", None).metricsAddr)
        with self.assertRaises(UsageError):
            self.read("nowhere", None)

    def test_secure(self) -> None:
        """Only true and false are values."""
        self.assertFalse(self.read(None, "false").metricsSecure)
        self.assertTrue(self.read(None, "true").metricsSecure)
        with self.assertRaises(UsageError):
            self.read(None, "no")
