"""``svc context`` and ``svc identity``: transcripts, and the file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from svc import strictyaml
from tests.cli.compartments_kit import CONFIG, HomeCase
from tests.cli.test_transcripts import runs, transcript_of

_FOLDER = Path(__file__).parent / "transcripts"


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
    """The file ``~/.svc/config.yaml``."""

    def test_comments_and_unknown_keys_stay(self) -> None:
        """A change replaces what it is about; a warning names the keys that nothing reads."""
        text = CONFIG.replace(
            "    namespace: team-a\n", "    namespace: team-a  # of the pilot\n    owner: [ann, bob]\n"
        )
        self.configure(f"{text}theme: dark\nauditLog: {{rotate: 3}}\n")
        ran = self.svc("context", "list")
        named = "theme, auditLog.rotate, contexts.de-s-alpha.owner"
        self.assertEqual(f"svc: {self.file} has keys that nothing reads: {named}\n", ran.stderr)
        self.assertEqual(0, self.svc("context", "use", "us-ts-bravo").status)
        switched = text.replace("currentContext: de-s-alpha", "currentContext: us-ts-bravo")
        self.assertEqual(f"{switched}theme: dark\nauditLog: {{rotate: 3}}\n", self.file.read_text())
        self.assertEqual(0, self.svc("context", "delete", "us-ts-bravo", "--force").status)
        document = strictyaml.loads(self.file.read_text())
        assert isinstance(document, dict)
        self.assertEqual((None, "dark"), (document.get("currentContext"), document["theme"]))
        self.assertEqual(["ann", "bob"], document["contexts"]["de-s-alpha"]["owner"])
        self.assertIn("# Contexts of the team.", self.file.read_text())

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

    def test_link(self) -> None:
        """A link to the file stays one."""
        self.configure()
        target = self.home / "dotfiles.yaml"
        self.file.rename(target)
        self.file.symlink_to(target)
        self.assertEqual(0, self.svc("context", "use", "us-ts-bravo").status)
        self.assertTrue(self.file.is_symlink())
        self.assertIn("currentContext: us-ts-bravo", target.read_text())

    def test_refused_change(self) -> None:
        """What is refused changes nothing and leaves nothing behind but the lock."""
        self.configure()
        before = self.file.stat().st_ino
        for words in (("use", "none"), ("delete", "none"), ("delete", "de-s-alpha")):
            self.assertEqual(1, self.svc("context", *words).status)
        self.assertEqual((CONFIG, before), (self.file.read_text(), self.file.stat().st_ino))
        self.assertEqual({"config.yaml", "config.yaml.lock"}, {path.name for path in self.file.parent.iterdir()})

    def test_not_written(self) -> None:
        """A folder that is none is one line with a hint."""
        (self.home / ".svc").write_text("")
        ran = self.svc("context", "use", "de-s-alpha")
        self.assertEqual((1, 2), (ran.status, len(ran.stderr.splitlines())))
        self.assertIn(f"svc: {self.file} cannot be written: not a directory (config_not_written)", ran.stderr)

    def test_every_defect_is_named(self) -> None:
        """All defects are shown, the key and what was expected with each."""
        self.configure(
            CONFIG.replace("sensitivity: S\n", "sensitivity: SECRET\n").replace("compartment: BRAVO", "compartment: 7")
        )
        for words in (("context", "list"), ("context", "use", "de-s-alpha"), ("identity",)):
            ran = self.svc(*words)
            self.assertEqual((1, b""), (ran.status, ran.stdout))
            first, second = ran.stderr.splitlines()
            self.assertEqual(
                f"svc: {self.file} has 2 problem(s): contexts.de-s-alpha.sensitivity: 'SECRET': "
                "expected one of U, C, S, TS (config_invalid)",
                first,
            )
            self.assertEqual("     contexts.us-ts-bravo.compartment: 7: expected text", second)

    def test_no_yaml(self) -> None:
        """What is no strict YAML is refused with its place."""
        self.configure("contexts: {}\ncontexts: {}\n")
        ran = self.svc("context", "current")
        self.assertIn("line 2, column 1: the key contexts appears twice (config_unreadable)", ran.stderr)

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

    def test_missing_context(self) -> None:
        """A current context that is not there is not found, and no variable hides that."""
        self.configure(CONFIG.replace("currentContext: de-s-alpha", "currentContext: de-s-gone"))
        every = {"SVC_COUNTRY": "DE", "SVC_SENSITIVITY": "S", "SVC_COMPARTMENT": "ALPHA"}
        for environ in ({}, every):
            ran = self.svc("identity", **environ)
            self.assertIn("context not found: de-s-gone is not in", ran.stderr)
            self.assertIn("the contexts there are: de-s-alpha, us-ts-bravo", ran.stderr)
        self.assertIn("svc: the current context is not among them: de-s-gone", self.svc("context", "list").stderr)

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
