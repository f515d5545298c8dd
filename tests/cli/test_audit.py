"""The file of the audit log of commands of kubectl; the records of commands are in ``tests.programs.kubectl``."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from pathlib import Path

from svc.cli.compartments import auditfile
from svc.cli.compartments.auditfile import append
from svc.telemetry.audit import AuditChain, AuditChainBroken, verify_audit_chain
from tests.cli.compartments_kit import PassedCase


class FileTests(PassedCase):
    """The file."""

    def setUp(self) -> None:
        """Name it."""
        super().setUp()
        self.path = str(self.home / "audit.log")

    def verified(self, name: str = "audit.log") -> AuditChain:
        """The chain of a file, which is unbroken."""
        return verify_audit_chain((self.home / name).read_bytes().splitlines())

    def test_chain(self) -> None:
        """Each line has the digest of the one before; a change and a removal are found."""
        for number in range(5):
            append(self.path, {"n": number})
        self.assertEqual((5, 1), (self.verified().records, self.verified().starts))
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.path).st_mode))
        lines = Path(self.path).read_bytes().splitlines()
        for broken in ([*lines[:2], *lines[3:]], lines[1:], [*lines[:1], lines[1].replace(b":1,", b":9,"), *lines[2:]]):
            self.assertRaises(AuditChainBroken, verify_audit_chain, broken)

    def test_writers(self) -> None:
        """Several writers make one chain, also where files are rotated."""

        def write() -> None:
            for number in range(20):
                append(self.path, {"n": number}, max_file=1000)

        threads = [threading.Thread(target=write) for _each in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        names = [*sorted((each.name for each in self.home.glob("audit.log.*")), reverse=True), "audit.log"]
        self.assertGreater(len(names), 2)
        digest = None
        for name in names:
            first = json.loads((self.home / name).read_text().splitlines()[0])
            if digest is not None:
                self.assertEqual(digest, first["previous"]["digest"])
            found = self.verified(name)
            self.assertEqual(1, found.starts)
            digest = found.last

    def test_rotation(self) -> None:
        """A file has at most its size, and only so many are kept."""
        append(self.path, {})
        size = os.stat(self.path).st_size
        append(self.path, {}, max_file=1 << 20)
        limit = os.stat(self.path).st_size
        os.unlink(self.path)
        append(self.path, {}, max_file=limit)
        append(self.path, {}, max_file=limit)
        self.assertEqual(limit, os.stat(self.path).st_size)
        self.assertGreater(limit, size)
        os.unlink(self.path)
        append(self.path, {}, max_file=limit - 1)
        append(self.path, {}, max_file=limit - 1)
        self.assertEqual(["audit.log", "audit.log.1"], sorted(each.name for each in self.home.glob("audit*")))
        for _each in range(2 * auditfile.MAX_KEPT):
            append(self.path, {}, max_file=1)
        self.assertEqual(1 + auditfile.MAX_KEPT, len(list(self.home.glob("audit*"))))

    def test_size_of_a_record(self) -> None:
        """A record that is too large for a line is refused; one that is not is found again."""
        empty = {"text": ""}
        append(self.path, empty)
        line = Path(self.path).read_bytes()
        os.unlink(self.path)
        largest = "x" * (auditfile.MAX_LINE - len(line))
        self.assertRaises(OSError, append, self.path, {"text": f"{largest}x"})
        append(self.path, {"text": largest})
        append(self.path, empty)
        self.assertEqual(2, self.verified().records)

    def test_refused(self) -> None:
        """What is not a log of the own user alone is not written to."""
        append(self.path, {})
        text = Path(self.path).read_text()
        for damaged in (text[:-1], "x\n", "{}\n", '{"audit": {"seq": "1"}}\n', "\n"):
            Path(self.path).write_text(damaged)
            self.assertRaisesRegex(OSError, "its last line is no record", append, self.path, {})
        Path(self.path).write_text(text)
        os.chmod(self.path, 0o640)
        self.assertRaisesRegex(OSError, "mode 0600", append, self.path, {})
        os.rename(self.path, f"{self.path}.other")
        os.chmod(f"{self.path}.other", 0o600)
        os.symlink(f"{self.path}.other", self.path)
        self.assertRaises(OSError, append, self.path, {})
        os.unlink(self.path)
        os.mkfifo(self.path)
        self.assertRaisesRegex(OSError, "not a regular file", append, self.path, {})
        self.assertRaises(OSError, append, "/dev/full", {})
        self.assertEqual(text, Path(f"{self.path}.other").read_text())

    def test_held(self) -> None:
        """A lock that another process keeps is waited for, and not forever."""
        append(self.path, {})
        self.patch(auditfile, "_PATIENCE", 0.05)
        with open(self.path) as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.assertRaisesRegex(OSError, "another process holds it", append, self.path, {})
        append(self.path, {})
