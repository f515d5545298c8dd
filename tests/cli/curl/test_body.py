"""Tests of keeping a body back."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.cli.curl.body import BufferedBody
from tests.peers.daemon import environment
from tests.refusals import assert_refused

#: Where the folders for temporary files cannot be written, nor the current one.
_READ_ONLY = """
for folder in /tmp /var/tmp; do mount --bind $folder $folder && mount -o remount,bind,ro $folder || exit 1; done
unset TMPDIR; cd /proc; exec "$@"
"""
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
    """Storing and reading."""

    @given(st.lists(st.binary(max_size=20), max_size=10), st.integers(0, 40))
    def test_round_trip(self, pieces: list[bytes], in_memory: int) -> None:
        """Pieces are read complete and in order, from memory or a file, any number of times."""
        body = BufferedBody(1000, in_memory)
        for piece in pieces:
            body.got_body(piece)
        whole = b"".join(pieces)
        for _again in range(2):
            self.assertEqual(b"".join(body.pieces()), whole)
        self.assertEqual(b"".join(body.pieces(7)), whole[:7])
        seen = body.seen()
        self.assertEqual((seen.size, seen.sha256, seen.complete), (len(whole), hashlib.sha256(whole).digest(), True))
        body.close()

    def test_limit(self) -> None:
        """A body of the limit is accepted, one octet more is not, and nothing of that piece is kept."""
        body = BufferedBody(4)
        body.got_body(b"abcd")
        error = assert_refused(self, "body_too_large", body.got_body, b"e")
        self.assertEqual((error.evidence, body.size), ({"limit": 4}, 4))
        body.close()

    def test_no_folder_for_files(self) -> None:
        """Where no file can be made, 1 MiB is kept in memory; one octet more is refused with what is missing."""
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            raise SkipTest("needs root and unshare: it makes folders read-only")
        command = ["unshare", "--mount", "sh", "-c", _READ_ONLY, "sh", sys.executable, "-c", _KEEP]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=60)
        kept, refused = done.stdout.splitlines()
        self.assertEqual("kept True", kept)
        reason, message, hint = refused.split("; ")
        self.assertEqual("spool_missing", reason)
        self.assertIn("no folder takes one: no usable temporary directory found in ['/tmp'", message)
        self.assertEqual("set TMPDIR to a folder that this user can write, in Kubernetes an emptyDir", hint)
