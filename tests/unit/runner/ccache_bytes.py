"""Ticket caches made by hand: ccache files of version 4 with tickets that only look like some."""

from __future__ import annotations

import struct
import time

REALM = b"NODE.TEST"


def counted(data: bytes) -> bytes:
    """A byte string after its length."""
    return struct.pack(">I", len(data)) + data


def principal(*parts: bytes, realm: bytes = REALM) -> bytes:
    """A principal of these parts."""
    return struct.pack(">II", 1, len(parts)) + counted(realm) + b"".join(map(counted, parts))


def ticket(client: bytes, server: bytes, end: int) -> bytes:
    """A ticket for a server that is good until `end` (seconds since 1970)."""
    key = struct.pack(">H", 18) + counted(b"k" * 32)
    return client + server + key + struct.pack(">IIII", 1, 1, end, 0) + bytes(13) + counted(b"t" * 800) + counted(b"")


TGS = principal(b"krbtgt", REALM)
CONFIGURATION = principal(b"krb5_ccache_conf_data", b"fast_avail", realm=b"X-CACHECONF:")


def cache_bytes(account: str, services: int, extra: str = "", life: float = 3600, tgt_life: float = 3600) -> bytes:
    """A cache of `account` with tickets for services, and one for `extra`: "tgt", "configuration" or nothing."""
    owner, now = principal(account.encode()), time.time()
    servers = [principal(b"lustre_mds", b"mds%d.test" % number) for number in range(services)]
    held = [ticket(owner, server, int(now + life)) for server in servers]
    if extra:
        held.append(ticket(owner, {"tgt": TGS, "configuration": CONFIGURATION}[extra], int(now + tgt_life)))
    return b"\x05\x04\x00\x00" + owner + b"".join(held)
