"""Checks that bytes are a ticket cache that may be put on a node: whole, of version 4, one person's service tickets.

Format: MIT krb5 documentation, "Credential cache file format".
"""

from __future__ import annotations

import struct

MAX_CACHE_BYTES = 1024 * 1024
_VERSION_4 = b"\x05\x04"
_MAX_COMPONENTS = 16
_MAX_PAIRS = 4096


class BadCache(Exception):
    """The bytes are not a ticket cache, or hold something that must not be on a node."""


class _Principal:
    """A principal's parts as they are in the cache, without the quoting that could make two names look alike."""

    __slots__ = ("parts", "realm")

    def __init__(self, parts: tuple[bytes, ...], realm: bytes) -> None:
        self.parts = parts
        self.realm = realm

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Principal) and (self.parts, self.realm) == (other.parts, other.realm)

    __hash__ = None  # type: ignore[assignment]


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

    def principal(self) -> _Principal:
        self.number("I")
        count = self.number("I")
        if count > _MAX_COMPONENTS:
            raise BadCache("a principal has too many components")
        realm = self.counted()
        return _Principal(tuple(self.counted() for _ in range(count)), realm)

    def pairs(self) -> None:
        """Skip addresses or authorization data; what is not read to its end would be read otherwise by libkrb5."""
        count = self.number("I")
        if count > _MAX_PAIRS:
            raise BadCache("a ticket has too many addresses or authorization data")
        for _ in range(count):
            self.number("H")
            self.counted()


def check(data: bytes, account: str) -> int:
    """Check a cache of ``account`` (login name); returns the earliest end of its tickets (seconds since 1970).

    Raises BadCache. The cache must be the account's own, and so must every ticket in it, each for a service other than
    krbtgt: neither anybody's TGT nor an entry of configuration (``X-CACHECONF:``) has business on a node.
    """
    if len(data) > MAX_CACHE_BYTES or not data.startswith(_VERSION_4):
        raise BadCache("it is not a credential cache of version 4")
    reader = _Reader(data[len(_VERSION_4) :])
    reader.take(reader.number("H"))
    owner = reader.principal()
    if owner.parts != (account.encode(),):
        raise BadCache("it is not that of the job's user")
    ends = []
    while not reader.done:
        client, server, end = _credential(reader)
        if client != owner:
            raise BadCache("it holds a ticket of somebody else")
        if server.parts[:1] in ((), (b"krbtgt",)) or server.realm == b"X-CACHECONF:":
            raise BadCache("it holds more than service tickets")
        ends.append(end)
    if not ends:
        raise BadCache("it holds no ticket")
    return min(ends)


def _credential(reader: _Reader) -> tuple[_Principal, _Principal, int]:
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
