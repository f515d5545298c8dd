"""Files that cannot be made, that a killed process left, and that must not be in the repository."""

from __future__ import annotations

import os
import subprocess
import sys

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.peers.daemon import environment
from tests.peers.read_only import read_only
from tests.peers.waiting import TOP
from tests.sqlite.test_quarantine import DamageCase

_KEEP = """
from svc.cli.curl.body import IN_MEMORY, BufferedBody
body = BufferedBody(2 * IN_MEMORY)
body.got_body(b"x" * IN_MEMORY)
print("kept", body.size == IN_MEMORY)
try:
    body.got_body(b"x")
except Exception as error:
    print(error.reason, error, error.hint, sep="; ")
"""


class BufferedBodyTests(SynchronousTestCase):
    """A body that is kept back, where folders are read-only."""

    def test_no_folder_for_files(self) -> None:
        """Where no file can be made, 1 MiB is kept in memory; one octet more is refused with what is missing."""
        command = [*read_only(), sys.executable, "-c", _KEEP]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=60)
        kept, refused = done.stdout.splitlines()
        self.assertEqual("kept True", kept)
        reason, message, hint = refused.split("; ")
        self.assertEqual("spool_missing", reason)
        self.assertIn("no folder takes one: no usable temporary directory found in ['/tmp'", message)
        self.assertEqual("set TMPDIR to a folder that this user can write, in Kubernetes an emptyDir", hint)


class InterruptedTests(DamageCase):
    """Databases of killed processes."""

    def test_interrupted_creation(self) -> None:
        """A file whose creation was interrupted, with its rollback journal beside it, is created again."""
        os.makedirs(self.folder)
        # A process that is killed during its first write.
        script = (
            "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
            "c.execute('PRAGMA user_version = 0'); c.execute('PRAGMA page_size = 4096'); c.execute('VACUUM');"
            "c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN'); c.execute('CREATE TABLE t (x)');"
            "[c.execute('INSERT INTO t VALUES (zeroblob(9000))') for _ in range(9)]; os._exit(0)"
        )
        subprocess.run([sys.executable, "-c", script, self.path], check=True)
        self.assertGreater(os.path.getsize(self.path + "-journal"), 512)
        self.assertTrue(self.opened().writable)
        self.assertEqual([], self.observer.damage)


class IgnoredTests(SynchronousTestCase):
    """Files that a run of the tests or of a daemon leaves in the work tree."""

    def test_none_is_tracked(self) -> None:
        """No file that git is told to ignore, which folders of runs, logs and caches are, is in the repository."""
        if not (TOP / ".git").exists():
            raise SkipTest("no checkout of git")
        command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
        self.assertEqual("", subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True).stdout)
