"""Tests of ``svc files``; that a wheel has the files is in ``tests.integration.test_wheel``."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.files import KINDS
from svc.data import FOLDER
from tests.cli.doubles import run_svc


class FilesTests(SynchronousTestCase):
    """What is printed."""

    def test_every_folder_is_a_kind(self) -> None:
        """Each folder of svc.data is listed, and none that is not there."""
        folders = {path.name for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"}
        self.assertEqual(set(KINDS), folders)
        self.assertEqual(list(KINDS), sorted(KINDS))

    def test_paths_in_the_uses(self) -> None:
        """Each line on use names files that are there, or is about the folder."""
        for kind, (path, _description, use) in self.table().items():
            self.assertEqual(path, str(FOLDER / kind))
            self.assertIn(path, use)
            for word in use.replace("[", " ").replace("]", " ").replace("=", " ").split():
                if word.startswith(path):
                    found = list(Path("/").glob(word.rstrip(",").lstrip("/")))
                    self.assertTrue(found, word)

    def table(self) -> dict[str, tuple[str, str, str]]:
        """Parse the table."""
        ran = run_svc("files")
        self.assertEqual((ran.status, ran.stderr), (0, ""))
        lines = ran.stdout.decode().splitlines()
        found = {}
        for first, description, use in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
            kind, path = first.split(None, 1)
            found[kind] = (path, description.strip(), use.strip())
        return found

    def test_table(self) -> None:
        """The table has every kind, three lines each."""
        self.assertEqual(list(self.table()), list(KINDS))

    def test_one_kind(self) -> None:
        """With a kind, only the folder is printed, for $(...) in a shell."""
        for kind in KINDS:
            self.assertEqual(run_svc("files", kind).stdout.decode(), f"{FOLDER / kind}\n")

    def test_json(self) -> None:
        """The object has what the table has, for all kinds or for one."""
        table = self.table()
        wanted = {k: {"path": p, "description": d, "use": u} for k, (p, d, u) in table.items()}
        self.assertEqual(json.loads(run_svc("files", "-o", "json").stdout), wanted)
        self.assertEqual(json.loads(run_svc("files", "man", "-o", "json").stdout), {"man": wanted["man"]})
