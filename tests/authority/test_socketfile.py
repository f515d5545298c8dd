"""Tests of svc.authority.socketfile."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.authority.socketfile import SocketFile, SocketGroupRefused, SocketUnusable, listen
from svc.workload.files import FileMissing, FileRefused
from tests.refusals import assert_refused


class ListenTests(SynchronousTestCase):
    """Making a listening socket."""

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory(prefix="svc-")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.path = str(self.folder / "a.sock")

    def listen(self, **keys: object) -> SocketFile:
        made = listen(self.path, **keys)  # type: ignore[arg-type]
        self.addCleanup(made.close)
        return made

    def mode(self) -> int:
        return os.stat(self.path).st_mode & 0o7777

    def connect(self) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.path)

    def test_modes(self) -> None:
        """The mode is the requested one, whatever the umask."""
        for umask in (0, 0o022, 0o077, 0o777):
            for mode in (0o600, 0o660, 0o666):
                before = os.umask(umask)
                try:
                    made = listen(self.path, mode=mode)
                finally:
                    os.umask(before)
                self.assertEqual(self.mode(), mode)
                self.connect()
                made.close()

    def test_never_wider(self) -> None:
        """The file is made with mode 0600 even under umask 0, before anything else is done to it."""
        seen: list[int] = []

        class Watched(socket.socket):
            """Reads the mode of the file right after bind."""

            def bind(self, address: object) -> None:
                super().bind(address)  # type: ignore[arg-type]
                seen.append(os.stat(str(address)).st_mode & 0o777)

        before = os.umask(0)
        self.addCleanup(os.umask, before)
        self.listen(mode=0o666, make_socket=Watched)
        self.assertEqual(self.mode(), 0o666)
        self.assertEqual(seen, [0o600])

    def test_group(self) -> None:
        """The group is set."""
        if os.geteuid() != 0:
            raise SkipTest("needs root to give the file away")
        self.listen(mode=0o660, group=4711)
        self.assertEqual(os.stat(self.path).st_gid, 4711)

    def test_group_refused(self) -> None:
        """A group that cannot be set is named in the error with a hint, and nothing is left behind."""

        def refused(*arguments: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        self.patch(os, "chown", refused)
        error = self.assertRaises(SocketGroupRefused, listen, self.path, mode=0o660, group=4711)
        self.assertEqual(
            f"the socket {self.path} cannot be given to the group 4711: Operation not permitted", str(error)
        )
        self.assertIn("CAP_CHOWN", error.hint)
        self.assertFalse(os.path.exists(self.path))
        self.patch(os, "chown", lambda *arguments: None)
        self.listen(mode=0o660, group=4711)

    def test_close(self) -> None:
        """Close removes the file, after which another socket can be made; a second close does nothing."""
        made = self.listen()
        made.close()
        self.assertFalse(os.path.exists(self.path))
        again = self.listen()
        made.close()
        self.assertTrue(os.path.exists(self.path))
        again.close()

    def test_stale(self) -> None:
        """The socket of a process that has exited is replaced."""
        with socket.socket(socket.AF_UNIX) as crashed:
            crashed.bind(self.path)
            crashed.listen()
        self.assertTrue(os.path.exists(self.path))
        self.listen()
        self.connect()

    def test_live(self) -> None:
        """A socket that another process serves is refused, with its path in the error."""
        self.listen()
        self.assertIn(self.path, str(assert_refused(self, "socket_in_use", listen, self.path)))
        self.connect()

    def test_served_by_another_process(self) -> None:
        """So is one of a program that does not use our lock."""
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(self.path)
            foreign.listen()
            assert_refused(self, "socket_in_use", listen, self.path)
            self.connect()

    def test_other_file(self) -> None:
        """A file that is not a socket is never removed."""
        Path(self.path).write_text("precious")
        self.assertRaises(SocketUnusable, listen, self.path)
        self.assertEqual(Path(self.path).read_text(), "precious")

    def test_link(self) -> None:
        """A symbolic link in place of the socket is refused."""
        os.symlink("/etc/passwd", self.path)
        self.assertRaises(SocketUnusable, listen, self.path)

    def test_folder(self) -> None:
        """The folder must exist and be closed to others."""
        self.folder.chmod(0o777)
        self.assertRaises(FileRefused, listen, self.path)
        self.assertRaises(FileMissing, listen, str(self.folder / "no" / "a.sock"))

    def test_failure_leaves_nothing_locked(self) -> None:
        """After a failure the next attempt may succeed."""
        Path(self.path).write_text("x")
        self.assertRaises(SocketUnusable, listen, self.path)
        os.unlink(self.path)
        self.listen()

    def test_foreign_file_stays(self) -> None:
        """A socket that another process has put in place of ours is not removed."""
        made = self.listen()
        os.unlink(self.path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(self.path)
            made.close()
            self.assertTrue(os.path.exists(self.path))
