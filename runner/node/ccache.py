"""Checks that bytes are a ticket cache that may be put on a node: whole, of version 4, service tickets only.

Format: MIT krb5 documentation, "Credential cache file format".
"""

from __future__ import annotations

import struct

MAX_CACHE_BYTES = 1024 * 1024
_VERSION_4 = b"\x05\x04"


class BadCache(Exception):
    """The bytes are not a ticket cache, or hold something that must not be on a node."""


class _Reader:
    """Takes big-endian numbers and counted byte strings off a buffer; raises BadCache at its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:
            raise BadCache("it ends too early")
        self._at += size
        return piece

    def number(self, form: str) -> int:
        return int(struct.unpack(f">{form}", self.take(struct.calcsize(form)))[0])

    def counted(self) -> bytes:
        return self.take(self.number("I"))

    def principal(self) -> str:
        self.number("I")
        count = self.number("I")
        if count > 16:
            raise BadCache("a principal has too many components")
        realm = self.counted()
        parts = [self.counted() for _ in range(count)]
        return (b"/".join(parts) + b"@" + realm).decode(errors="replace")

    def pairs(self) -> None:
        """Skip addresses or authorization data."""
        for _ in range(min(self.number("I"), 4096)):
            self.number("H")
            self.counted()


def check(data: bytes) -> int:
    """Check a cache; returns the earliest end of its tickets (seconds since 1970); raises BadCache.

    Every ticket must be of the cache's own principal and for a service other than krbtgt: neither anybody's TGT nor an
    entry of configuration (``X-CACHECONF:``) has business on a node.
    """
    if len(data) > MAX_CACHE_BYTES or not data.startswith(_VERSION_4):
        raise BadCache("it is not a credential cache of version 4")
    reader = _Reader(data[len(_VERSION_4) :])
    reader.take(reader.number("H"))
    owner = reader.principal()
    ends = []
    while not reader.done:
        client, server, end = _credential(reader)
        if client != owner:
            raise BadCache("it holds a ticket of somebody else")
        if server.startswith("krbtgt/") or server.endswith("@X-CACHECONF:"):
            raise BadCache("it holds more than service tickets")
        ends.append(end)
    if not ends:
        raise BadCache("it holds no ticket")
    return min(ends)


def _credential(reader: _Reader) -> tuple[str, str, int]:
    client, server = reader.principal(), reader.principal()
    reader.number("H")
    reader.counted()
    _auth, _start, end, _renew = (reader.number("I") for _ in range(4))
    reader.take(1 + 4)
    reader.pairs()
    reader.pairs()
    reader.counted()
    reader.counted()
    return client, server, end
