"""Reads and writes MIT's credential cache file format, version 4, strictly and within bounds.

Source: MIT krb5 documentation, "Credential cache file format"; src/lib/krb5/ccache/cc_file.c and ccmarshal.c.
Whatever is not exactly that format raises Defect ``kerberos.ccache_malformed``: these bytes come from our own library
calls, so anything odd in them means that one of our rules was broken.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from bridge.errors import Defect

MAX_CACHE_BYTES: Final = 1 << 20
MAX_CREDENTIALS: Final = 64
MAX_TICKET_BYTES: Final = 64 * 1024
"""A PAC with a thousand groups is about 12 KiB; Windows stops at 48 000 bytes (MaxTokenSize)."""
MAX_NAME_BYTES: Final = 512
MAX_COMPONENTS: Final = 8
MAX_LIST: Final = 32

_VERSION_4: Final = b"\x05\x04"
_NT_PRINCIPAL: Final = 1
_CONFIG_REALM: Final = b"X-CACHECONF:"
_ESCAPES: Final = {"\\": "\\\\", "/": "\\/", "@": "\\@", "\0": "\\0", "\n": "\\n", "\t": "\\t", "\b": "\\b"}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal as bytes; two are the same when realm and components are, whatever their name type."""

    realm: bytes
    components: tuple[bytes, ...]

    @classmethod
    def of(cls, text: str) -> Principal:
        """Make one from plain ``a/b@REALM`` text that holds no escapes (our grammar allows none)."""
        name, _, realm = text.rpartition("@")
        return cls(realm.encode("ascii"), tuple(part.encode("ascii") for part in name.split("/")))

    @property
    def is_config(self) -> bool:
        """True for a cache's own settings, which are filed as if they were credentials (ccconfig.c)."""
        return self.realm == _CONFIG_REALM

    def __str__(self) -> str:
        quoted = (
            "".join(_ESCAPES.get(c, c) for c in part.decode("latin-1")) for part in (*self.components, self.realm)
        )
        *names, realm = quoted
        return "/".join(names) + "@" + realm


@dataclass(frozen=True, slots=True)
class Credential:
    """One entry of a cache. Times are seconds since 1970, unsigned 32 bits; flags as in RFC 4120 section 5.3."""

    client: Principal
    server: Principal
    enctype: int
    session_key: bytes = field(repr=False)
    auth_time: int
    start_time: int
    end_time: int
    renew_till: int
    is_skey: bool
    flags: int
    addresses: tuple[tuple[int, bytes], ...]
    authdata: tuple[tuple[int, bytes], ...] = field(repr=False)
    ticket: bytes = field(repr=False)
    second_ticket: bytes = field(repr=False)


def parse(data: bytes) -> tuple[Principal, tuple[Credential, ...]]:
    """Read a whole cache: its default principal and its entries, config entries included; raises Defect."""
    if len(data) > MAX_CACHE_BYTES:
        raise _malformed(0, "too long")
    reader = _Reader(data)
    if reader.take(2) != _VERSION_4:
        raise _malformed(0, "not version 4")
    _skip_header(reader)
    principal = _principal(reader)
    credentials: list[Credential] = []
    while not reader.at_end:
        if len(credentials) == MAX_CREDENTIALS:
            raise _malformed(reader.offset, "too many entries")
        credentials.append(_credential(reader))
    return principal, tuple(credentials)


def parse_entry(data: bytes) -> Credential:
    """Read one entry that stands alone, as krb5_marshal_credentials() writes it; raises Defect."""
    reader = _Reader(data)
    credential = _credential(reader)
    if not reader.at_end:
        raise _malformed(reader.offset, "bytes after the entry")
    return credential


def write(principal: Principal, credentials: tuple[Credential, ...]) -> bytes:
    """Make a cache file with an empty header (cc_file.c writes one where no clock offset is known)."""
    head = _VERSION_4 + struct.pack(">H", 0) + _principal_bytes(principal)
    return head + b"".join(write_entry(credential) for credential in credentials)


def write_entry(entry: Credential) -> bytes:
    """Make the bytes of one entry, the form that krb5_unmarshal_credentials() reads."""
    times = struct.pack(">IIII", entry.auth_time, entry.start_time, entry.end_time, entry.renew_till)
    return b"".join(
        (
            _principal_bytes(entry.client),
            _principal_bytes(entry.server),
            struct.pack(">H", entry.enctype) + _data(entry.session_key),
            times + struct.pack(">BI", entry.is_skey, entry.flags),
            _typed_list_bytes(entry.addresses),
            _typed_list_bytes(entry.authdata),
            _data(entry.ticket) + _data(entry.second_ticket),
        )
    )


class _Reader:
    """A cursor over bytes that raises Defect where they end too early or a length is over its bound."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.offset = 0

    @property
    def at_end(self) -> bool:
        return self.offset == len(self._data)

    def take(self, size: int) -> bytes:
        end = self.offset + size
        if end > len(self._data):
            raise _malformed(self.offset, "ends early")
        piece = self._data[self.offset : end]
        self.offset = end
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def bounded(self, bound: int) -> int:
        value = self.number(4)
        if value > bound:
            raise _malformed(self.offset - 4, f"a length of {value} is over {bound}")
        return value

    def data(self, bound: int) -> bytes:
        return self.take(self.bounded(bound))

    def many(self, bound: int, read: Callable[[], _T]) -> tuple[_T, ...]:
        return tuple(read() for _ in range(self.bounded(bound)))


def _skip_header(reader: _Reader) -> None:
    end = reader.number(2) + reader.offset
    while reader.offset < end:
        reader.number(2)
        reader.take(reader.number(2))
    if reader.offset != end:
        raise _malformed(reader.offset, "header fields overrun the header")


def _principal(reader: _Reader) -> Principal:
    reader.number(4)
    count = reader.bounded(MAX_COMPONENTS)
    if count == 0:
        raise _malformed(reader.offset, "a principal without a name")
    realm = reader.data(MAX_NAME_BYTES)
    return Principal(realm, tuple(reader.data(MAX_NAME_BYTES) for _ in range(count)))


def _typed(reader: _Reader) -> tuple[int, bytes]:
    return reader.number(2), reader.data(MAX_TICKET_BYTES)


def _credential(reader: _Reader) -> Credential:
    return Credential(
        client=_principal(reader),
        server=_principal(reader),
        enctype=reader.number(2),
        session_key=reader.data(MAX_NAME_BYTES),
        auth_time=reader.number(4),
        start_time=reader.number(4),
        end_time=reader.number(4),
        renew_till=reader.number(4),
        is_skey=_flag(reader),
        flags=reader.number(4),
        addresses=reader.many(MAX_LIST, lambda: _typed(reader)),
        authdata=reader.many(MAX_LIST, lambda: _typed(reader)),
        ticket=reader.data(MAX_TICKET_BYTES),
        second_ticket=reader.data(MAX_TICKET_BYTES),
    )


def _flag(reader: _Reader) -> bool:
    value = reader.number(1)
    if value > 1:
        raise _malformed(reader.offset - 1, "is_skey is neither 0 nor 1")
    return value == 1


def _data(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def _principal_bytes(principal: Principal) -> bytes:
    head = struct.pack(">II", _NT_PRINCIPAL, len(principal.components))
    return head + b"".join(_data(part) for part in (principal.realm, *principal.components))


def _typed_list_bytes(items: tuple[tuple[int, bytes], ...]) -> bytes:
    return struct.pack(">I", len(items)) + b"".join(struct.pack(">H", kind) + _data(value) for kind, value in items)


def _malformed(offset: int, what: str) -> Defect:
    return Defect(
        "kerberos.ccache_malformed",
        "A credential cache does not have the format that it must have.",
        "Nothing was handed out; give the reference to the operators of the bridge.",
        offset=offset,
        what=what,
    )
