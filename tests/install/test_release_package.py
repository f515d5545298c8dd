"""The package of a release: the same octets each time, read by tar, verified, and refused when anything was changed."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.install.release import package as module
from svc.install.release.document import DOCUMENT, MAX_BLOB, MAX_DOCUMENT, Release
from svc.install.release.errors import PackageRefused
from svc.install.release.headers import BLOCK, FIELDS, RECORD, header, read_header
from svc.install.release.layout import CHECKSUMS, INDEX_FILE, LAYOUT
from svc.install.release.manifests import read_all, read_contents
from svc.install.release.package import PARTIAL, PackageFile, VerifiedPackage, verify_package, write_package
from svc.install.release.signature import SIGNATURE, sign_release, verify_release
from svc.strictjson import dumps
from tests.install.material import (
    PLATFORMS,
    archive,
    digest_entry,
    keys,
    read_entries,
    signing_key,
    write_small_release,
)

Entries = dict[str, tuple[bytes, bytes]]


class PackageCase(SynchronousTestCase):
    """A folder with a package."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.path = write_small_release(self.folder)
        self.entries = read_entries(self.path)

    def verify(self, octets: bytes | None = None, found: list[int] | None = None) -> VerifiedPackage:
        """Verify the package, or other octets."""
        path = self.path
        if octets is not None:
            path = self.folder / "changed.tar"
            path.write_bytes(octets)
        file = self.enterContext(PackageFile(path))
        return verify_package(file, keys(), (found if found is not None else []).append)

    def refused(self, octets: bytes, reason: str, *said: str) -> None:
        """Octets are refused, and the sentence says what is wrong."""
        error = self.assertRaises(SvcError, self.verify, octets)
        assert isinstance(error, SvcError)
        self.assertEqual(reason, error.reason, str(error))
        for each in said:
            self.assertIn(each, str(error))

    def changed(self, name: str, content: bytes, *, sized: bool = True) -> bytes:
        """The package with another content of an entry, and the size of it in the header."""
        block = header(name, len(content)) if sized else self.entries[name][0]
        return archive(list({**self.entries, name: (block, content)}.values()))


class HeaderTests(SynchronousTestCase):
    """The header of an entry."""

    @given(st.binary(min_size=BLOCK, max_size=BLOCK))
    def test_any_block(self, block: bytes) -> None:
        """Nothing but a refusal comes of any octets."""
        self.assertRaises(PackageRefused, read_header, block, "")

    @given(st.integers(0, MAX_BLOB), st.lists(st.text("aZ09._-", min_size=1, max_size=8), min_size=1, max_size=9))
    def test_round_trip(self, size: int, parts: list[str]) -> None:
        """What is written is read back, and a part of a path that begins with a dot or a hyphen is refused."""
        name = "/".join(parts)
        block = header(name, size)
        if all(each[0] not in "._-" for each in parts):
            self.assertEqual((name, size), read_header(block, ""))
        else:
            self.assertRaises(PackageRefused, read_header, block, "")

    def test_bounds(self) -> None:
        """What a header cannot say is not written."""
        for name, size in (("a" * 101, 1), ("a" * 99 + "/b", 1), ("a", MAX_BLOB + 1)):
            self.assertRaises(ValueError, header, name, size)
        self.assertEqual(("a" * 100, MAX_BLOB), read_header(header("a" * 100, MAX_BLOB), ""))


class WriteTests(PackageCase):
    """Writing."""

    def test_same_octets(self) -> None:
        """All but the signature is the same each time; its ML-DSA part is not."""
        again = read_entries(write_small_release(self.folder, "again.tar"))
        self.assertEqual(list(self.entries), list(again))
        differing = [name for name, entry in again.items() if entry[1] != self.entries[name][1]]
        self.assertEqual([CHECKSUMS, SIGNATURE], differing)
        signed, contents = self.verify().signed, self.verify().contents
        with PackageFile(self.path) as file:
            digest = write_package(self.folder / "third.tar", signed, contents, file.open)
        self.assertEqual(self.path.read_bytes(), (self.folder / "third.tar").read_bytes())
        self.assertEqual(64 + len("sha256:"), len(digest))

    def test_tar(self) -> None:
        """Other programs read it: the document is first, all others are sorted, and none has an owner or a time."""
        with tarfile.open(self.path) as found:
            members = found.getmembers()
        names = [each.name for each in members]
        self.assertEqual([DOCUMENT, *sorted(names[1:])], names)
        self.assertEqual(
            {(0o644, 0, 0, 0, "", "", tarfile.REGTYPE)},
            {(e.mode, e.uid, e.gid, e.mtime, e.uname, e.gname, e.type) for e in members},
        )
        self.assertEqual(0, self.path.stat().st_size % RECORD)

    def test_subset(self) -> None:
        """A package of one platform has its blobs alone, an index without the other, and the same signed document."""
        verified = self.verify()
        release = verified.signed.release
        reading = read_contents(release, release.selected(["linux/arm64"]))
        contents = read_all(reading, lambda blob: verified.file.read(blob.content.entry))
        path = self.folder / "subset.tar"
        write_package(path, verified.signed, contents, verified.file.open)
        with PackageFile(path) as file:
            subset = verify_package(file, keys())
        self.assertEqual(("linux/arm64",), subset.contents.platforms)
        self.assertEqual(release, subset.signed.release)
        [index] = [each.index for each in subset.contents.images if each.image.name == "svc"]
        [listed] = json.loads(index.octets)["manifests"]
        self.assertEqual({"os": "linux", "architecture": "arm64"}, listed["platform"])
        self.assertLess(len(read_entries(path)), len(self.entries))
        self.assertTrue(set(read_entries(path)) - set(self.entries))

    def test_sources_that_differ(self) -> None:
        """A source with other octets, fewer or more ends the writing; no file stays, and one that was there does."""
        verified = self.verify()
        target = self.folder / "target.tar"
        target.write_text("before")
        layer = next(iter(reversed(list(verified.contents.blobs.values())))).content.entry
        data = self.entries[layer][1]
        for octets, reason in (
            (bytes(len(data)), "package_entry_digest"),
            (data[:-1], "package_entry_size"),
            (data + b"x", "package_entry_size"),
        ):

            def source(name: str, octets: bytes = octets) -> Any:
                return io.BytesIO(octets) if name == layer else verified.file.open(name)

            error = self.assertRaises(SvcError, write_package, target, verified.signed, verified.contents, source)
            self.assertEqual(reason, error.reason)
            self.assertIn(layer, str(error))
            self.assertEqual("before", target.read_text())
            self.assertFalse(target.with_name(f"target.tar{PARTIAL}").exists())

    def test_unwritable(self) -> None:
        """A folder that is missing, and a disk that is full: the error names the package, and nothing stays."""
        verified = self.verify()
        for path in (self.folder / "none" / "a.tar", self.folder / "full.tar"):
            with patch("os.fsync", side_effect=OSError(28, os.strerror(28))):
                error = self.assertRaises(
                    SvcError, write_package, path, verified.signed, verified.contents, verified.file.open
                )
            self.assertEqual("package_unwritable", error.reason)
            self.assertIn(path.name, str(error))
        self.assertEqual([], list(self.folder.glob("full*")))


class VerifyTests(PackageCase):
    """Verification: of what was written, and of every change to it."""

    def test_accepted(self) -> None:
        """What was written is accepted; progress adds up to what it has."""
        sizes: list[int] = []
        verified = self.verify(found=sizes)
        self.assertEqual(PLATFORMS, verified.contents.platforms)
        self.assertEqual(sum(len(data) for _block, data in self.entries.values()), sum(sizes))
        names = {blob.content.entry for each in verified.contents.manifests for blob in (each.blob, *each.blobs)}
        self.assertEqual(names, {each for each in self.entries if each.startswith("blobs/")})
        layer = verified.contents.chart.blobs[1]
        with verified.open(layer) as opened, tarfile.open(fileobj=opened, mode="r:gz") as chart:
            self.assertIn("svc-core/Chart.yaml", chart.getnames())

    def test_each_octet_of_small_entries(self) -> None:
        """A bit of any octet of a header or a content, changed alone, is refused; the sentence names the entry."""
        octets = self.path.read_bytes()
        at = 0
        for name, (_block, data) in self.entries.items():
            end = at + BLOCK + len(data) + -len(data) % BLOCK
            for position in {*range(at, at + BLOCK, 61), *range(at + BLOCK, end, 509), end - 1}:
                changed = bytearray(octets)
                changed[position] ^= 1
                error = self.assertRaises(SvcError, self.verify, bytes(changed))
                if position >= at + 100:
                    said = name if name not in (DOCUMENT, SIGNATURE) else ""
                    self.assertIn(said, str(error), (name, position - at))
            at = end

    def test_each_content(self) -> None:
        """Each entry with another content, longer, shorter and empty."""
        for name, (_block, data) in self.entries.items():
            for other in (data[:-1] + bytes([data[-1] ^ 1]), data + b" ", data[:-1], b""):
                error = self.assertRaises(SvcError, self.verify, self.changed(name, other))
                if name not in (DOCUMENT, SIGNATURE):
                    self.assertIn(name, str(error))
                    self.assertIn(error.reason, ("package_entry_digest", "package_entry_size", "package_entry_content"))
                else:
                    self.assertTrue(error.reason.startswith("release_"), error.reason)

    def test_each_missing(self) -> None:
        """Each entry left out."""
        for name in self.entries:
            rest = [entry for each, entry in self.entries.items() if each != name]
            self.refused(archive(rest), "package_entry_missing", name)

    def test_each_extra(self) -> None:
        """An entry more, wherever it is; a blob whose name is its digest too."""
        for name, data in (
            ("a", b""),
            ("zzz", b"x"),
            (digest_entry(b"more"), b"more"),
            ("sbom/more.spdx.json", b"{}"),
            ("tools/helm-linux-amd64", b"x"),
            ("manifest.json", b"[]"),
        ):
            entries = {**self.entries, name: (header(name, len(data)), data)}
            ordered = [entries[DOCUMENT], *(entries[each] for each in sorted(set(entries) - {DOCUMENT}))]
            self.refused(archive(ordered), "package_entry_extra", name)

    def test_each_header_field(self) -> None:
        """Each field of a header, with a checksum that is right; and each name that leads elsewhere."""
        others = {
            "typeflag": (b"1", b"2", b"5", b"x", b"L", b"\0"),
            "mode": (b"0000755\0", b"0000600\0"),
            "uid": (b"0001750\0",),
            "gid": (b"0001750\0",),
            "mtime": (b"00000000001\0",),
            "uname": (b"root",),
            "gname": (b"root",),
            "linkname": (b"/etc/passwd",),
            "prefix": (b"..",),
            "devmajor": (b"0000001\0",),
            "devminor": (b"0000001\0",),
            "magic": (b"ustar ",),
            "version": (b" \0",),
            "padding": (b"x",),
            "size": (b"-0000000001\0", b"\x80" + bytes(10) + b"\x05", b" 0000000005\0"),
            "chksum": (b"000000\0 ",),
            "name": (b"../a", b"/a", b"a//b", b"./a", b"a/../b", b"a\nb", b"", b"\xc3\xa9"),
        }
        self.assertEqual({field for field, _start, _length in FIELDS}, set(others))
        for field, start, length in FIELDS:
            for value in others[field]:
                for target in (DOCUMENT, LAYOUT):
                    block = bytearray(self.entries[target][0])
                    block[start : start + length] = value.ljust(length, b"\0")
                    if field != "chksum":
                        block[148:156] = b" " * 8
                        block[148:156] = f"{sum(block):06o}\0 ".encode()
                    entries = {**self.entries, target: (bytes(block), self.entries[target][1])}
                    self.refused(archive(list(entries.values())), "package_header", f"has {field} ")

    def test_order(self) -> None:
        """Entries in another order, and one that is there twice."""
        entries = list(self.entries.values())
        self.refused(archive([entries[1], entries[0], *entries[2:]]), "package_entry_missing", DOCUMENT)
        self.refused(archive([*entries[:-2], entries[-1], entries[-2]]), "package_order")
        for twice in range(len(entries)):
            self.refused(archive([*entries[: twice + 1], *entries[twice:]]), "package_order", list(self.entries)[twice])

    def test_ends(self) -> None:
        """A package that ends early is refused wherever it ends; so are octets behind it, and in its padding."""
        octets = self.path.read_bytes()
        for size in (*range(0, len(octets), 997), len(octets) - 1, len(octets) - RECORD):
            self.refused(octets[:size], "package_cut")
        self.refused(octets + b"\0", "package_trailing", "1 octets")
        self.refused(octets + bytes(RECORD), "package_trailing")
        self.refused(octets[:-1] + b"x", "package_padding")
        for entry in ("not a package", "x" * 600):
            self.refused(entry.encode(), "package_cut" if len(entry) < BLOCK else "package_header")
        os.mkfifo(self.folder / "pipe")
        for name in ("none.tar", "pipe", "."):
            error = self.assertRaises(SvcError, PackageFile, self.folder / name)
            self.assertEqual("package_unreadable", error.reason)

    def test_each_member_of_the_index(self) -> None:
        """Each member of ``index.json``: changed, removed, and one more; the sentence has its path."""
        document = json.loads(self.entries[INDEX_FILE][1])
        paths = list(members(document))
        self.assertGreater(len(paths), 15)
        for path in paths:
            for change in _CHANGES:
                copy = json.loads(self.entries[INDEX_FILE][1])
                change(copy, path)
                if copy == document:
                    continue
                self.refused(self.changed(INDEX_FILE, dumps(copy)), "package_entry_content", INDEX_FILE)
        self.refused(
            self.changed(INDEX_FILE, self.entries[INDEX_FILE][1] + b"\n"), "package_entry_content", "another way"
        )
        index = json.loads(self.entries[INDEX_FILE][1])
        index["manifests"][0]["size"] += 1
        self.refused(self.changed(INDEX_FILE, dumps(index)), "package_entry_content", "manifests[0].size is ")

    def test_each_member_of_manifests(self) -> None:
        """A manifest or configuration with another member, under its own digest: the one that is signed is missing."""
        for name, (_block, data) in self.entries.items():
            if not name.startswith("blobs/") or not data.startswith(b"{"):
                continue
            for path in members(json.loads(data)):
                copy = json.loads(data)
                alter(copy, path)
                octets = dumps(copy)
                other = digest_entry(octets)
                entries = {key: value for key, value in self.entries.items() if key != name}
                entries[other] = (header(other, len(octets)), octets)
                ordered = [entries[DOCUMENT], *(entries[each] for each in sorted(set(entries) - {DOCUMENT}))]
                self.refused(archive(ordered), "package_entry_missing", name)

    def test_other_signers(self) -> None:
        """A package that somebody else signed as a whole."""
        stranger = signing_key("somebody else")
        release = Release.parse(self.entries[DOCUMENT][1])
        self.assertEqual(dict(signing_key().public.kids), release.signing_keys)
        signature = sign_release(self.entries[DOCUMENT][1], "A vendor", stranger.signers)
        self.refused(self.changed(SIGNATURE, signature), "release_key_unknown", stranger.public.kids["Ed25519"])

    def test_limits(self) -> None:
        """Entries, the document and the signature at their bounds, before any of them is read."""
        with patch.object(module, "MAX_ENTRIES", len(self.entries)):
            self.verify()
        with patch.object(module, "MAX_ENTRIES", len(self.entries) - 1):
            self.refused(self.path.read_bytes(), "package_entries")
        self.refused(self.changed(DOCUMENT, bytes(MAX_DOCUMENT + 1)), "package_entry_size", DOCUMENT)
        self.refused(self.changed(SIGNATURE, bytes(64 * 1024 + 1)), "package_entry_size", SIGNATURE)
        self.refused(self.changed(SIGNATURE, bytes(64 * 1024)), "release_signature_invalid")

    def test_cut_while_open(self) -> None:
        """A file that is cut while it is read ends the reading; a window gives its own entry alone."""
        verified = self.verify()
        name = list(self.entries)[-1]
        with verified.file.open(name) as opened:
            self.assertEqual(self.entries[name][1], opened.read())
            opened.seek(1)
            self.assertEqual(self.entries[name][1][1:], opened.read())
            opened.seek(0, os.SEEK_END)
            self.assertEqual(b"", opened.read())
        os.truncate(self.path, BLOCK)
        with verified.file.open(name) as opened:
            self.assertEqual("package_cut", self.assertRaises(SvcError, opened.read).reason)

    def test_signature_alone(self) -> None:
        """Document and signature are verified without a package, as when they come from a registry."""
        document, signature = (self.entries[name][1] for name in (DOCUMENT, SIGNATURE))
        self.assertEqual("1.4.2", verify_release(document, signature, keys()).release.version)


Path_ = tuple[Any, ...]


def members(value: Any, at: Path_ = ()) -> list[Path_]:
    """The path of each member and item of a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for key, inner in pairs for each in ((*at, key), *members(inner, (*at, key)))]


def _holder(document: Any, path: Path_) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


def alter(document: Any, path: Path_) -> None:
    """Change a member."""
    holder = _holder(document, path)
    value = holder[path[-1]]
    holder[path[-1]] = value + 1 if isinstance(value, int) else f"{value}x" if isinstance(value, str) else {"x": 1}


def remove(document: Any, path: Path_) -> None:
    """Remove a member."""
    del _holder(document, path)[path[-1]]


def extend(document: Any, path: Path_) -> None:
    """Add a member beside it."""
    holder = _holder(document, path)
    if isinstance(holder, dict):
        holder["more"] = "x"
    else:
        holder.append(holder[0])


_CHANGES: tuple[Callable[[Any, Path_], None], ...] = (alter, remove, extend)
