"""``svc context`` and ``svc identity`` where they ask no kubectl; the rest is in ``tests.programs.kubectl``."""

from __future__ import annotations

from svc import strictyaml
from tests.cli.compartments_kit import CONFIG, HomeCase


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


class IdentityTests(HomeCase):
    """What no transcript shows of ``svc identity``."""

    def test_missing_context(self) -> None:
        """A current context that is not there is not found, and no variable hides that."""
        self.configure(CONFIG.replace("currentContext: de-s-alpha", "currentContext: de-s-gone"))
        every = {"SVC_COUNTRY": "DE", "SVC_SENSITIVITY": "S", "SVC_COMPARTMENT": "ALPHA"}
        for environ in ({}, every):
            ran = self.svc("identity", **environ)
            self.assertIn("context not found: de-s-gone is not in", ran.stderr)
            self.assertIn("the contexts there are: de-s-alpha, us-ts-bravo", ran.stderr)
        self.assertIn("svc: the current context is not among them: de-s-gone", self.svc("context", "list").stderr)
