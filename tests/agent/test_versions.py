"""Files that change together: what a reader sees, and what is left."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.agent.versions import DATA, FilesUnwritable, VersionedFile, VersionedFolder
from svc.errors import SvcError
from svc.workload.files import FileRefused
from tests.peers.folders import short_folder


def files(number: int, *more: VersionedFile) -> list[VersionedFile]:
    """A chain and a key of one renewal."""
    chain = VersionedFile("chain.pem", b"%d chain" % number)
    return [chain, VersionedFile("key.pem", b"%d key" % number, 0o600), *more]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Have another umask."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


class VersionedFolderTests(SynchronousTestCase):
    """One folder."""

    def setUp(self) -> None:
        """Make the folder around it."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.path = short_folder(stack) / "web"
        self.folder = VersionedFolder(str(self.path))

    def left(self) -> list[str]:
        """The names in the folder, without the link to the version."""
        return sorted(each for each in os.listdir(self.path) if each != DATA)

    def mode(self, name: str) -> int:
        return stat.S_IMODE(os.stat(self.path / name).st_mode)

    def test_first(self) -> None:
        """The folder is made, and each name is a link through the version; the umask has no effect."""
        for number, mask in enumerate((0o077, 0)):
            with umask(mask):
                version = self.folder.write(files(number, VersionedFile("others/a.example.pem", b"root")))
            self.assertEqual([version, "chain.pem", "key.pem", "others"], self.left())
            self.assertEqual(version, os.readlink(self.path / DATA))
            self.assertEqual("..data/key.pem", os.readlink(self.path / "key.pem"))
            self.assertEqual(b"%d key" % number, (self.path / "key.pem").read_bytes())
            self.assertEqual(b"root", (self.path / "others" / "a.example.pem").read_bytes())
            modes = [self.mode(name) for name in (".", DATA, "others", "chain.pem", "others/a.example.pem", "key.pem")]
            self.assertEqual([0o755, 0o755, 0o755, 0o644, 0o644, 0o600], modes)

    def test_next(self) -> None:
        """The version before is removed with its keys, and so are names that are not written any more."""
        first = self.folder.write(files(1, VersionedFile("old.pem", b"x")))
        self.assertTrue(self.folder.has(first))
        second = self.folder.write(files(2))
        self.assertEqual([second, "chain.pem", "key.pem"], self.left())
        self.assertEqual([False, True], [self.folder.has(each) for each in (first, second)])

    def test_foreign_files(self) -> None:
        """Other files and links stay; a file with the name of a new one is replaced, a folder is not."""
        self.path.mkdir(mode=0o755)
        (self.path / "key.pem").write_text("of another program")
        (self.path / "notes").write_text("x")
        (self.path / "link").symlink_to("notes")
        self.folder.write(files(1))
        self.assertEqual(["chain.pem", "key.pem", "link", "notes"], self.left()[1:])
        self.assertEqual(b"1 key", (self.path / "key.pem").read_bytes())
        (self.path / "new.pem").mkdir()
        error = self.assertRaises(FilesUnwritable, self.folder.write, files(2, VersionedFile("new.pem", b"")))
        self.assertIn("there is a folder named new.pem", str(error))
        self.assertEqual(b"1 key", (self.path / "key.pem").read_bytes())

    def test_leftovers(self) -> None:
        """What killed processes left is removed, links as links."""
        self.folder.write(files(1))
        (self.path / "..0123").mkdir()
        (self.path / "..0123" / "key.pem").write_text("x")
        outside = self.path.parent / "outside"
        outside.mkdir()
        (self.path / "..new.key.pem").symlink_to(outside)
        (self.path / "..file").write_text("x")
        version = self.folder.write(files(2))
        self.assertEqual([version, "chain.pem", "key.pem"], self.left())
        self.assertTrue(outside.exists())

    def refused(self, number: int, *more: VersionedFile) -> SvcError:
        """Fail to write."""
        return self.assertRaises((FilesUnwritable, FileRefused), self.folder.write, files(number, *more))

    def test_failure(self) -> None:
        """A failure in the middle leaves the files of before and nothing else."""
        version = self.folder.write(files(1))
        error = self.refused(2, VersionedFile("x" * 256, b""))
        self.assertIn("File name too long", str(error))
        self.assertEqual([version, "chain.pem", "key.pem"], self.left())
        self.assertEqual(b"1 key", (self.path / "key.pem").read_bytes())

    def test_folder(self) -> None:
        """A folder that others can write is refused, and so is one that cannot be made."""
        self.path.mkdir()
        self.path.chmod(0o777)
        self.assertEqual("file_refused", self.refused(1).reason)
        self.assertEqual([], self.left())
        self.path.chmod(0o755)
        self.folder.write(files(1))
        self.folder = VersionedFolder(str(self.path / "missing" / "web"))
        self.assertIn("No such file or directory", str(self.refused(1)))

    def test_owner(self) -> None:
        """Files are given to others as a whole, and nothing is left where that is not allowed."""
        if os.geteuid() != 0:
            error = self.refused(1, VersionedFile("of-root.pem", b"x", 0o600, 0, 0))
            self.assertIn("not permitted", str(error))
            self.assertEqual([], self.left())
            raise SkipTest("only root may give files away")
        self.folder.write([VersionedFile("key.pem", b"x", 0o440, 1, 2)])
        status = os.stat(self.path / "key.pem")
        self.assertEqual((1, 2, 0o440), (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)))
        os.chown(self.path, 1, 1)
        self.assertIn("belongs to user 1", str(self.refused(2)))

    def test_reader(self) -> None:
        """A reader that opens the version once, again where it is gone meanwhile, never sees two renewals."""
        self.folder.write(files(0))
        seen: set[int] = set()
        mixed: list[tuple[bytes, bytes]] = []
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                try:
                    key, chain = read_pinned(self.path)
                except FileNotFoundError:
                    continue
                if key.split()[0] != chain.split()[0]:
                    mixed.append((key, chain))
                seen.add(int(key.split()[0]))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(1, 5000):
                self.folder.write(files(number))
                if len(seen) >= 20 and number > 50:
                    break
        finally:
            over.set()
            reader.join()
        self.assertEqual([], mixed)
        self.assertGreaterEqual(len(seen), 20)


def read_pinned(path: Path) -> tuple[bytes, bytes]:
    """Read a key and then its chain, as docs/agent.md says."""
    folder = os.open(path / DATA, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_in(folder, "key.pem"), read_in(folder, "chain.pem")
    finally:
        os.close(folder)


def read_in(folder: int, name: str) -> bytes:
    """Read a file of an open folder."""
    with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
        return file.read()
