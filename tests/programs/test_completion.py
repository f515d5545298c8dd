"""Completion by kubectl, which is missing, and by a real shell."""

from __future__ import annotations

import shutil
import subprocess

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.cli.doubles import run_svc
from tests.cli.test_completion import offered


class CandidateTests(SynchronousTestCase):
    """Words for which kubectl is asked as well."""

    def test_commands(self) -> None:
        """Commands are completed from their first letters; the hidden one never is."""
        commands = [
            "broker",
            "check",
            "completion",
            "context",
            "curl",
            "federation",
            "files",
            "help",
            "identity",
            "install",
            "license",
            "mqtt",
            "policy",
            "receipts",
            "status",
            "verify",
            "version",
        ]
        self.assertEqual(offered(""), (commands, 4))
        self.assertEqual(offered("policy", ""), (["check", "test"], 4))
        self.assertEqual(offered("context", ""), (["create", "current", "delete", "list", "use"], 4))
        self.assertEqual(offered("license", ""), (["info", "install", "status"], 4))
        self.assertEqual(offered("license", "info", "-o", ""), (["text", "json", "yaml"], 4))
        self.assertEqual(offered("license", "info", ""), ([], 0))
        self.assertEqual(offered("federation", "inspect", ""), (["bootstrap-package"], 4))
        self.assertEqual(offered("federation", "inspect", "bootstrap-package", "-f", ""), ([], 0))
        self.assertEqual(offered("help", "policy", "c"), (["check"], 4))
        self.assertEqual(offered("cu"), (["curl"], 4))
        self.assertEqual(offered("-v", "-2", "ver"), (["verify", "version"], 4))
        self.assertEqual(offered("help", "v"), (["verify", "version"], 4))
        self.assertEqual(offered("nonsense", ""), ([], 4))
        self.assertEqual(offered("mqtt", "dead-letters", ""), (["delete", "list", "send"], 4))
        self.assertEqual(offered("receipts", ""), (["export", "list", "show"], 4))
        self.assertEqual(offered("help", "receipts", "l"), (["list"], 4))
        self.assertEqual(offered("receipts", "list", "--outcome", "t"), (["timeout"], 4))

    @given(st.lists(st.text("-=abcuvrl ", max_size=5), max_size=5))
    def test_any_words(self, words: list[str]) -> None:
        """Any words are accepted; every candidate begins with what was typed."""
        found, _directive = offered(*words)
        self.assertTrue(all(value.startswith(words[-1] if words else "") for value in found))


class ScriptTests(SynchronousTestCase):
    """The script of bash."""

    def bash(self, line: str, answer: str) -> list[str]:
        """Complete a line in a real bash, in which svc is a function that gives a fixed answer."""
        if shutil.which("bash") is None:
            self.skipTest("bash is not installed")
        script = run_svc("completion", "bash").stdout.decode()
        words = line.split(" ")
        setup = f"""
svc() {{ shift; printf '<%s>' "$@" >&3; printf '%s' "$ANSWER"; }}
{script.replace("2>/dev/null", "")}
COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
__svc_complete
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        ran = subprocess.run(
            ["bash", "-c", f"exec 3>&2; {setup}"], capture_output=True, text=True, env={"ANSWER": answer}, check=False
        )
        self.asked = ran.stderr
        return ran.stdout.split("\n")[:-1]

    def test_bash(self) -> None:
        """bash takes the values without their descriptions, and only those that fit."""
        found = self.bash("svc cu", "curl\\tsend\ncompletion\\tx\n:4\n".replace("\\t", "\t"))
        self.assertEqual((found, self.asked), (["curl"], "<cu>"))

    def test_bash_equals_sign(self) -> None:
        """bash splits at an equals sign; the program gets the whole word and bash only what follows it."""
        found = self.bash("svc curl --profile = c", "--profile=classical\n--profile=cnsa2\n:4\n")
        self.assertEqual((found, self.asked), (["classical", "cnsa2"], "<curl><--profile=c>"))
