"""``svc context`` and ``svc identity`` where they ask kubectl, and as several processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

from svc import strictyaml
from tests.cli.compartments_kit import CONFIG, HomeCase
from tests.cli.test_transcripts import runs, transcript_of
from tests.peers.waiting import TOP

_FOLDER = TOP / "tests" / "cli" / "transcripts"


class TranscriptTests(HomeCase):
    """The recorded runs, each with what the runs before it left."""

    def check(self, name: str) -> None:
        """Compare the runs of a transcript."""
        recorded = runs((_FOLDER / name).read_text())
        self.assertTrue(recorded)
        for environ, command, expected in recorded:
            found = transcript_of(command, {**self.environ, **environ}).replace(str(self.home), "HOME")
            self.assertEqual(found.strip(), expected.strip(), command)

    def test_context(self) -> None:
        """Contexts from none to two, and all that is refused on the way."""
        self.check("context.txt")

    def test_identity(self) -> None:
        """The seven fields, and each variable that overrides one of them."""
        self.configure(f"{CONFIG}defaultUserGroups: [team-a, 'oidc:ops']\nkubeconfig: ~/clusters/all\n")
        self.check("identity.txt")

    def test_explicit_switch(self) -> None:
        """With requireExplicitContextSwitch a variable may repeat the current context and not replace it."""
        self.configure(f"{CONFIG}requireExplicitContextSwitch: true\n")
        self.check("explicit-switch.txt")


class FileTests(HomeCase):
    """Changes of the file ``~/.svc/config.yaml``."""

    def test_mode(self) -> None:
        """Folder and file are made for the user alone, and a change takes rights away that others had."""
        words = ("--country=DE", "--sensitivity=S", "--compartment=ALPHA", "--kube-context=prod")
        previous = os.umask(0)
        try:
            self.assertEqual(0, self.svc("context", "create", "de-s-alpha", *words).status)
            modes = [stat.S_IMODE(path.stat().st_mode) for path in (self.file.parent, self.file)]
            self.assertEqual([0o700, 0o600], modes)
            self.file.chmod(0o666)
            self.assertEqual(0, self.svc("context", "use", "de-s-alpha").status)
        finally:
            os.umask(previous)
        self.assertEqual(0o600, stat.S_IMODE(self.file.stat().st_mode))

    def test_changes_at_once(self) -> None:
        """No change of several processes at the same time is lost."""
        self.configure("")
        code = "import sys; from svc.cli.main import main; sys.exit(main())"
        names = [f"de-s-c{number}" for number in range(6)]
        running = [
            subprocess.Popen(
                [sys.executable, "-c", code, "context", "create", name, "--country=DE", "--sensitivity=S"]
                + [f"--compartment={name[5:]}", "--kube-context=prod"],
                env=self.environ,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for name in names
        ]
        self.assertEqual([0] * len(names), [process.wait(120) for process in running])
        document = strictyaml.loads(self.file.read_text())
        assert isinstance(document, dict)
        self.assertEqual(sorted(names), sorted(document["contexts"]))


class IdentityTests(HomeCase):
    """What no transcript shows of ``svc identity``."""

    def test_without_context(self) -> None:
        """Without a file three variables name a compartment, two do not, and none is one line with a hint."""
        ran = self.svc("identity")
        self.assertIn("no context is selected in", ran.stderr)
        self.assertIn("(context_unset)", ran.stderr)
        two = {"SVC_COUNTRY": "DE", "SVC_SENSITIVITY": "S"}
        ran = self.svc("identity", **two)
        self.assertIn("and SVC_COMPARTMENT is not set (compartment_unset)", ran.stderr)
        ran = self.svc("identity", **two, SVC_COMPARTMENT="alpha")
        self.assertEqual(0, ran.status, ran.stderr)
        self.assertIn(b"Compartment: DE-S-ALPHA\n", ran.stdout)
        self.assertIn(b"Kube Context: that of the kubeconfig\n", ran.stdout)

    def test_odd_answers(self) -> None:
        """An answer of kubectl that names no user is a warning, and control characters are escaped."""
        self.configure()
        for answer in ("", "{}", "[]", '{"status": 1}'):
            self.kubectl.write_text(f"#!/bin/sh\ncase \"$*\" in *whoami*) echo '{answer}' ;; *) exit 1 ;; esac\n")
            ran = self.svc("identity")
            self.assertEqual(0, ran.status)
            self.assertIn(b"User: unknown\n", ran.stdout)
            self.assertIn("kubectl auth whoami failed: it printed no user", ran.stderr)
        self.kubectl.write_text("""#!/bin/sh\necho '{"status":{"userInfo":{"username":"a\\u001b[2J"}}}'\n""")
        self.assertIn(b"User: a\\x1b[2J\n", self.svc("identity").stdout)
