"""The configuration of the manager, and its options."""

from __future__ import annotations

from pathlib import Path

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svc.manager.config import ManagerSettings
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

    def test_refused(self) -> None:
        """The key and the value are named."""
        for text, expected in (
            ("cluster: {}", "cluster.trustDomain: missing"),
            ("cluster: {trustDomain: example.org, licenseNamespaces: []}", "cluster.licenseNamespaces: a list"),
            ("cluster: {trustDomain: example.org, licenseNamespaces: [A]}", "cluster.licenseNamespaces[0]: 'A'"),
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
