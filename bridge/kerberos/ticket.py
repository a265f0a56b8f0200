"""Reads the little of a Kerberos ticket that is not encrypted: whom it is for, and the cipher text that is its id.

Source: RFC 4120 sections 5.2.2, 5.2.9, 5.3 and appendix A; DER (X.690), definite lengths only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from bridge.errors import Defect
from bridge.kerberos.ccache import MAX_COMPONENTS, Principal

_APPLICATION_TICKET: Final = 0x61
_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_OCTET_STRING: Final = 0x04
_GENERAL_STRING: Final = 0x1B
_TICKET_VERSION: Final = 5


@dataclass(frozen=True, slots=True)
class OpenPart:
    """The part of a ticket that anyone can read."""

    server: Principal
    enctype: int
    cipher: bytes = field(repr=False)
    kvno: int | None = None
    """Which of the server's keys it is made with (RFC 4120 section 5.2.9); None where the KDC does not say."""

    @property
    def ticket_id(self) -> str:
        """Upper-case hex SHA-256 of the cipher text: the id in MIT's KDC audit (kdc_audit.c, kau_make_tkt_id)."""
        return hashlib.sha256(self.cipher).hexdigest().upper()


def open_part(ticket: bytes) -> OpenPart:
    """Read a DER encoded ``Ticket``; raises Defect ``kerberos.ticket_malformed``."""
    body = _whole(_whole(ticket, _APPLICATION_TICKET), _SEQUENCE)
    version, rest = _next(body, _context(0))
    if _integer(version) != _TICKET_VERSION:
        raise _malformed("version")
    realm, rest = _next(rest, _context(1))
    name, rest = _next(rest, _context(2))
    encrypted = _whole(rest, _context(3))
    enctype, kvno, cipher = _encrypted(_whole(encrypted, _SEQUENCE))
    server = Principal(_whole(realm, _GENERAL_STRING), _components(_whole(name, _SEQUENCE)))
    return OpenPart(server, enctype, cipher, kvno)


def _components(name: bytes) -> tuple[bytes, ...]:
    kind, rest = _next(name, _context(0))
    _integer(kind)
    strings = _whole(_whole(rest, _context(1)), _SEQUENCE)
    found: list[bytes] = []
    while strings:
        text, strings = _next(strings, _GENERAL_STRING)
        found.append(text)
    if not 0 < len(found) <= MAX_COMPONENTS:
        raise _malformed("sname")
    return tuple(found)


def _encrypted(data: bytes) -> tuple[int, int | None, bytes]:
    enctype, rest = _next(data, _context(0))
    kvno = None
    if rest[:1] == bytes((_context(1),)):
        number, rest = _next(rest, _context(1))
        kvno = _integer(number)
    return _integer(enctype), kvno, _whole(_whole(rest, _context(2)), _OCTET_STRING)


def _context(number: int) -> int:
    return 0xA0 | number


def _integer(data: bytes) -> int:
    content = _whole(data, _INTEGER)
    if not 0 < len(content) <= 5:
        raise _malformed("integer")
    return int.from_bytes(content, "big", signed=True)


def _whole(data: bytes, tag: int) -> bytes:
    content, rest = _next(data, tag)
    if rest:
        raise _malformed("bytes left over")
    return content


def _next(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Take one element with this tag off the front; give its content and what follows it."""
    if len(data) < 2 or data[0] != tag:
        raise _malformed("tag")
    size, start = data[1], 2
    if size >= 0x80:
        width = size & 0x7F
        start += width
        size = int.from_bytes(data[2:start], "big")
        if not 0 < width <= 4 or len(data) < start or size < 0x80 or size < 1 << (8 * (width - 1)):
            raise _malformed("length")
    if len(data) < start + size:
        raise _malformed("ends early")
    return data[start : start + size], data[start + size :]


def _malformed(what: str) -> Defect:
    return Defect(
        "kerberos.ticket_malformed",
        "A Kerberos ticket does not have the form that it must have.",
        "Nothing was handed out; give the reference to the operators of the bridge.",
        what=what,
    )
