"""
The Merkle tree of RFC 9162, section 2.1: its root, the inclusion path of every leaf, and the root that a path leads to.

Works on digests alone; what the entries of a tree are is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256, sha384
from typing import Any, Final

#: The constructor of a hash of hashlib.
HashFunction = Callable[[bytes], Any]
#: By the names that signed documents use.
HASH_FUNCTIONS: Final[dict[str, HashFunction]] = {"sha-256": sha256, "sha-384": sha384}

# Without them an inner node could be presented as an entry (RFC 9162, section 2.1.1).
_LEAF: Final = b"\x00"
_NODE: Final = b"\x01"


def leaf_hash(entry: bytes, new_hash: HashFunction) -> bytes:
    digest: bytes = new_hash(_LEAF + entry).digest()
    return digest


def build_tree(leaves: Sequence[bytes], new_hash: HashFunction) -> tuple[bytes, list[tuple[bytes, ...]]]:
    """
    Return the root over the hashes of one or more leaves, and the inclusion path of each, the lowest node first.

    Pairing the nodes of each level, with the last one of an odd level passed up unchanged, gives the tree that the
    standard defines by splitting at powers of two.
    """
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        above = [new_hash(_NODE + left + right).digest() for left, right in zip(below[::2], below[1::2], strict=False)]
        if len(below) % 2:
            above.append(below[-1])
        levels.append(above)
    (root,) = levels.pop()
    paths: list[tuple[bytes, ...]] = [()]
    for nodes in reversed(levels):
        single = len(nodes) - 1 if len(nodes) % 2 else -1
        paths = [
            paths[number >> 1] if number == single else (nodes[number ^ 1], *paths[number >> 1])
            for number in range(len(nodes))
        ]
    return root, paths


def path_length(index: int, size: int) -> int:
    """Return how many nodes the inclusion path of a leaf has; ``index`` counts from 0 and is below ``size``."""
    length = 0
    while size > 1:
        length += index ^ 1 < size
        index, size = index >> 1, (size + 1) >> 1
    return length


def root_of_path(leaf: bytes, index: int, size: int, path: Sequence[bytes], new_hash: HashFunction) -> bytes | None:
    """
    Compute the root that an inclusion path leads to (RFC 9162, section 2.1.3.2).

    Args:
        leaf: the hash of the leaf.
        index: its place in the tree, from 0 and below ``size``.
        size: the number of leaves.
        path: the hashes of the nodes beside the way to the root, the lowest first.
        new_hash: the hash function of the tree.

    Returns:
        The root, None where the path has another length than index and size demand, or a node is no such hash.
    """
    if len(path) != path_length(index, size) or any(len(node) != len(leaf) for node in path):
        return None
    nodes = iter(path)
    while size > 1:
        if index & 1:
            leaf = new_hash(_NODE + next(nodes) + leaf).digest()
        elif index + 1 < size:
            leaf = new_hash(_NODE + leaf + next(nodes)).digest()
        index, size = index >> 1, (size + 1) >> 1
    return leaf
