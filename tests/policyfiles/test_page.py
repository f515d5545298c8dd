"""The policies of docs/policy.md, each decided as its table says."""

from __future__ import annotations

import os
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.doubles import run_svc

PAGE = Path(__file__).parents[2] / "docs" / "policy.md"


def sections() -> dict[str, list[str]]:
    """The YAML blocks of each numbered heading."""
    text = PAGE.read_text().split("\n## Ten policies\n")[1].split("\n## ")[0]
    parts = re.split(r"^### (\d+\. .+)$", text, flags=re.MULTILINE)[1:]
    return {name: re.findall(r"^```yaml\n(.*?)^```$", body, re.DOTALL | re.MULTILINE) for name, body in _pairs(parts)}


def _pairs(parts: list[str]) -> list[tuple[str, str]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


class PageTests(SynchronousTestCase):
    """What the page promises."""

    def test_ten_policies(self) -> None:
        """Each has a table of cases, and all of them are decided as it says."""
        found = sections()
        self.assertEqual(10, len(found))
        for name, blocks in found.items():
            folder = os.path.abspath(self.mktemp())
            os.makedirs(folder)
            *configurations, policy = blocks
            Path(folder, "policy.yaml").write_text(policy)
            words = ["--trust-domain", "prod.example.org"]
            if configurations:
                Path(folder, "proxy.yaml").write_text(configurations[0])
                words = ["--config", f"{folder}/proxy.yaml"]
            ran = run_svc("policy", "test", *words, f"{folder}/policy.yaml")
            self.assertEqual((0, ""), (ran.status, ran.stderr), f"{name}: {ran.stdout.decode()}{ran.stderr}")
            shadowed = run_svc("policy", "check", *words, f"{folder}/policy.yaml").stdout.decode()
            self.assertNotIn("shadowed", shadowed, name)

    def test_mqtt(self) -> None:
        """The policy of the section on MQTT is decided as its table says, and no rule of it is shadowed."""
        [policy] = re.findall(
            r"^```yaml\n(.*?)^```$",
            PAGE.read_text().split("\n## MQTT\n")[1].split("\n## ")[0],
            re.DOTALL | re.MULTILINE,
        )
        path = self.mktemp()
        Path(path).write_text(policy)
        words = ("--trust-domain", "prod.example.org", path)
        ran = run_svc("policy", "test", *words)
        self.assertEqual((0, b"10 cases, 0 failed\n"), (ran.status, ran.stdout), ran.stderr)
        self.assertNotIn("shadowed", run_svc("policy", "check", *words).stdout.decode())

    def test_break_glass_is_recorded(self) -> None:
        """The rules with a level show it, and the audit rule matches."""
        [policy] = sections()["5. Break-glass"]
        path = self.mktemp()
        Path(path).write_text(policy)
        words = ("--trust-domain", "prod.example.org", "--as", "spiffe://prod.example.org/break-glass", "--path", "/")
        lines = run_svc("policy", "check", *words, path).stdout.decode().splitlines()
        self.assertEqual("notarization: minimum signRequest by the rule emergency of break-glass", lines[1])
        self.assertEqual("audited: the rule emergency-used of break-glass-used", lines[2])

    def test_migration_would_deny(self) -> None:
        """The dry run shows what would be refused."""
        [policy] = sections()["6. Migration in dry run"]
        path = self.mktemp()
        Path(path).write_text(policy)
        words = ("--trust-domain", "prod.example.org", "--as", "spiffe://prod.example.org/ns/web/sa/fe")
        lines = run_svc("policy", "check", *words, "--method", "PUT", path).stdout.decode().splitlines()
        self.assertEqual(["allowed: the rule everybody of as-before"], lines[:1])
        self.assertEqual("dry run: denied: the rule writes of writes-for-shop", lines[1])
