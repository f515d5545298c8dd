"""Databases whose folder is the only one that can be written to, as in a container with a read-only root."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from tests.peers.daemon import environment
from tests.peers.faulty_disk import Breakable
from tests.peers.folders import short_folder
from tests.peers.read_only import read_only

#: More than the 64 KiB of a statement's journal that SQLite keeps in memory by default, and than its cache for sorting.
_STATEMENTS = """
import sqlite3, sys
from datetime import UTC, datetime
from svc.broker.persistence.schema import BROKER
from svc.proxy.mqtt.stored.buffer.schema import BUFFER
from svc.sqlite.connection import open_connection
from svc.sqlite.database import DatabaseFile
from svc.store.schema import NOTARY

ROWS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000) SELECT i FROM n"

def write(connection):
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE IF NOT EXISTS large (number INTEGER NOT NULL UNIQUE, content TEXT NOT NULL)")
    connection.execute("DELETE FROM large")
    connection.execute(f"INSERT INTO large SELECT i, hex(randomblob(400)) FROM ({ROWS})")
    connection.execute("COMMIT")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE large SET number = -number")
    try:
        connection.execute("UPDATE large SET number = CASE number WHEN -8000 THEN -1 ELSE number END, content = 'new'")
    except sqlite3.IntegrityError:
        pass
    print("taken back", connection.execute("SELECT sum(number), count(*) FROM large WHERE content != 'new'").fetchone())
    connection.execute("CREATE INDEX by_content ON large (content)")
    connection.execute("DROP INDEX by_content")
    connection.execute("COMMIT")

def read(connection):
    assert len(connection.execute("SELECT content FROM large ORDER BY content DESC").fetchall()) == 8000

for kind in (NOTARY, BUFFER, BROKER):
    path = f"{sys.argv[1]}/{kind.key}.db"
    file = DatabaseFile(path, kind, reserve_size=0)
    for start in range(2):
        file.lock()
        connection = file.open(lambda: datetime.now(UTC))
        write(connection)
        again = file.reconnect()
        write(again)
        for reader in (open_connection(path), open_connection(f"file:{path}?mode=ro", uri=True)):
            read(reader)
            reader.close()
        again.close()
        connection.close()
        file.close()
"""


class StatementTests(SynchronousTestCase):
    """Statements for which SQLite would make a temporary file."""

    def test_large_statements(self) -> None:
        """Each kind of database takes back a large statement and sorts, over each kind of its connections."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            command = [*read_only(folder), sys.executable, "-B", "-c", _STATEMENTS, str(folder)]
            done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=300)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertEqual([f"taken back ({-8000 * 8001 // 2}, 8000)"] * 12, done.stdout.splitlines())


class _ReadOnlyProxy(Breakable):
    """A proxy that can write to its own folder alone, which is not its current one."""

    executed = True

    def command(self, *options: str) -> list[str]:
        return [*read_only(self.folder), *super().command(*options)]


class BurstTests(SynchronousTestCase):
    """A real proxy and many requests at once."""

    def test_receipts(self) -> None:
        """Of 128 requests for receipts at once, three times, each is answered and its receipt served."""
        with ExitStack() as stack:
            proxy = _ReadOnlyProxy(stack)
            proxy.serve()
            connections = [stack.enter_context(proxy.connect()) for _number in range(128)]
            for _round in range(3):
                nonces = [new_nonce(os.urandom(16)) for _connection in connections]
                for connection, nonce in zip(connections, nonces, strict=True):
                    fields = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {nonce}\r\n"
                    connection.send(f"GET / HTTP/1.1\r\nHost: test\r\n{fields}\r\n".encode())
                answers = [connection.read() for connection in connections]
                self.assertEqual([], [each.body for each in answers if each.status != 200])
                proxy.acknowledged += nonces
            self.assertEqual([], proxy.records("svc.store.failed"))
            self.assertEqual([], proxy.lost())
