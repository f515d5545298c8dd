"""Tests of completion."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.doubles import run_svc


def offered(*words: str) -> tuple[list[str], int]:
    """The values and the directive that ``__complete`` prints."""
    ran = run_svc("__complete", *words, environ={"SVC_KUBECTL": "/proc/nonexistent/kubectl"})
    *lines, directive = ran.stdout.decode().splitlines()
    return [line.partition("\t")[0] for line in lines], int(directive.removeprefix(":"))


class CandidateTests(SynchronousTestCase):
    """The completions of an unfinished word."""

    def test_flags(self) -> None:
        """Flags of the command and global ones are offered, one that was given and does not repeat is not."""
        found, directive = offered("curl", "--")
        self.assertIn("--inject-faults", found)
        self.assertIn("--spiffe-socket-path", found)
        self.assertNotIn("--log-level", found)
        self.assertEqual(directive, 4)
        self.assertEqual(offered("curl", "--silent", "--sil"), ([], 4))
        self.assertEqual(offered("curl", "--header", "a: b", "--hea"), (["--header"], 4))

    def test_values(self) -> None:
        """Fixed choices are offered as the next word and behind an equals sign."""
        self.assertEqual(offered("curl", "-n", ""), (["workload", "logRequest", "signRequest"], 4))
        self.assertEqual(offered("curl", "--profile=c"), (["--profile=classical", "--profile=cnsa2"], 4))
        self.assertEqual(offered("curl", "--validate=f"), (["--validate=false"], 4))
        self.assertEqual(offered("curl", "-X", "P"), ([], 4))
        self.assertEqual(offered("status", "--watch="), ([], 4))
        self.assertEqual(offered("status", "--watch", "-o", ""), (["text", "json"], 4))

    def test_files(self) -> None:
        """The shell completes files where a file is meant."""
        self.assertEqual(offered("verify", ""), ([], 0))
        self.assertEqual(offered("verify", "--pq-bundle", ""), ([], 0))
        self.assertEqual(offered("verify", "--pq-bundle="), ([], 0))
        self.assertEqual(offered("receipts", "export", "--output", ""), ([], 0))
        self.assertEqual(offered("curl", "https"), ([], 4))

    def test_shells(self) -> None:
        """The shells are offered once."""
        self.assertEqual(offered("completion", ""), (["bash", "fish", "zsh"], 4))
        self.assertEqual(offered("completion", "bash", ""), ([], 4))

    def test_kinds_of_files(self) -> None:
        """The kinds of svc files are offered once."""
        self.assertEqual(offered("files", "s"), (["schemas"], 4))
        self.assertEqual(offered("files", "schemas", ""), ([], 4))


class ScriptTests(SynchronousTestCase):
    """The scripts."""

    def test_unknown_shell(self) -> None:
        """Another shell is refused with those that work."""
        ran = run_svc("completion", "tcsh")
        self.assertEqual(ran.status, 1)
        self.assertEqual(ran.stderr, 'svc: completion takes no shell "tcsh"\n     expected: one of bash, fish, zsh\n')

    def test_scripts_ask_the_program(self) -> None:
        """Each script calls svc __complete."""
        for shell in ("bash", "fish", "zsh"):
            ran = run_svc("completion", shell)
            self.assertEqual(ran.status, 0)
            self.assertIn(b"__complete", ran.stdout)
