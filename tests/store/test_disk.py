"""Tests of svc.store.disk: the cause of a refusal, the room that is left, and what was said."""

from __future__ import annotations

import errno
import os
import sqlite3

from twisted.trial.unittest import SynchronousTestCase

from svc.store.disk import refusal


def of_sqlite(code: int, said: str) -> sqlite3.Error:
    """An error with a result code."""
    error = sqlite3.OperationalError(said)
    error.sqlite_errorcode = code
    return error


class RefusalTests(SynchronousTestCase):
    """Errors of SQLite and of the system."""

    def test_causes(self) -> None:
        """Each kind has its cause; behind it are the free octets and the words of who refused."""
        path = os.path.abspath("notary.db")
        for error, cause, said in (
            (of_sqlite(sqlite3.SQLITE_FULL, "database or disk is full"), "disk full", "database or disk is full"),
            (of_sqlite(sqlite3.SQLITE_IOERR_WRITE, "disk I/O error"), "I/O error", "disk I/O error"),
            (of_sqlite(sqlite3.SQLITE_READONLY, "readonly"), "permission denied", "readonly"),
            (of_sqlite(sqlite3.SQLITE_BUSY, "database is locked"), "locked by another process", "database is locked"),
            (OSError(errno.ENOSPC, "No space left on device"), "disk full", "No space left on device"),
            (OSError(errno.EDQUOT, "over"), "disk quota exceeded", "over"),
            (OSError(errno.EROFS, "read-only"), "read-only file system", "read-only"),
            (OSError(errno.EACCES, "denied"), "permission denied", "denied"),
        ):
            self.assertRegex(refusal(path, error), rf"^{cause}, \d+ octets free on its file system: {said}$")

    def test_unknown(self) -> None:
        """Without a cause, or without a file system to ask, the rest is said."""
        self.assertRegex(refusal("notary.db", sqlite3.Error("odd")), r"^\d+ octets free on its file system: odd$")
        gone = "/no/such/folder/notary.db"
        self.assertEqual(refusal(gone, sqlite3.Error("odd")), "odd")
        said = refusal(gone, OSError(errno.ENOENT, "No such file or directory"))
        self.assertEqual(said, "no such file or folder: No such file or directory")
