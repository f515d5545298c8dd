"""The explanation of a disk error: its cause, the free space, and the original message."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing

from twisted.trial.unittest import SynchronousTestCase

from svc.sqlite.disk import explain, message_of


def of_sqlite(code: int, message: str) -> sqlite3.Error:
    """Create an error with a result code."""
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


class ExplainTests(SynchronousTestCase):
    """Errors of SQLite and of the system."""

    def test_causes(self) -> None:
        """Each kind of error has its cause, followed by the free octets and the original message."""
        path = os.path.abspath("notary.db")
        for error, cause, message in (
            (of_sqlite(sqlite3.SQLITE_FULL, "database or disk is full"), "disk full", "database or disk is full"),
            (of_sqlite(sqlite3.SQLITE_IOERR_WRITE, "disk I/O error"), "I/O error", "disk I/O error"),
            (of_sqlite(sqlite3.SQLITE_READONLY, "readonly"), "permission denied", "readonly"),
            (of_sqlite(sqlite3.SQLITE_BUSY, "database is locked"), "locked by another process", "database is locked"),
            (OSError(errno.ENOSPC, "No space left on device"), "disk full", "No space left on device"),
            (OSError(errno.EDQUOT, "over"), "disk quota exceeded", "over"),
            (OSError(errno.EROFS, "read-only"), "read-only file system", "read-only"),
            (OSError(errno.EACCES, "denied"), "permission denied", "denied"),
        ):
            self.assertRegex(explain(path, error), rf"^{cause}, \d+ octets free on its file system: {message}$")

    def test_result_code(self) -> None:
        """The message has the name and the number of SQLite's extended result code."""
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("CREATE TABLE one (number INTEGER UNIQUE)")
            error = self.assertRaises(sqlite3.Error, connection.execute, "INSERT INTO one VALUES (1), (1)")
        message = "UNIQUE constraint failed: one.number (SQLITE_CONSTRAINT_UNIQUE, 2067)"
        self.assertEqual(message, message_of(error))
        self.assertTrue(explain("notary.db", error).endswith(f"octets free on its file system: {message}"))

    def test_unknown(self) -> None:
        """Without a cause, or without a file system to examine, the other parts are returned."""
        self.assertRegex(explain("notary.db", sqlite3.Error("odd")), r"^\d+ octets free on its file system: odd$")
        gone = "/no/such/folder/notary.db"
        self.assertEqual(explain(gone, sqlite3.Error("odd")), "odd")
        message = explain(gone, OSError(errno.ENOENT, "No such file or directory"))
        self.assertEqual(message, "no such file or folder: No such file or directory")
