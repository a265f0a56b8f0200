"""Merkle tree hashes of RFC 6962 section 2.1, appended to one leaf at a time.

A compact range is all that an append needs to know of the tree so far: the roots of the perfect subtrees that its size
falls into, largest first, one for each bit that is set in the size. At most 64 hashes, however long the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
"""RFC 6962 section 2.1: the root of the empty tree."""


def leaf_hash(leaf: bytes) -> bytes:
    """SHA-256(0x00 || leaf)."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 || left || right): the prefix keeps a node from passing as a leaf."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class CompactRange:
    """A tree of ``size`` leaves, without its leaves."""

    size: int = 0
    subtrees: tuple[bytes, ...] = ()
    """Roots of the perfect subtrees, largest first; as many as bits are set in ``size``."""

    def __post_init__(self) -> None:
        """Refuse a range that no tree has; raises ValueError."""
        if self.size < 0 or len(self.subtrees) != self.size.bit_count():
            raise ValueError("not as many subtrees as the size has bits")
        if any(len(subtree) != HASH_BYTES for subtree in self.subtrees):
            raise ValueError("a subtree's root is not a SHA-256")

    def append(self, leaf: bytes) -> CompactRange:
        """The tree with one more leaf, given by its leaf hash.

        Like a carry in binary counting: each set low bit of the size is a subtree that merges with the new one.
        """
        subtrees = list(self.subtrees)
        carry, merge = leaf, self.size
        while merge & 1:
            carry = node_hash(subtrees.pop(), carry)
            merge >>= 1
        return CompactRange(self.size + 1, (*subtrees, carry))

    def root(self) -> bytes:
        """The tree's root: its subtrees, smallest first, hashed together from the right."""
        if not self.subtrees:
            return EMPTY_ROOT
        *larger, root = self.subtrees
        for subtree in reversed(larger):
            root = node_hash(subtree, root)
        return root

    def encode(self) -> bytes:
        """The subtrees' roots end to end, as the database keeps them beside the size."""
        return b"".join(self.subtrees)

    @classmethod
    def decode(cls, size: int, data: bytes) -> CompactRange:
        """The range that ``encode`` wrote for a tree of ``size``; raises ValueError."""
        return cls(size, tuple(data[start : start + HASH_BYTES] for start in range(0, len(data), HASH_BYTES)))


def root_of(leaf_hashes: Iterable[bytes]) -> bytes:
    """The root over all these leaf hashes, in order."""
    tree = CompactRange()
    for one in leaf_hashes:
        tree = tree.append(one)
    return tree.root()
