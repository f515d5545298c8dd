"""Tests of svc.authority.registration."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.authority.attestation import Caller, FileIdentity
from svc.authority.registration import Entry, Registry, Selectors
from svc.identity import SpiffeID

PYTHON = os.path.realpath(sys.executable)
STATUS = os.stat(PYTHON)
CALLER = Caller(17, 1000, 100, PYTHON, FileIdentity(STATUS.st_dev, STATUS.st_ino))


def entry(path: str, selectors: Selectors) -> Entry:
    hour = timedelta(hours=1)
    return Entry(SpiffeID.parse(f"spiffe://example.org{path}"), selectors, hour, hour)


class SelectorsTests(SynchronousTestCase):
    """What a caller must be."""

    def matches(self, selectors: Selectors, caller: Caller = CALLER, digest: str | None = None) -> bool:
        return selectors.match(caller, lambda: digest)

    def test_each(self) -> None:
        """Each selector can refuse a caller; a program is possible only together with user or group."""
        self.assertTrue(self.matches(Selectors(uid=1000)))
        self.assertFalse(self.matches(Selectors(uid=1001)))
        self.assertTrue(self.matches(Selectors(gid=100)))
        self.assertFalse(self.matches(Selectors(gid=0)))
        self.assertTrue(self.matches(Selectors(uid=1000, executable=PYTHON)))
        self.assertFalse(self.matches(Selectors(uid=1001, executable=PYTHON)))
        self.assertFalse(self.matches(Selectors(uid=1000, executable="/bin/sh")))
        self.assertTrue(self.matches(Selectors(gid=100, sha256="aa"), digest="aa"))
        self.assertFalse(self.matches(Selectors(gid=100, sha256="aa"), digest="bb"))
        self.assertFalse(self.matches(Selectors(gid=100, sha256="aa"), digest=None))

    def test_root_is_a_user(self) -> None:
        """User and group 0 are values, not the absence of a selector."""
        self.assertFalse(self.matches(Selectors(uid=0)))
        self.assertTrue(self.matches(Selectors(uid=0), replace(CALLER, uid=0)))

    @given(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()))
    def test_all_given_must_match(self, right: tuple[bool, bool, bool, bool]) -> None:
        """An entry with every selector matches only if all match."""
        selectors = Selectors(
            uid=1000 if right[0] else 1,
            gid=100 if right[1] else 1,
            executable=PYTHON if right[2] else "/bin/sh",
            sha256="aa" if right[3] else "bb",
        )
        self.assertEqual(self.matches(selectors, digest="aa"), all(right))

    def test_none(self) -> None:
        """An entry without user and group is an error."""
        for keys in ({}, {"executable": PYTHON}, {"sha256": "aa"}, {"executable": PYTHON, "sha256": "aa"}):
            self.assertRaises(ValueError, Selectors, **keys)

    def test_link(self) -> None:
        """The path of an entry may be a link to the program."""
        link = Path(self.mktemp())
        link.symlink_to(PYTHON)
        self.assertTrue(self.matches(Selectors(uid=1000, executable=str(link.absolute()))))

    def test_same_name_other_file(self) -> None:
        """A program of the same name in another mount namespace is another file."""
        copy = Path(self.mktemp()).absolute()
        shutil.copy("/bin/sh", copy)
        other = replace(CALLER, executable=os.path.realpath(copy))
        self.assertFalse(self.matches(Selectors(uid=1000, executable=str(copy)), other))

    def test_unreadable(self) -> None:
        """A caller whose program cannot be read matches no executable, and a missing program matches no caller."""
        python = Selectors(uid=1000, executable=PYTHON)
        self.assertFalse(self.matches(python, replace(CALLER, executable=None, file=None)))
        self.assertFalse(self.matches(python, replace(CALLER, file=None)))
        gone = "/proc/nonexistent/program"
        self.assertFalse(self.matches(Selectors(uid=1000, executable=gone), replace(CALLER, executable=gone)))


class RegistryTests(SynchronousTestCase):
    """Which entries a caller gets."""

    def test_order_and_several(self) -> None:
        """All matching entries are returned in the order of the configuration."""
        a, b, c = (
            entry("/a", Selectors(uid=1000)),
            entry("/b", Selectors(uid=1)),
            entry("/c", Selectors(gid=100)),
        )
        self.assertEqual(Registry([a, b, c]).match(CALLER, lambda: None), (a, c))
        self.assertEqual(Registry([c, b, a]).match(CALLER, lambda: None), (c, a))

    def test_one_for_each_identity(self) -> None:
        """Of two matching entries for one identity the first one is returned."""
        first, second = entry("/a", Selectors(gid=100)), entry("/a", Selectors(uid=1000))
        self.assertEqual(Registry([first, second]).match(CALLER, lambda: None), (first,))

    def test_none(self) -> None:
        """A caller without a matching entry gets none."""
        self.assertEqual(Registry([entry("/a", Selectors(uid=1))]).match(CALLER, lambda: None), ())
        self.assertEqual(Registry().match(CALLER, lambda: None), ())

    def test_digest_once(self) -> None:
        """The program is hashed at most once, and only if all else matches."""
        asked: list[int] = []

        def digest() -> str | None:
            asked.append(1)
            return "aa"

        entries = [entry(f"/{position}", Selectors(uid=1000, sha256="aa")) for position in range(3)]
        Registry([entry("/x", Selectors(uid=1, sha256="aa"))]).match(CALLER, digest)
        self.assertEqual(asked, [])
        self.assertEqual(len(Registry(entries).match(CALLER, digest)), 3)
        self.assertEqual(asked, [1])
