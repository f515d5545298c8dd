"""Commands of kubectl that svc has a part in, with a program in place of kubectl."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.compartments_kit import PassedCase

_COLUMN = "--label-columns=svc.internal/compartment"
_ADDED = ["--context=prod", "--namespace=team-a"]


def pod(name: str, label: str = "", **more: Any) -> dict[str, Any]:
    """A pod in a compartment."""
    labels = {"svc.internal/compartment": label} if label else {}
    metadata = {"name": name, "namespace": "team-a", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **more}


class WrappedCase(PassedCase):
    """A configuration, and answers of kubectl."""

    def setUp(self) -> None:
        """Write the configuration."""
        super().setUp()
        self.configure()

    def answer(self, *objects: Any) -> None:
        """Let kubectl show objects when it is asked for some, and print its words otherwise."""
        document = objects[0] if len(objects) == 1 else {"kind": "List", "items": list(objects)}
        (self.home / "objects").write_text(json.dumps(document))
        self.kubectl.write_text(
            "#!/bin/sh\n"
            f"cd '{self.home}'\n"
            'case "$*" in *--output=json*) echo "$KUBERC $*" >> asked; cat objects ;;\n'
            '*) echo "ran $*" ;; esac\n'
        )

    def asked(self) -> list[str]:
        """The words of each question."""
        return (self.home / "asked").read_text().splitlines()


class GetTests(WrappedCase):
    """``svc get``."""

    def test_words(self) -> None:
        """The column and the filters are added behind what was typed, in front of two dashes."""
        self.assertEqual(["get", "pods", *_ADDED, "-o", "wide", _COLUMN], self.passed("get", "pods", "-o", "wide"))
        filtered = self.passed("get", "--compartment", "BRAVO", "-l", "a=b", "--", "pods")
        selector = "--selector=a=b,svc.internal/compartment=DE-S-BRAVO"
        self.assertEqual(["get", *_ADDED, "-l", "a=b", _COLUMN, selector, "--", "pods"], filtered)
        self.assertEqual(["get", *_ADDED, "--raw", "/x"], self.passed("get", "--raw", "/x"))

    def test_named(self) -> None:
        """Named objects are looked at with the credentials of the command, and without preferences of the user."""
        self.answer(pod("a", "DE-S-ALPHA"), pod("b", "US-TS-BRAVO"))
        words = ("get", "pods", "a", "b", "--as=x", "--token", "y", "-o", "name", "--current-compartment")
        shown = self.passed(*words)
        self.assertEqual(["get", "pods", "a", *_ADDED, "--as=x", "--token", "y", "-o", "name"], shown)
        self.assertEqual(
            ["off get --context=prod --namespace=team-a --as=x --token=y --output=json -- pods a b"], self.asked()
        )
        shown = self.passed("get", "pod/a", "pod/b", "--exclude-current-compartment")
        self.assertEqual(["get", "pod.v1./b", *_ADDED, _COLUMN], shown)

    def test_no_objects(self) -> None:
        """An answer that has no objects is refused."""
        for objects in ([1], "x", {"kind": "Pod"}, {"items": [{}]}, {"items": 1}):
            self.answer(objects)
            ran = self.process("get", "pods", "x", "--current-compartment")
            self.assertEqual((1, ""), (ran.returncode, ran.stdout))
            self.assertIn("kubectl get failed: it printed no objects (kubectl_failed)", ran.stderr)

    def test_without_configuration(self) -> None:
        """Without a configuration the command is kubectl's."""
        self.file.unlink()
        self.assertEqual(["get", "pods", "--current-compartment"], self.passed("get", "pods", "--current-compartment"))

    def test_debug(self) -> None:
        """What is said of the added words has no value of a flag that was typed."""
        self.answer(pod("a", "DE-S-ALPHA"), pod("b"))
        ran = self.process("--debug", "get", "pods", "a", "b", "--token=abc", "--current-compartment")
        self.assertNotIn("abc", ran.stderr)
        self.assertIn("abc", ran.stdout)
