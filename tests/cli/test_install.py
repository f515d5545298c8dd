"""``svc install``: which flags each mode takes."""

from __future__ import annotations

from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import UsageRefused
from svc.cli.install.modes import (
    TAKEN_BY,
    Mode,
    RegistryFlags,
    check_flags,
    parse_platforms,
    parse_timeout,
    registry_flags,
    select,
)

_NEEDED: Final[dict[str, Any]] = {"--file": "r.tar", "--mirror-registry": "mirror.example"}


class ModeTests(SynchronousTestCase):
    """The mode, and the table of flags."""

    def refused(self, values: dict[str, Any], *, terminal: bool = False) -> str:
        """Select a mode that cannot be; returns the sentence."""
        return str(self.assertRaises(UsageRefused, select, values, terminal=terminal))

    def test_modes(self) -> None:
        """One flag selects a mode; none the wizard, where a terminal is there and nothing was said yet."""
        self.assertIs(Mode.ONLINE, select({"--online": True}, terminal=False))
        self.assertIs(Mode.DOWNLOAD, select({"--download": True, "--dry-run": True}, terminal=True))
        self.assertIs(Mode.OFFLINE, select({"--offline-install": True, **_NEEDED}, terminal=True))
        self.assertIsNone(select({"--version": "1.0.0"}, terminal=True))
        self.assertIn("the wizard needs a terminal", self.refused({}))
        self.assertIn("--set is given", self.refused({"--set": ("a=1",)}, terminal=True))
        self.assertIn("--online and --download", self.refused({"--online": True, "--download": True}))

    def test_every_flag_in_every_mode(self) -> None:
        """A mode that does not take a flag names it, and those that do."""
        for flag, modes in TAKEN_BY.items():
            for mode in Mode:
                values = {**(_NEEDED if mode is Mode.OFFLINE else {}), "--qhx-username": "", flag: "x"}
                if flag == "--qhx-password" and mode in modes:
                    values["--qhx-username"] = "u"
                if flag == "--mirror-password":
                    values["--mirror-username"] = "u" if mode in modes else ""
                if mode in modes:
                    check_flags(mode, values)
                else:
                    error = self.assertRaises(UsageRefused, check_flags, mode, values)
                    self.assertEqual(f"{mode.value} does not take {flag}", str(error))
                    self.assertIn(next(each.value for each in Mode if each in modes), error.hint)

    def test_flags_that_are_needed(self) -> None:
        """An offline installation needs its package and its mirror."""
        for flag in _NEEDED:
            values = {each: value for each, value in _NEEDED.items() if each != flag}
            self.assertIn(f"needs {flag}", self.refused({"--offline-install": True, **values}))

    def test_contradictions(self) -> None:
        """An authority for HTTP, and a password without its user, are refused."""
        both = {"--online": True, "--qhx-ca-file": "ca.pem", "--qhx-insecure": True}
        self.assertIn("--qhx-ca-file and --qhx-insecure", self.refused(both))
        self.assertIn("needs --qhx-username", self.refused({"--online": True, "--qhx-password": "x"}))

    def test_registry(self) -> None:
        """The flags of both registries have one shape."""
        values = {"--mirror-registry": "m:5000/p", "--mirror-username": "u", "--mirror-insecure": True}
        self.assertEqual(RegistryFlags("m:5000/p", "u", "", "", True), registry_flags(values, "mirror"))
        self.assertEqual(RegistryFlags(""), registry_flags(values, "qhx"))

    def test_timeouts(self) -> None:
        """Durations as Go writes them, between a second and a day."""
        for text, seconds in (("10m0s", 600), ("1h2m3s", 3723), ("90s", 90), ("1.5s", 1.5), ("24h", 86400), ("1s", 1)):
            self.assertEqual(seconds, parse_timeout(text))
        for text in ("", "10", "0s", "24h1s", "5m 3s", "3s5m", "-1s", "1e3s", "999ms"):
            self.assertRaises(ValueError, parse_timeout, text)

    def test_platforms(self) -> None:
        """Systems and architectures, each once."""
        self.assertEqual(("linux/amd64", "linux/arm64"), parse_platforms("linux/amd64,linux/arm64"))
        for text in ("", "linux", "linux/amd64,", "linux/amd64,linux/amd64", "linux/amd64 ", "Linux/amd64"):
            self.assertRaises(ValueError, parse_platforms, text)
