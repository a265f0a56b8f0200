"""What the node agent lets onto its node: one person's own service tickets, read as libkrb5 reads them."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from node_world import Node
from node_world import Realm as NodeRealm

from runner import ccache

LONG = 4097


def _counted(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _principal(realm: bytes, *parts: bytes) -> bytes:
    return struct.pack(">II", 1, len(parts)) + _counted(realm) + b"".join(map(_counted, parts))


def _ticket(client: bytes, server: bytes, addresses: int = 0, authdata: int = 0) -> bytes:
    key = struct.pack(">H", 18) + _counted(b"k" * 32)
    times = struct.pack(">IIII", 1, 1, 2**31 - 1, 0) + b"\0" + struct.pack(">I", 0)
    pairs = (
        struct.pack(">I", count) + (struct.pack(">H", 2) + _counted(b"")) * count for count in (addresses, authdata)
    )
    return client + server + key + times + b"".join(pairs) + _counted(b"ticket") + _counted(b"")


ALICE = _principal(b"NODE.TEST", b"alice")
BOB = _principal(b"NODE.TEST", b"bob")
MDS = _principal(b"NODE.TEST", b"lustre_mds", b"mds1.test")
TGS = _principal(b"NODE.TEST", b"krbtgt", b"NODE.TEST")


def _cache(owner: bytes, *tickets: bytes) -> bytes:
    return b"\x05\x04\x00\x00" + owner + b"".join(tickets)


def test_a_cache_of_service_tickets_is_taken_with_its_first_end() -> None:
    assert ccache.check(_cache(ALICE, _ticket(ALICE, MDS, 2, 4096), _ticket(ALICE, MDS)), "alice") == 2**31 - 1


BAD: dict[str, Callable[[], bytes]] = {
    "a TGT": lambda: _cache(ALICE, _ticket(ALICE, MDS), _ticket(ALICE, TGS)),
    "a TGT of another realm": lambda: _cache(ALICE, _ticket(ALICE, _principal(b"EVIL", b"krbtgt", b"NODE.TEST"))),
    "configuration": lambda: _cache(ALICE, _ticket(ALICE, _principal(b"X-CACHECONF:", b"krb5_ccache_conf_data", b"x"))),
    "a service without a name": lambda: _cache(ALICE, _ticket(ALICE, _principal(b"NODE.TEST"))),
    "somebody else's ticket": lambda: _cache(ALICE, _ticket(BOB, MDS)),
    "somebody else's cache": lambda: _cache(BOB, _ticket(BOB, MDS)),
    "an instance of the person": lambda: _cache(_principal(b"R", b"alice", b"admin"), b""),
    "a name with a slash": lambda: _cache(_principal(b"R", b"al/ice"), b""),
    "the same name and more": lambda: _cache(_principal(b"R", b"alice@R"), b""),
    "no name": lambda: _cache(_principal(b"R"), b""),
    "the same name elsewhere": lambda: _cache(ALICE, _ticket(_principal(b"EVIL.TEST", b"alice"), MDS)),
    "no ticket": lambda: _cache(ALICE),
    "too many addresses": lambda: _cache(ALICE, _ticket(ALICE, MDS, LONG)),
    "too much authorization data": lambda: _cache(ALICE, _ticket(ALICE, MDS, 0, LONG)),
    "more than is allowed": lambda: _cache(ALICE, _ticket(ALICE, MDS)) + b"\0" * ccache.MAX_CACHE_BYTES,
    "an older version": lambda: b"\x05\x03" + _cache(ALICE, _ticket(ALICE, MDS))[2:],
}


@pytest.mark.threat("T20")
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_nothing_else_is_taken(bad: Callable[[], bytes]) -> None:
    with pytest.raises(ccache.BadCache):
        ccache.check(bad(), "alice")


@pytest.mark.threat("T20")
def test_no_byte_can_be_missing() -> None:
    whole = _cache(ALICE, _ticket(ALICE, MDS, 1, 1))
    for size in range(len(whole)):
        with pytest.raises(ccache.BadCache):
            ccache.check(whole[:size], "alice")


def _with_hidden_tgt() -> bytes:
    """A cache that is one service ticket to who stops at 4096 addresses, and has a TGT to who reads them all.

    The bytes of address 4097 are, to the former, no authorization data and a ticket of 64 KiB, which hides the rest.
    """
    one = _ticket(ALICE, MDS)
    start = one[: len(one) - len(_counted(b"ticket") + _counted(b"")) - 8]
    addresses = struct.pack(">I", LONG) + (struct.pack(">H", 2) + _counted(b"")) * (LONG - 1)
    last = struct.pack(">H", 0) + _counted(b"\0")
    filler = one[: -len(_counted(b""))]
    inside = b"\0\0\0" + _counted(b"t") + _counted(b"") + _ticket(ALICE, TGS) + filler
    size = 65536 - len(inside) - 4 + 4
    return _cache(ALICE, start + addresses + last + b"\0" + inside + _counted(b"\0" * size))


@pytest.mark.threat("T20")
def test_a_tgt_can_not_hide_behind_more_addresses_than_are_read(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "hidden"
    path.write_bytes(_with_hidden_tgt())
    command = ["klist", "-c", f"FILE:{path}"]
    shown = subprocess.run(command, env=node.realm.environment, capture_output=True, text=True, check=True)
    assert "krbtgt/NODE.TEST" in shown.stdout
    with pytest.raises(ccache.BadCache):
        ccache.check(path.read_bytes(), "alice")


@pytest.mark.threat("T20")
@pytest.mark.threat("T37")
def test_another_persons_tickets_are_not_placed_whatever_the_bridge_says(node: Node, kdc: NodeRealm) -> None:
    (node.directory / "bundle").write_bytes(kdc.bundle("alice"))
    assert node.hook("prolog") == 0
    assert "not that of the account" in node.word()
    assert not node.cache.exists()


def test_a_uid_without_an_account_gets_nothing(node: Node) -> None:
    assert node.hook("prolog", uid=3_999_999) == 0
    assert "no account on this node" in node.word()
    assert node.requests() == []
