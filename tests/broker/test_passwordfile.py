"""The password file: its lines, what protects it, and how one user is changed."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from base64 import b64encode
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker import passwordfile
from svc.broker.passwordfile import (
    DEFAULT_COST,
    MAX_NAME,
    PasswordFileError,
    PasswordHash,
    ScryptCost,
    change_user,
    name_of_user_defect,
    parse_users,
    read_users,
    usual_cost,
)

#: Cheap enough for tests.
CHEAP = ScryptCost(4, 1, 1)
HASH = PasswordHash.of(b"secret", CHEAP)
#: The hash of "password" in the documentation of passlib, which uses the same format.
KNOWN = "$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E"
COSTS = st.builds(ScryptCost, st.integers(1, 20), st.integers(1, 40), st.integers(1, 40)).filter(
    lambda cost: not cost.defect
)
HASHES = st.builds(PasswordHash, COSTS, st.binary(min_size=8, max_size=64), st.binary(min_size=16, max_size=64))
LIKE_HASHES = st.from_regex(
    r"\$scrypt\$ln=[0-9]{1,3},r=[0-9]{1,3},p=[0-9]{1,3}\$[A-Za-z0-9+/]{1,90}\$[A-Za-z0-9+/]{1,90}", fullmatch=True
)
#: All that is said of a text that is no hash.
HASH_DEFECTS = (
    "expected $scrypt$ln=…,r=…,p=…$salt$hash",
    "it costs more than ln=17,r=8,p=1",
    "the salt has 8 to 64 octets, the hash 16 to 64, both in base64 without padding",
)
NAMES = st.text(min_size=1, max_size=20).filter(lambda name: not name_of_user_defect(name))


class HashTests(SynchronousTestCase):
    """The text of one hash."""

    def test_known(self) -> None:
        """A hash that another program made is verified."""
        found = PasswordHash.parse(KNOWN)
        self.assertEqual(str(found), KNOWN)
        self.assertTrue(found.verify(b"password"))
        self.assertFalse(found.verify(b"Password"))

    def test_new(self) -> None:
        """A new hash has the usual cost, a salt of its own, and verifies its password alone."""
        one, other = PasswordHash.of(b"secret"), PasswordHash.of(b"secret", CHEAP)
        self.assertEqual(one.cost, DEFAULT_COST)
        self.assertNotEqual(HASH.salt, other.salt)
        self.assertTrue(other.verify(b"secret"))
        for wrong in (b"", b"secret ", b"Secret", "sécret".encode()):
            self.assertFalse(other.verify(wrong))
        self.assertNotIn(repr(one.digest), repr(one))

    @given(HASHES)
    def test_round_trip(self, made: PasswordHash) -> None:
        """Every hash within the limits is parsed back."""
        self.assertEqual(PasswordHash.parse(str(made)), made)

    @given(st.text() | LIKE_HASHES)
    def test_any_text(self, text: str) -> None:
        """Any text is a hash that is written the same way, or a ValueError that shows of it the cost at most."""
        try:
            found = PasswordHash.parse(text)
        except ValueError as error:
            self.assertIn(re.sub("^ln=[0-9]+,r=[0-9]+,p=[0-9]+ ", "it ", str(error)), HASH_DEFECTS)
        else:
            self.assertEqual(str(found), text)

    def test_costs(self) -> None:
        """The most expensive hash that is accepted, and the next ones that are not."""
        rest = KNOWN[KNOWN.index("$aM") :]
        for parameters in ("ln=17,r=8,p=1", "ln=16,r=8,p=2", "ln=16,r=16,p=1", "ln=1,r=1,p=1"):
            self.assertEqual(PasswordHash.parse(f"$scrypt${parameters}{rest}").cost.defect, "")
        for parameters in ("ln=17,r=9,p=1", "ln=18,r=8,p=1", "ln=16,r=8,p=3", "ln=17,r=8,p=2", "ln=0,r=8,p=1"):
            self.assertRaises(ValueError, PasswordHash.parse, f"$scrypt${parameters}{rest}")

    def test_lengths(self) -> None:
        """Salts of 8 to 64 octets and hashes of 16 to 64, in base64 that has one spelling."""

        def text(salt: int, digest: int) -> str:
            parts = (b64encode(b"\xff" * count).decode().rstrip("=") for count in (salt, digest))
            return "$scrypt$ln=4,r=1,p=1$" + "$".join(parts)

        for good in ((8, 16), (64, 64)):
            PasswordHash.parse(text(*good))
        for bad in ((7, 16), (65, 16), (8, 15), (8, 65)):
            self.assertRaises(ValueError, PasswordHash.parse, text(*bad))
        good_text = text(16, 16)
        for wrong in (good_text[:-1] + "x", good_text + "=", good_text + "\n", " " + good_text):
            self.assertRaises(ValueError, PasswordHash.parse, wrong)

    def test_nobody(self) -> None:
        """The hash of nobody has the cost that it is given, and verifies nothing."""
        made = PasswordHash.of_nobody(CHEAP)
        self.assertEqual(made.cost, CHEAP)
        self.assertFalse(made.verify(b"secret"))
        self.assertEqual(usual_cost({}), DEFAULT_COST)
        other = PasswordHash.of_nobody(ScryptCost(5, 1, 1))
        self.assertEqual(usual_cost({"a": made, "b": other, "c": made}), CHEAP)


class ParserTests(SynchronousTestCase):
    """The lines of a file."""

    @given(st.dictionaries(NAMES, HASHES, max_size=5), st.lists(st.sampled_from(["", "# a comment"]), max_size=3))
    def test_round_trip(self, users: dict[str, PasswordHash], others: list[str]) -> None:
        """Users are read as they were written, whatever lines are between them."""
        lines = [*others, *(f"{name}:{each}" for name, each in users.items()), *others]
        self.assertEqual(parse_users("\n".join(lines), "f"), users)
        self.assertEqual(parse_users("".join(f"{line}\n" for line in lines), "f"), users)

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        """Any text is users with valid names, or the typed error."""
        try:
            users = parse_users(text, "f")
        except PasswordFileError:
            return
        self.assertFalse([name for name in users if name_of_user_defect(name)])

    def test_defects(self) -> None:
        """The first line that is not valid is named, without the hash in it."""
        for line, words in (
            ("alice", "expected $scrypt"),
            ("alice:secret", "expected $scrypt"),
            (f":{HASH}", "empty"),
            (f"a*:{HASH}", "asterisk"),
            (f"a\t:{HASH}", "control"),
            (f"a\r:{HASH}", "control"),
            (f" a:{HASH}", "blank"),
            (f"a:{HASH}\r", "expected $scrypt"),
            (f"good:{HASH}", "twice"),
            (f"{'a' * (MAX_NAME + 1)}:{HASH}", "octets"),
        ):
            error = self.assertRaises(PasswordFileError, parse_users, f"good:{HASH}\n{line}\n", "users")
            self.assertEqual((error.reason, error.line), ("password_file_invalid", 2))
            self.assertIn(words, str(error))
            self.assertNotIn("secret", str(error))

    def test_limit(self) -> None:
        """As many users as are allowed, and one more."""
        with patch.object(passwordfile, "MAX_USERS", 2):
            text = "".join(f"u{number}:{HASH}\n" for number in range(2))
            self.assertEqual(len(parse_users(text, "f")), 2)
            error = self.assertRaises(PasswordFileError, parse_users, f"{text}x:{HASH}", "f")
        self.assertEqual(error.reason, "password_file_too_large")

    def test_names(self) -> None:
        """Names of 256 octets, with blanks or other scripts, and those that are refused."""
        for name in ("a", "a b", "ä", "a/b", "+", "$SYS", "ä" * 128, "a#"):
            self.assertEqual(name_of_user_defect(name), "")
        for name in ("", "a:b", "*", "#a", "a\n", "a\x7f", "\u202ea", " a", "a ", "ä" * 128 + "a", "\udcff"):
            self.assertNotEqual(name_of_user_defect(name), "", repr(name))


class FileCase(SynchronousTestCase):
    """A file in a folder of its own."""

    def setUp(self) -> None:
        """Make the folder."""
        folder = Path(self.mktemp())
        folder.mkdir()
        self.file = folder / "users"
        self.path = str(self.file)

    def reason(self, call: object, *arguments: object, **more: object) -> str:
        """The reason of the error that a call raises."""
        return str(self.assertRaises(PasswordFileError, call, *arguments, **more).reason)


class ReadingTests(FileCase):
    """Reading a file."""

    def test_protected(self) -> None:
        """A file is read that its owner and a group may read, and no other."""
        self.file.write_text(f"a:{HASH}\n")
        for mode in (0o600, 0o400, 0o640, 0o700):
            self.file.chmod(mode)
            self.assertEqual(read_users(self.path), {"a": HASH})
        for mode in (0o604, 0o660, 0o610, 0o602, 0o601, 0o644):
            self.file.chmod(mode)
            self.assertEqual(self.reason(read_users, self.path), "password_file_mode")

    def test_owner(self) -> None:
        """It belongs to root or to the process."""
        self.file.write_text("")
        self.file.chmod(0o600)
        with patch("os.geteuid", lambda: os.stat(self.path).st_uid):
            self.assertEqual(read_users(self.path), {})
        owner = os.stat_result([0o100600, 0, 0, 1, 4711, 0, 0, 0, 0, 0])
        with patch("os.fstat", lambda _descriptor: owner):
            self.assertEqual(self.reason(read_users, self.path), "password_file_mode")

    def test_unreadable(self) -> None:
        """What is absent, a folder, no UTF-8 or too large is an error."""
        self.assertEqual(self.reason(read_users, self.path), "password_file_unreadable")
        self.assertEqual(self.reason(read_users, str(self.file.parent)), "password_file_unreadable")
        self.file.write_bytes(f"a:{HASH}\n".encode() + b"\xff")
        self.file.chmod(0o600)
        error = self.assertRaises(PasswordFileError, read_users, self.path)
        self.assertEqual((error.reason, error.line), ("password_file_invalid", 2))
        with patch.object(passwordfile, "MAX_FILE", 3):
            self.file.write_bytes(b"#12")
            self.assertEqual(read_users(self.path), {})
            self.file.write_bytes(b"#123")
            self.assertEqual(self.reason(read_users, self.path), "password_file_too_large")


class ChangingTests(FileCase):
    """Changing one user."""

    def test_lines(self) -> None:
        """A user is added at the end, changed in place and removed; all else stays."""
        other = PasswordHash.of(b"x", CHEAP)
        change_user(self.path, "a", HASH, create=True)
        self.assertEqual(self.file.read_text(), f"a:{HASH}\n")
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o600)
        self.file.write_text(f"# a: is the first\n\na:{HASH}\n\n# end")
        change_user(self.path, "b", HASH)
        change_user(self.path, "a", other)
        self.assertEqual(self.file.read_text(), f"# a: is the first\n\na:{other}\n\n# end\nb:{HASH}\n")
        change_user(self.path, "b", None)
        change_user(self.path, "a", None)
        self.assertEqual(self.file.read_text(), "# a: is the first\n\n\n# end\n")
        self.assertEqual(os.listdir(self.file.parent), ["users"])

    def test_mode_and_link(self) -> None:
        """The group's right to read stays, those of others go; a link stays one."""
        self.file.write_text("")
        self.file.chmod(0o644)
        link = self.file.parent / "link"
        link.symlink_to("users")
        change_user(str(link), "a", HASH)
        self.assertTrue(link.is_symlink())
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o640)
        self.assertEqual(read_users(str(link)), {"a": HASH})

    def test_refused(self) -> None:
        """What is not valid changes nothing."""
        self.assertEqual(self.reason(change_user, self.path, "a", HASH), "password_file_not_written")
        self.assertFalse(self.file.exists())
        self.assertEqual(self.reason(change_user, self.path, "a:b", HASH, create=True), "password_user_invalid")
        self.file.write_text(f"a:{HASH}\n")
        self.assertEqual(self.reason(change_user, self.path, "b", None), "password_user_unknown")
        with patch.object(passwordfile, "MAX_USERS", 1):
            change_user(self.path, "a", HASH)
            self.assertEqual(self.reason(change_user, self.path, "b", HASH), "password_file_too_large")
        self.file.write_text("rubbish\n")
        self.assertEqual(self.reason(change_user, self.path, "a", HASH), "password_file_invalid")
        self.assertEqual(self.file.read_text(), "rubbish\n")

    def test_disk_fails(self) -> None:
        """A file that cannot be replaced is as it was, and nothing is left beside it."""
        self.file.write_text(f"a:{HASH}\n")
        with patch("os.replace", side_effect=OSError(28, "No space left on device")):
            self.assertEqual(self.reason(change_user, self.path, "b", HASH), "password_file_not_written")
        self.assertEqual((self.file.read_text(), os.listdir(self.file.parent)), (f"a:{HASH}\n", ["users"]))

    def test_concurrent(self) -> None:
        """A change that another one was waited for is made to the file that this one left."""
        self.file.write_text("")
        locked: list[int] = []

        def flock(descriptor: int, operation: int) -> None:
            locked.append(operation)
            if len(locked) == 1:
                new = self.file.parent / "new"
                new.write_text(f"a:{HASH}\n")
                os.replace(new, self.path)

        with patch("fcntl.flock", flock):
            change_user(self.path, "b", HASH)
        self.assertEqual(locked, [fcntl.LOCK_EX] * 2)
        self.assertEqual(self.file.read_text(), f"a:{HASH}\nb:{HASH}\n")
