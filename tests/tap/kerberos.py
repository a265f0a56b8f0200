"""Finds what is of Kerberos in bytes of any kind, and says what it is: shares no line with the readers under test.

A ticket is found by its first bytes in DER (RFC 4120 section 5.3), at any offset; an entry of a credential cache by its
client's name, which begins with the length and name of the realm in every version of the format since the third, and
so also without the file's head. What holds the keys of a user, KRB-CRED and the KDC's answers, is found likewise.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

REALM = b"REALM.TEST"

_LENGTH = rb"(?:[\x00-\x80]|\x81.|\x82..|\x83...|\x84....)"
_PVNO = rb"\xa0\x03\x02\x01\x05"
_TICKET = re.compile(rb"\x61" + _LENGTH + rb"\x30" + _LENGTH + _PVNO + rb"\xa1", re.DOTALL)
_MESSAGE = re.compile(
    rb"[\x6b\x6d\x76]" + _LENGTH + rb"\x30" + _LENGTH + _PVNO + rb"\xa1\x03\x02\x01([\x0b\x0d\x16])", re.DOTALL
)
_REQUEST = re.compile(
    rb"[\x6a\x6c]" + _LENGTH + rb"\x30" + _LENGTH + rb"\xa1\x03\x02\x01\x05\xa2\x03\x02\x01([\x0a\x0c])", re.DOTALL
)
_ENC_TICKET_PART = re.compile(rb"\x63" + _LENGTH + rb"\x30" + _LENGTH + rb"\xa0\x07\x03\x05\x00", re.DOTALL)
_ENC_KDC_REP_PART = re.compile(
    rb"[\x79\x7a]" + _LENGTH + rb"\x30" + _LENGTH + rb"\xa0" + _LENGTH + rb"\x30" + _LENGTH + rb"\xa0\x03\x02\x01",
    re.DOTALL,
)
_MESSAGES = {11: "AS-REP", 13: "TGS-REP", 22: "KRB-CRED", 10: "AS-REQ", 12: "TGS-REQ"}

_COUNTED_REALM = len(REALM).to_bytes(4, "big") + REALM
_NEEDLES = {
    "a krbtgt's name in a cache": b"\x00\x00\x00\x06krbtgt",
    "a krbtgt's name in DER": b"\x1b\x06krbtgt",
    "an entry of configuration": b"X-CACHECONF:",
    "a cache of the format's first versions": len(REALM).to_bytes(4, "little") + REALM,
}

RENEWABLE = 0x00800000
_UNFIT = (
    RENEWABLE | 0x40000000 | 0x20000000 | 0x10000000 | 0x08000000 | 0x04000000 | 0x02000000 | 0x01000000 | 0x00400000
)
"""Renewable, forwardable, forwarded, proxiable, proxy, may postdate, postdated, invalid, initial (RFC 4120 section 2).

No delivered ticket has one of these; a forwardable one could be the evidence of the next S4U2Proxy.
"""


class Cut(Exception):
    """What was begun goes on after the bytes at hand."""


class NotThat(Exception):
    """The bytes are something else."""


@dataclass(frozen=True)
class Sight:
    """Something of Kerberos in a stream."""

    what: str
    offset: int
    server: str | None = None
    client: str | None = None
    end: int | None = None
    ticket: bytes = field(default=b"", repr=False)
    ticket_id: str | None = None
    """Upper-case hex SHA-256 of the ticket's cipher, as the KDC's audit and ours have it."""
    raw: bytes = field(default=b"", repr=False)
    """Of an entry of a cache: all of it, as it stood there."""
    faults: tuple[str, ...] = ()


def as_cache(entries: Iterable[Sight]) -> bytes:
    """A cache file, version 4 without a head, of entries of one client as they stood."""
    raw = [entry.raw for entry in entries]
    reader = _Reader(raw[0], 0)
    reader.principal()
    return b"\x05\x04\x00\x00" + raw[0][: reader.at] + b"".join(raw)


def sights(data: bytes) -> Iterator[Sight]:
    """Everything of Kerberos in these bytes as they are, in no order; `Sight.faults` is what is wrong on any stream."""
    for what, needle in _NEEDLES.items():
        for found in re.finditer(re.escape(needle), data):
            yield Sight(what, found.start(), faults=(what,))
    for found in (*_MESSAGE.finditer(data), *_REQUEST.finditer(data)):
        name = _MESSAGES[found[1][0]]
        yield Sight(name, found.start(), faults=(f"a {name}",))
    for pattern, name in ((_ENC_TICKET_PART, "ticket"), (_ENC_KDC_REP_PART, "KDC's answer")):
        for found in pattern.finditer(data):
            yield Sight(f"deciphered {name}", found.start(), faults=(f"the inside of a {name} in clear",))
    for found in _TICKET.finditer(data):
        try:
            yield _ticket(data, found.start())
        except Cut:
            continue
        except NotThat as error:
            yield Sight("ticket", found.start(), faults=(f"a ticket that can't be read: {error}",))
    yield from _entries(data)


def _ticket(data: bytes, offset: int) -> Sight:
    _, begin, after = _element(data, offset)
    try:
        fields = dict(_children(data, _only(data, (begin, after))))
        server = _server(data, fields)
        encrypted = dict(_children(data, _only(data, fields[0xA3])))
        cipher = _only(data, encrypted[0xA2])
    except KeyError as error:
        raise NotThat("a field is missing") from error
    ticket_id = hashlib.sha256(data[slice(*cipher)]).hexdigest().upper()
    faults = ("a ticket of krbtgt",) if server.startswith("krbtgt") else ()
    return Sight("ticket", offset, server, ticket=data[offset:after], ticket_id=ticket_id, faults=faults)


def _server(data: bytes, fields: dict[int, tuple[int, int]]) -> str:
    realm = data[slice(*_only(data, fields[0xA1]))]
    name = dict(_children(data, _only(data, fields[0xA2])))
    parts = [data[slice(*where)] for _, where in _children(data, _only(data, name[0xA1]))]
    return b"/".join(parts).decode("latin-1") + "@" + realm.decode("latin-1")


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, where the content begins, and where it has ended."""
    if len(data) < at + 2:
        raise Cut
    tag, size, begin = data[at], data[at + 1], at + 2
    if size == 0x80 or size > 0x84:
        raise NotThat("a length that DER does not have")
    if size > 0x80:
        width = size & 0x0F
        size, begin = int.from_bytes(data[begin : begin + width], "big"), begin + width
    if len(data) < begin + size:
        raise Cut
    return tag, begin, begin + size


def _children(data: bytes, where: tuple[int, int]) -> Iterator[tuple[int, tuple[int, int]]]:
    at, end = where
    while at < end:
        tag, begin, at = _element(data, at)
        if at > end:
            raise NotThat("an element is longer than what holds it")
        yield tag, (begin, at)


def _only(data: bytes, where: tuple[int, int]) -> tuple[int, int]:
    """The content of the one element that is there."""
    inside = [child for _, child in _children(data, where)]
    if len(inside) != 1:
        raise NotThat("not one element where there must be one")
    return inside[0]


def _entries(data: bytes) -> Iterator[Sight]:
    """Entries of caches (MIT krb5, "Credential cache file format"): each begins with its client, then its server."""
    for found in re.finditer(re.escape(_COUNTED_REALM), data):
        try:
            yield _entry(_Reader(data, found.start() - 8))
        except (Cut, NotThat):
            continue


def _entry(reader: _Reader) -> Sight:
    offset = reader.at
    client, server = reader.principal(), reader.principal()
    enctype, key = reader.number(2), reader.counted()
    if enctype > 64 or len(key) > 64:
        raise NotThat("no key")
    reader.number(4)
    start, end, renew = reader.number(4), reader.number(4), reader.number(4)
    is_skey, flags = reader.number(1), reader.number(4)
    more = reader.pairs() + reader.pairs()
    ticket, second = reader.counted(), reader.counted()
    wrong = {
        "an evidence ticket (second_ticket)": bool(second),
        "a key for user to user": bool(is_skey),
        "flags that no delivered ticket has": bool(flags & _UNFIT),
        "a time until which it can be renewed": renew != 0,
        "an end before its start": end <= start,
        "addresses or authorisation data": more != 0,
        "a krbtgt": server.startswith("krbtgt"),
        "no ticket": not ticket.startswith(b"\x61"),
    }
    faults = tuple(f"an entry of a cache with {fault}" for fault, so in wrong.items() if so)
    return Sight("cache entry", offset, server, client, end, ticket, _id_of(ticket), reader.since(offset), faults)


def _id_of(ticket: bytes) -> str | None:
    try:
        return _ticket(ticket, 0).ticket_id
    except (Cut, NotThat):
        return None


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        if at < 0:
            raise NotThat("nothing before the realm")
        self._data = data
        self.at = at

    def take(self, size: int) -> bytes:
        if size > 1 << 20:
            raise NotThat("too long for a cache")
        piece = self._data[self.at : self.at + size]
        if len(piece) < size:
            raise Cut
        self.at += size
        return piece

    def since(self, offset: int) -> bytes:
        return self._data[offset : self.at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def counted(self) -> bytes:
        return self.take(self.number(4))

    def principal(self) -> str:
        kind, count = self.number(4), self.number(4)
        if kind > 255 or not 0 < count <= 16:
            raise NotThat("no principal")
        realm = self.counted().decode("latin-1")
        return "/".join(self.counted().decode("latin-1") for _ in range(count)) + f"@{realm}"

    def pairs(self) -> int:
        count = self.number(4)
        if count > 4096:
            raise NotThat("too many")
        for _ in range(count):
            self.number(2)
            self.counted()
        return count
