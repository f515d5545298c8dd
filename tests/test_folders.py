"""svc.folders, and its use by everything that creates durable folders and files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.authority.keyfile import KeyFile
from svc.client.evidence import save_evidence
from svc.folders import is_absent, make_folder, make_public_folder, sync_folder
from svc.sqlite.connection import open_connection
from svc.sqlite.database import DatabaseFile, prepare_file
from svc.sqlite.quarantine import quarantine
from svc.store.schema import NOTARY
from svc.workload.files import write_atomically
from tests.workload.messages import NOW


class FolderCase(SynchronousTestCase):
    """A temporary folder, and the recorded calls that change it."""

    def setUp(self) -> None:
        """Record calls of mkdir and fsync."""
        self.base = os.path.realpath(self.mktemp())
        os.mkdir(self.base, 0o700)
        self.calls: list[tuple[str, str]] = []
        mkdir, fsync, sync = os.mkdir, os.fsync, os.sync

        def recorded_mkdir(path: str, mode: int = 0o777) -> None:
            mkdir(path, mode)
            self.calls.append(("mkdir", self.named(path)))

        def recorded_fsync(descriptor: int) -> None:
            fsync(descriptor)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                self.calls.append(("fsync", self.named(os.readlink(f"/proc/self/fd/{descriptor}"))))

        self.patch(os, "mkdir", recorded_mkdir)
        self.patch(os, "fsync", recorded_fsync)
        self.patch(os, "sync", lambda: (sync(), self.calls.append(("sync", ""))))

    def named(self, path: str) -> str:
        """A path relative to the folder of the test."""
        return os.path.relpath(path, self.base)

    def path(self, *parts: str) -> str:
        """A path in the folder of the test."""
        return os.path.join(self.base, *parts)


class MakeFolderTests(FolderCase):
    """make_folder and sync_folder."""

    def test_each_level(self) -> None:
        """Each created folder is synchronized in its parent before the next is created."""
        make_folder(self.path("a", "b", "c"))
        made = [("mkdir", "a"), ("fsync", "."), ("mkdir", "a/b"), ("fsync", "a"), ("mkdir", "a/b/c"), ("fsync", "a/b")]
        self.assertEqual(self.calls, made)
        modes = [stat.S_IMODE(os.stat(self.path(*parts)).st_mode) for parts in (("a",), ("a", "b"), ("a", "b", "c"))]
        self.assertEqual(modes, [0o755, 0o755, 0o700])

    def test_public(self) -> None:
        """All may read it, whatever the umask and the folder around it; one that is there stays as it is."""
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o2777)
        self.addCleanup(os.umask, os.umask(0o077))
        self.calls.clear()
        make_public_folder(self.path("open", "a"))
        self.assertEqual(0o755, stat.S_IMODE(os.stat(self.path("open", "a")).st_mode))
        self.assertEqual([("mkdir", "open/a"), ("fsync", "open")], self.calls)
        make_public_folder(self.path("open"))
        self.assertEqual(0o2777, stat.S_IMODE(os.stat(self.path("open")).st_mode))
        self.assertRaises(FileNotFoundError, make_public_folder, self.path("absent", "a"))

    def test_existing_folder(self) -> None:
        """An existing folder is synchronized too: its creator may have been killed before."""
        os.mkdir(self.path("a"))
        self.calls.clear()
        make_folder(self.path("a"))
        self.assertEqual(self.calls, [("fsync", ".")])

    def test_existing_folder_that_cannot_be_synchronized(self) -> None:
        """An existing folder is accepted on a file system that refuses to synchronize it."""

        def refused(descriptor: int) -> None:
            raise OSError(22, "Invalid argument")

        self.patch(os, "fsync", refused)
        os.mkdir(self.path("a"))
        make_folder(self.path("a"))
        self.assertRaises(OSError, make_folder, self.path("b"))

    def test_file_of_that_name(self) -> None:
        """A file at the end or in the middle of the path is an error."""
        Path(self.path("a")).touch()
        self.assertRaises(NotADirectoryError, make_folder, self.path("a"))
        self.assertRaises(NotADirectoryError, make_folder, self.path("a", "b"))

    def test_unreadable_parent(self) -> None:
        """In a folder without read permission all file systems are synchronized."""
        if os.geteuid() == 0:
            opened = os.open

            def refused(path: str, flags: int, *rest: Any) -> int:
                if flags & os.O_DIRECTORY:
                    raise PermissionError(13, "Permission denied", path)
                return opened(path, flags, *rest)

            self.patch(os, "open", refused)
        else:
            os.chmod(self.base, 0o300)
            self.addCleanup(os.chmod, self.base, 0o700)
        make_folder(self.path("a"))
        self.assertEqual(self.calls, [("mkdir", "a"), ("sync", "")])

    def test_sync_of_absent_folder(self) -> None:
        """Synchronizing an absent folder is an error."""
        self.assertRaises(FileNotFoundError, sync_folder, self.path("a"))


class UseTests(FolderCase):
    """Users of folders."""

    def test_database(self) -> None:
        """Folders and file of a database are durable before the first transaction."""
        path = self.path("a", "b", "notary.db")

        def connect(name: str) -> Any:
            connection = open_connection(name)
            connection.set_trace_callback(lambda text: self.calls.append(("sql", text[:5])))
            return connection

        file = DatabaseFile(path, NOTARY, reserve_size=0, connect=connect)
        file.lock()
        file.open(lambda: NOW).close()
        file.close()
        before = self.calls[: self.calls.index(("sql", "BEGIN"))]
        self.assertEqual(
            [each for each in before if each[0] != "sql"],
            [("mkdir", "a"), ("fsync", "."), ("mkdir", "a/b"), ("fsync", "a"), ("fsync", "a/b")],
        )

    def test_database_behind_a_link(self) -> None:
        """The folder of the file itself is synchronized, not that of a link to it."""
        for name in ("links", "files"):
            os.mkdir(self.path(name))
        os.symlink(self.path("files", "notary.db"), self.path("links", "notary.db"))
        self.calls.clear()
        prepare_file(self.path("links", "notary.db"))
        self.assertEqual(self.calls, [("fsync", "files")])

    def test_keys(self) -> None:
        """The folder of keys is durable before the first key is written, and so is the file."""
        os.mkdir(self.path("around"), 0o700)
        self.calls.clear()
        keys = KeyFile(self.path("around", "keys"))
        self.assertIsNone(keys.open())
        self.addCleanup(keys.close)
        self.assertEqual(self.calls, [("mkdir", "around/keys"), ("fsync", "around")])
        keys.replace(b"{}")
        self.assertEqual(self.calls[2:], [("fsync", "around/keys")])

    def test_files(self) -> None:
        """Replaced files, quarantined files and evidence are durable under their new names."""
        write_atomically(self.path("bundle.json"), b"{}")
        Path(self.path("notary.db")).write_bytes(b"x")
        quarantine(self.path("notary.db"), NOW)
        self.assertEqual(self.calls, [("fsync", ".")] * 2)

    def test_evidence(self) -> None:
        """Evidence of an exchange is durable when it is reported as written."""

        class Evidence:
            def serialize(self) -> bytes:
                return b"{}"

        save_evidence(self.path("evidence.json"), Evidence())  # type: ignore[arg-type]
        self.assertEqual(self.calls, [("fsync", ".")])
        self.assertEqual(os.listdir(self.base), ["evidence.json"])


class AbsentTests(FolderCase):
    """Whether there is nothing of a name."""

    def test_absent(self) -> None:
        """A dangling link, a folder and what cannot be looked at are not absent."""
        os.symlink(self.path("gone"), self.path("dangling"))
        os.symlink(self.path("loop"), self.path("loop"))
        Path(self.path("file")).touch()
        found = {
            name: is_absent(self.path(name)) for name in ("gone", "gone/x", "file/x", "file", "dangling", "loop/x")
        }
        expected = {"gone": True, "gone/x": True, "file/x": True, "file": False, "dangling": False, "loop/x": False}
        self.assertEqual(expected, found)
