"""Reads ticket caches: whole, of version 4, and nothing else; and checks what may be put on a node.

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


class Principal:
    """A principal's parts as they are in the cache, without the quoting that could make two names look alike."""

    __slots__ = ("parts", "realm")

    def __init__(self, parts: tuple[bytes, ...], realm: bytes) -> None:
        self.parts = parts
        self.realm = realm

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Principal) and (self.parts, self.realm) == (other.parts, other.realm)

    __hash__ = None  # type: ignore[assignment]


class Ticket:
    """What matters of one entry: whose, for which service, and until when it is good (seconds since 1970)."""

    __slots__ = ("client", "end", "server")

    def __init__(self, client: Principal, server: Principal, end: int) -> None:
        self.client = client
        self.server = server
        self.end = end

    @property
    def is_tgt(self) -> bool:
        """Whether more tickets can be had for it, in whatever realm."""
        return self.server.parts[:1] == (b"krbtgt",) and not self.is_configuration

    @property
    def is_configuration(self) -> bool:
        """Whether it is no ticket but a note of libkrb5's."""
        return self.server.realm == b"X-CACHECONF:"


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

    def principal(self) -> Principal:
        self.number("I")
        count = self.number("I")
        if count > _MAX_COMPONENTS:
            raise BadCache("a principal has too many components")
        realm = self.counted()
        return Principal(tuple(self.counted() for _ in range(count)), realm)

    def pairs(self) -> None:
        """Skip addresses or authorization data; what is not read to its end would be read otherwise by libkrb5."""
        count = self.number("I")
        if count > _MAX_PAIRS:
            raise BadCache("a ticket has too many addresses or authorization data")
        for _ in range(count):
            self.number("H")
            self.counted()


def read(data: bytes, max_bytes: int = MAX_CACHE_BYTES) -> tuple[Principal, list[Ticket]]:
    """Read a cache to its end; returns whose it is, and its entries; raises BadCache."""
    if len(data) > max_bytes or not data.startswith(_VERSION_4):
        raise BadCache("it is not a credential cache of version 4")
    reader = _Reader(data[len(_VERSION_4) :])
    reader.take(reader.number("H"))
    owner = reader.principal()
    tickets = []
    while not reader.done:
        tickets.append(_ticket(reader))
    return owner, tickets


def check(data: bytes, account: str) -> int:
    """Check a cache of ``account`` (login name); returns the earliest end of its tickets (seconds since 1970).

    Raises BadCache. The cache must be the account's own, and so must every ticket in it, each for a service other than
    krbtgt: neither anybody's TGT nor an entry of configuration (``X-CACHECONF:``) has business on a node.
    """
    owner, tickets = read(data)
    if owner.parts != (account.encode(),):
        raise BadCache("it is not that of the account")
    for ticket in tickets:
        if ticket.client != owner:
            raise BadCache("it holds a ticket of somebody else")
        if ticket.is_tgt or ticket.is_configuration or not ticket.server.parts:
            raise BadCache("it holds more than service tickets")
    if not tickets:
        raise BadCache("it holds no ticket")
    return min(ticket.end for ticket in tickets)


def _ticket(reader: _Reader) -> Ticket:
    client, server = reader.principal(), reader.principal()
    reader.number("H")
    reader.counted()
    _auth, _start, end, _renew = (reader.number("I") for _ in range(4))
    reader.take(1 + 4)
    reader.pairs()
    reader.pairs()
    reader.counted()
    reader.counted()
    return Ticket(client, server, end)
