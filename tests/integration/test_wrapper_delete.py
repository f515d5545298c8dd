"""``svc delete`` and ``describe`` with the real kubectl and a real API server."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

from tests.integration.test_wrapper_get import ListingCase


class DeleteTests(ListingCase):
    """What is deleted, and what is not."""

    def left(self) -> list[str]:
        """The names that are left, in their order."""
        return self.names("cm")

    def refused(self, *words: str, data: str = "") -> None:
        """Delete something of other compartments without a terminal."""
        before = self.left()
        ran = self.svc("delete", *words, data=data)
        self.assertEqual((1, ""), (ran.returncode, ran.stdout))
        self.assertIn("(delete_unconfirmed)", ran.stderr)
        self.assertIn('configmap "other" is in compartment US-TS-BRAVO, current compartment is DE-S-ALPHA', ran.stderr)
        self.assertEqual(before, self.left())

    def manifest(self, *names: str) -> str:
        """A list of ConfigMaps."""
        items = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in names]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    def test_others(self) -> None:
        """Objects of other compartments stay, however they are named, until --force is given."""
        for name in ("own", "other"):
            self.ran("label", "configmap", name, "app=web")
        file = self.home / "objects.json"
        file.write_text(self.manifest("own", "other", "absent"))
        for words in (
            ("cm", "own", "other"),
            ("cm/own", "cm/other", "cm/absent"),
            ("cm", "-l", "app=web"),
            ("cm", "-A", "--selector=app=web"),
            ("configmaps", "--all"),
            ("cm", "--field-selector", "metadata.name=other"),
            ("-f", str(file)),
        ):
            self.refused(*words)
        self.refused("-f", "-", data=self.manifest("own", "other"))
        self.ran("delete", "-f", str(file), "--force", "--ignore-not-found")
        self.assertEqual(["none", "third"], self.left())

    def test_own(self) -> None:
        """Own objects and those of no compartment go at once; what is not there is kubectl's to report."""
        self.assertEqual(f'configmap "own" deleted from {self.first} namespace\n', self.ran("delete", "cm", "own"))
        self.assertIn('"none" deleted', self.ran("delete", "-f", "-", data=self.manifest("none")))
        self.assertEqual(["other", "third"], self.left())
        ran = self.svc("delete", "cm", "gone")
        self.assertEqual(
            (1, 'Error from server (NotFound): configmaps "gone" not found\n'), (ran.returncode, ran.stderr)
        )

    def test_kubectl_force(self) -> None:
        """The flag of kubectl has another name, and warns in kubectl's words."""
        ran = self.svc("delete", "cm", "own", "--kubectl-force")
        self.assertEqual(0, ran.returncode, ran.stderr)
        self.assertIn("Immediate deletion does not wait", ran.stderr)
        self.assertNotIn("Immediate", self.svc("delete", "cm", "none", "--force").stderr)

    def test_dry_run(self) -> None:
        """A dry run deletes nothing and is no question."""
        ran = self.svc("delete", "cm", "other", "--dry-run=server")
        self.assertEqual(0, ran.returncode, ran.stderr)
        self.assertIn('svc: configmap "other" is in compartment US-TS-BRAVO', ran.stderr)
        self.assertIn("other", self.left())


class DescribeTests(ListingCase):
    """``svc describe``."""

    def test_highlighted(self) -> None:
        """A terminal shows the text of kubectl with the label highlighted; without one it is the text alone."""
        plain = self.plain("describe", "cm", "own", "other", "--context=prod", f"--namespace={self.first}").stdout
        self.assertEqual(plain, self.ran("describe", "cm", "own", "other"))
        ours, theirs = pty.openpty()
        with open(ours, "rb", buffering=0) as terminal:
            process = subprocess.Popen(
                [sys.executable, "-m", "svc.cli.entry", "describe", "cm", "own", "other"],
                env={**self.environ, "TERM": "xterm"},
                stdout=theirs,
            )
            os.close(theirs)
            shown = b""
            try:
                while read := terminal.read(1 << 16):
                    shown += read
            except OSError:  # nobody has the other side any more
                pass
            self.assertEqual(0, process.wait(60))
        wanted = plain.replace(
            "svc.internal/compartment=DE-S-ALPHA", "\x1b[1msvc.internal/compartment=DE-S-ALPHA\x1b[0m"
        )
        other = "svc.internal/compartment=US-TS-BRAVO"
        self.assertEqual(wanted.replace(other, f"\x1b[1;33m{other}\x1b[0m"), shown.decode().replace("\r\n", "\n"))
