"""The Merkle tree against the definition of RFC 9162, section 2.1, written down as it stands there."""

from __future__ import annotations

from hashlib import sha256, sha384

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.merkle import HASH_FUNCTIONS, build_tree, leaf_hash, path_length, root_of_path

ENTRIES = st.lists(st.binary(max_size=4), min_size=1, max_size=70)


def split(size: int) -> int:
    """The largest power of two below a size."""
    return 1 << (size - 1).bit_length() - 1


def naive_root(entries: list[bytes]) -> bytes:
    """MTH of section 2.1.1."""
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    at = split(len(entries))
    return sha256(b"\x01" + naive_root(entries[:at]) + naive_root(entries[at:])).digest()


def naive_path(index: int, entries: list[bytes]) -> tuple[bytes, ...]:
    """PATH of section 2.1.3.1."""
    if len(entries) == 1:
        return ()
    at = split(len(entries))
    if index < at:
        return (*naive_path(index, entries[:at]), naive_root(entries[at:]))
    return (*naive_path(index - at, entries[at:]), naive_root(entries[:at]))


class TreeTests(SynchronousTestCase):
    """Roots and paths."""

    @given(ENTRIES)
    def test_definition(self, entries: list[bytes]) -> None:
        """Root and paths are those of the recursive definition, also where entries are equal."""
        root, paths = build_tree([leaf_hash(entry, sha256) for entry in entries], sha256)
        self.assertEqual(naive_root(entries), root)
        self.assertEqual([naive_path(index, entries) for index in range(len(entries))], paths)

    def test_every_index(self) -> None:
        """Each path of each size up to 257 leads to the root, and has the length that is computed without a tree."""
        for size in (*range(1, 34), 63, 64, 65, 255, 256, 257):
            leaves = [leaf_hash(bytes((number % 256, number // 256)), sha256) for number in range(size)]
            root, paths = build_tree(leaves, sha256)
            for index, path in enumerate(paths):
                self.assertEqual(len(path), path_length(index, size))
                self.assertEqual(root, root_of_path(leaves[index], index, size, path, sha256))

    def test_hash_functions(self) -> None:
        """Both functions are found by the names of the format."""
        self.assertEqual({"sha-256": sha256, "sha-384": sha384}, HASH_FUNCTIONS)
        root, paths = build_tree([leaf_hash(b"a", sha384), leaf_hash(b"b", sha384)], sha384)
        self.assertEqual((48, [48, 48]), (len(root), [len(node) for path in paths for node in path]))

    def test_no_leaves(self) -> None:
        """There is no tree without leaves."""
        self.assertRaises(ValueError, build_tree, [], sha256)


class PathTests(SynchronousTestCase):
    """Paths that lead elsewhere, or nowhere."""

    @given(st.data())
    def test_changed(self, data: st.DataObject) -> None:
        """A bit changed, a node left out or added, or the index of another leaf gives another root."""
        size = data.draw(st.integers(2, 40))
        leaves = [leaf_hash(bytes((number,)), sha256) for number in range(size)]
        root, paths = build_tree(leaves, sha256)
        index = data.draw(st.integers(0, size - 1))
        path = paths[index]
        at = data.draw(st.integers(0, len(path) - 1))
        flipped = bytes((path[at][0] ^ 1,)) + path[at][1:]
        for wrong in ((*path[:at], flipped, *path[at + 1 :]), (*path[:at], *path[at + 1 :]), (*path, leaves[0])):
            self.assertNotEqual(root, root_of_path(leaves[index], index, size, wrong, sha256))
        other = data.draw(st.integers(0, size - 1).filter(lambda number: number != index))
        self.assertNotEqual(root, root_of_path(leaves[index], other, size, path, sha256))

    def test_lengths(self) -> None:
        """A path of another length, or with a node of another length, leads to no root at all."""
        leaves = [leaf_hash(b"a", sha256), leaf_hash(b"b", sha256), leaf_hash(b"c", sha256)]
        _root, paths = build_tree(leaves, sha256)
        self.assertEqual([2, 2, 1], [len(path) for path in paths])
        for wrong in ((), paths[0][:1], (*paths[0], leaves[0]), (paths[0][0] + b"x", paths[0][1])):
            self.assertIsNone(root_of_path(leaves[0], 0, 3, wrong, sha256))

    def test_node_as_leaf(self) -> None:
        """A node of the tree is not the hash of an entry that joins its two children."""
        leaves = [leaf_hash(bytes((number,)), sha256) for number in range(4)]
        root, paths = build_tree(leaves, sha256)
        joined = leaf_hash(leaves[0] + leaves[1], sha256)
        self.assertNotEqual(root, root_of_path(joined, 0, 2, paths[0][1:], sha256))
