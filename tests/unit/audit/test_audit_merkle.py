"""RFC 6962 trees: known hashes, the recursive definition as oracle, and the compact range's bytes."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.audit.merkle import EMPTY_ROOT, CompactRange, leaf_hash, node_hash, root_of

# The test vectors of the certificate-transparency project (merkle_tree_test.cc): leaves, and roots by size.
LEAVES = [bytes.fromhex(one) for one in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                                         "606162636465666768696a6b6c6d6e6f")]  # fmt: skip
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


@pytest.mark.parametrize(("size", "root"), ROOTS.items())
def test_roots_are_those_of_other_implementations(size: int, root: str) -> None:
    assert root_of(map(leaf_hash, LEAVES[:size])).hex() == root


def definition(leaves: list[bytes]) -> bytes:
    """RFC 6962 section 2.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return node_hash(definition(leaves[:split]), definition(leaves[split:]))


@given(st.lists(st.binary(max_size=4), max_size=70))
def test_every_tree_has_the_root_of_the_definition(leaves: list[bytes]) -> None:
    tree = CompactRange()
    assert tree.root() == EMPTY_ROOT
    for number, leaf in enumerate(leaves, 1):
        tree = CompactRange.decode(tree.size, tree.encode()).append(leaf_hash(leaf))
        assert tree.root() == definition(leaves[:number])


@pytest.mark.parametrize(("size", "data"), [(1, b""), (0, b"x" * 32), (3, b"x" * 32), (1, b"x" * 31), (-1, b"x" * 32)])
def test_bytes_that_are_no_range_are_refused(size: int, data: bytes) -> None:
    with pytest.raises(ValueError, match="subtree"):
        CompactRange.decode(size, data)
