"""Commands of kubectl that are passed on: the words, and the configuration as JSON."""

from __future__ import annotations

import json
import os
import stat
from typing import Final

from svc.cli.commands import COMMANDS
from svc.cli.compartments.compiled import SUFFIX
from svc.compartments.verbs import VERBS
from tests.cli.compartments_kit import CONFIG, PassedCase

_ADDED: Final = ["--context=prod", "--namespace=team-a"]


class WordsTests(PassedCase):
    """The words that kubectl gets."""

    def test_context(self) -> None:
        """Context, namespace and kubeconfig of the configuration; the environment wins over the latter."""
        self.configure(f"{CONFIG}kubeconfig: ~/clusters\n")
        self.assertEqual(["top", "pods", *_ADDED, "-o", "wide"], self.passed("top", "pods", "-o", "wide"))
        self.assertEqual(f"{self.home}/clusters", self.variables["KUBECONFIG"])
        self.passed("top", "pods", KUBECONFIG="/other")
        self.assertEqual("/other", self.variables["KUBECONFIG"])

    def test_flags_in_front(self) -> None:
        """Global flags in front of a command are ours, those behind it are kubectl's, whatever their names."""
        self.configure()
        words = ("--log-format", "json", "-v=-2", "top", "-v", "9", "--debug", "--help", "--version")
        self.assertEqual(["top", *_ADDED, "-v", "9", "--debug", "--help", "--version"], self.passed(*words))
        ran = self.svc("--debug", "--log-devel=false", "top", "pods")
        self.assertEqual(1, ran.status)
        self.assertIn("--debug=true contradicts --log-devel=false", ran.stderr)

    def test_local(self) -> None:
        """What uses no cluster needs no context and gets none."""
        self.configure("kubeconfig: /clusters\n")
        for words in (("config", "view"), ("kustomize", "."), ("options",)):
            self.assertEqual(list(words), self.passed(*words))
            self.assertEqual("/clusters", self.variables["KUBECONFIG"])
        self.assertEqual(["help", "get"], self.passed("help", "get"))

    def test_plugins(self) -> None:
        """Any word that is none of ours may be a plugin; one that is nearly ours only if there is that plugin."""
        self.configure()
        self.assertEqual(["neat", "top", *_ADDED, "-o", "x"], self.passed("neat", "top", "-o", "x"))
        for name in ("licens", "licens-all"):
            self.assertIn("did you mean license?", self.svc(name).stderr)
            plugin = self.home / f"kubectl-{name.replace('-', '_')}"
            plugin.write_text("#!/bin/sh\n")
            plugin.chmod(0o755)
            self.assertEqual([name, *_ADDED], self.passed(name, PATH=str(self.home)))

    def test_every_known_command_is_quick(self) -> None:
        """No command of kubectl is one of ours, but for those that both have."""
        self.assertEqual(set(), VERBS & set(COMMANDS))


class CompiledTests(PassedCase):
    """The configuration as JSON beside the YAML."""

    @property
    def kept(self) -> str:
        """The path of the file."""
        return f"{self.file}{SUFFIX}"

    def test_changes(self) -> None:
        """Each change of the YAML counts at once, however it was made, and the file follows."""
        for context, added in (("de-s-alpha", _ADDED), ("us-ts-bravo", ["--context=stage"]), ("de-s-alpha", _ADDED)):
            self.configure(CONFIG.replace("currentContext: de-s-alpha", f"currentContext: {context}"))
            for _again in range(2):
                self.assertEqual(["top", *added], self.passed("top"))
            with open(self.kept) as file:
                self.assertEqual(self.file.read_text(), json.load(file)["source"])
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.kept).st_mode))

    def test_same_value(self) -> None:
        """All keys are the same by the file as by the YAML."""
        self.configure(
            f"{CONFIG}defaultUserGroups: [a, b]\nkubeconfig: k\nrequireExplicitContextSwitch: true\n"
            "auditLog: {enabled: true, path: /x, level: debug}\npodTemplates: {R.x: [a, b]}\n"
        )
        from svc.cli.compartments.compiled import load

        first = load(self.environ)
        self.assertTrue(os.path.exists(self.kept))
        self.assertEqual(first, load(self.environ))
        assert first is not None
        self.assertEqual((("a", "b"), {"R.x": ("a", "b")}), (first.default_groups, first.templates))

    def test_used(self) -> None:
        """The file is what is read: a value that it alone has shows."""
        self.configure()
        self.passed("top")
        with open(self.kept) as file:
            text = file.read()
        with open(self.kept, "w") as file:
            file.write(text.replace('"prod"', '"other"'))
        self.assertEqual(["top", "--context=other", "--namespace=team-a"], self.passed("top"))

    def test_damaged(self) -> None:
        """A file that is damaged, or of another version, is made anew."""
        self.configure()
        self.passed("top")
        with open(self.kept) as file:
            good = file.read()
        document = json.loads(good)
        for text in (
            "",
            "{",
            "[]",
            "\udcff",
            json.dumps({**document, "version": "0"}),
            json.dumps({**document, "config": {}}),
            json.dumps({**document, "config": {**document["config"], "contexts": {"x": {}}}}),
            json.dumps({**document, "config": {**document["config"], "more": 1}}),
        ):
            with open(self.kept, "w", errors="surrogateescape") as file:
                file.write(text)
            self.assertEqual(["top", *_ADDED], self.passed("top"), text)
            with open(self.kept) as file:
                self.assertEqual(good, file.read())

    def test_not_kept(self) -> None:
        """Where the file cannot be made, the YAML is read each time."""
        self.configure()
        os.mkdir(self.kept)
        for _again in range(2):
            self.assertEqual(["top", *_ADDED], self.passed("top"))
