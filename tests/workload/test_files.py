"""Tests of svc.workload.files."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.workload.files import (
    FileMissing,
    FileRefused,
    FileStamp,
    read_secret,
    read_trusted,
    refuse_open_folder,
    write_atomically,
)


class FolderCase(SynchronousTestCase):
    """A folder that only its owner can write."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o700)
        self.path = self.folder / "bundle.json"


class ReadTrustedTests(FolderCase):
    """Reading a file that contains roots of trust."""

    def setUp(self) -> None:
        super().setUp()
        self.path.write_bytes(b"roots")
        self.path.chmod(0o644)

    def refusal(self, **keys: int) -> str:
        """Why reading it is refused."""
        return str(self.assertRaises(FileRefused, read_trusted, self.path, **keys))

    def test_read(self) -> None:
        """A file that only its owner can write is read."""
        self.assertEqual(read_trusted(self.path), b"roots")

    def test_writable_file(self) -> None:
        """A file that the group or others can write is refused."""
        for mode in (0o664, 0o646, 0o602):
            self.path.chmod(mode)
            self.assertIn("writable by others", self.refusal())

    def test_writable_folder(self) -> None:
        """A folder that others can write is refused, also with the sticky bit."""
        for mode in (0o770, 0o707, 0o1777):
            self.folder.chmod(mode)
            self.assertIn("its folder", self.refusal())

    def test_foreign_owner(self) -> None:
        """A file of a user who is neither root nor the reader is refused."""
        if os.geteuid() != 0:
            raise SkipTest("needs root to give the file away")
        os.chown(self.path, 4711, -1)
        self.assertIn("belongs to user 4711", self.refusal())
        self.assertIn("belongs to user 4711", self.refusal(own_uid=4712))

    def test_own_and_root(self) -> None:
        """Files of root and of the reader are both accepted."""
        if os.geteuid() != 0:
            raise SkipTest("needs root to give the file away")
        os.chown(self.folder, 4711, -1)
        self.assertEqual(read_trusted(self.path, own_uid=4711), b"roots")
        os.chown(self.path, 4711, -1)
        self.assertEqual(read_trusted(self.path, own_uid=4711), b"roots")

    def test_link_out_of_an_open_folder(self) -> None:
        """A link is checked by both folders: a user who can replace the link could choose the roots."""
        open_folder = self.folder / "open"
        open_folder.mkdir()
        link = open_folder / "bundle.json"
        link.symlink_to(self.path.resolve())
        open_folder.chmod(0o777)
        self.assertRaises(FileRefused, read_trusted, link)
        open_folder.chmod(0o755)
        self.assertEqual(read_trusted(link), b"roots")

    def test_link_into_an_open_folder(self) -> None:
        """A safe link to a file in a folder that others can write is refused."""
        open_folder = self.folder / "open"
        open_folder.mkdir()
        target = open_folder / "target"
        target.write_bytes(b"roots")
        open_folder.chmod(0o777)
        link = self.folder / "link"
        link.symlink_to(target.resolve())
        self.assertRaises(FileRefused, read_trusted, link)

    def test_missing(self) -> None:
        """A missing file and a missing folder are reported as missing."""
        self.assertRaises(FileMissing, read_trusted, self.folder / "other")
        self.assertRaises(FileMissing, read_trusted, self.folder / "a" / "b")

    def test_size(self) -> None:
        """The limit is exact."""
        self.assertEqual(read_trusted(self.path, max_bytes=5), b"roots")
        self.assertRaises(FileRefused, read_trusted, self.path, max_bytes=4)

    def test_no_regular_file(self) -> None:
        """A folder or a FIFO in place of the file is refused without waiting for a writer."""
        self.assertRaises(FileRefused, read_trusted, self.folder)
        fifo = self.folder / "fifo"
        os.mkfifo(fifo, 0o600)
        self.assertRaises(FileRefused, read_trusted, fifo)


class ReadSecretTests(FolderCase):
    """Files with a secret."""

    def secret(self, mode: int) -> Path:
        path = self.folder / "secret"
        path.write_bytes(b"s")
        path.chmod(mode)
        return path

    def test_own(self) -> None:
        """A file of the own user is read if nobody else can, in whatever folder."""
        if os.geteuid() == 0:
            path = self.secret(0o600)
            os.chown(path, 1234, -1)
            self.assertEqual(b"s", read_secret(path, own_uid=1234))
            path.chmod(0o640)
            self.assertRaises(FileRefused, read_secret, path, own_uid=1234)
            return
        for mode in (0o600, 0o400):
            self.assertEqual(b"s", read_secret(self.secret(mode)))
        for mode in (0o640, 0o604, 0o620, 0o700):
            self.assertRaises(FileRefused, read_secret, self.secret(mode))

    def test_of_root(self) -> None:
        """One of root may be readable by its group, no more."""
        if os.geteuid():
            raise SkipTest("only root makes files of root")
        for mode in (0o600, 0o640, 0o440):
            self.assertEqual(b"s", read_secret(self.secret(mode), own_uid=1234))
        for mode in (0o644, 0o660, 0o750):
            self.assertRaises(FileRefused, read_secret, self.secret(mode), own_uid=1234)

    def test_foreign_owner(self) -> None:
        """One of another user is refused."""
        path = self.secret(0o600)
        owner = path.stat().st_uid
        if owner == 0:
            os.chown(path, 1235, -1)
        error = self.assertRaises(FileRefused, read_secret, path, own_uid=1234)
        self.assertIn("belongs to user", str(error))

    def test_bounds(self) -> None:
        """One octet too many, no regular file, and no file are errors."""
        path = self.secret(0o600)
        self.assertEqual(b"s", read_secret(path, max_bytes=1))
        self.assertRaises(FileRefused, read_secret, path, max_bytes=0)
        self.assertRaises(FileRefused, read_secret, self.folder)
        self.assertRaises(FileMissing, read_secret, self.folder / "absent")


class RefuseOpenFolderTests(FolderCase):
    """The folder of a socket."""

    def test_permissions(self) -> None:
        """Only a folder that others cannot write is accepted."""
        refuse_open_folder(self.folder)
        self.folder.chmod(0o777)
        self.assertRaises(FileRefused, refuse_open_folder, self.folder)
        self.assertRaises(FileMissing, refuse_open_folder, self.folder / "no")
        self.folder.chmod(0o700)
        self.path.touch()
        self.assertRaises(FileRefused, refuse_open_folder, self.path)


class WriteAtomicallyTests(FolderCase):
    """Replacing a file."""

    def test_written(self) -> None:
        """The file has its content and mode, and nothing else remains in the folder."""
        before = os.umask(0o077)
        self.addCleanup(os.umask, before)
        write_atomically(self.path, b"one")
        write_atomically(self.path, b"two", mode=0o640)
        self.assertEqual(self.path.read_bytes(), b"two")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o640)
        self.assertEqual(os.listdir(self.folder), ["bundle.json"])

    def test_failed(self) -> None:
        """A replacement that fails leaves no temporary file behind."""
        self.path.mkdir()
        self.assertRaises(OSError, write_atomically, self.path, b"one")
        self.assertEqual(os.listdir(self.folder), ["bundle.json"])

    def test_stamp(self) -> None:
        """Each replacement changes the stamp, even with the same content."""
        self.assertIsNone(FileStamp.of(self.path))
        write_atomically(self.path, b"one")
        first = FileStamp.of(self.path)
        self.assertEqual(first, FileStamp.of(self.path))
        write_atomically(self.path, b"one")
        self.assertNotEqual(first, FileStamp.of(self.path))
