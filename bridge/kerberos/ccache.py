"""Reads and writes MIT's credential cache file format, version 4, strictly and within bounds.

Source: MIT krb5 documentation, "Credential cache file format"; src/lib/krb5/ccache/cc_file.c and ccmarshal.c.
Whatever is not exactly that format raises Defect ``kerberos.ccache_malformed``: these bytes come from our own library
calls, so anything odd in them means that one of our rules was broken.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

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

_SHORT: Final = struct.Struct(">H")
_TWO_SHORTS: Final = struct.Struct(">HH")
_WORD: Final = struct.Struct(">I")
_TIMES_AND_FLAGS: Final = struct.Struct(">IIIIBI")
"""authtime, starttime, endtime, renew_till, is_skey, ticket flags."""


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
    return assemble(principal, (write_entry(credential) for credential in credentials))


def assemble(principal: Principal, entries: Iterable[bytes]) -> bytes:
    """Make a cache file of entries that are marshalled already; what they hold shows when it is parsed."""
    return _VERSION_4 + b"\0\0" + _principal_bytes(principal) + b"".join(entries)


def write_entry(entry: Credential) -> bytes:
    """Make the bytes of one entry, the form that krb5_unmarshal_credentials() reads."""
    times = (entry.auth_time, entry.start_time, entry.end_time, entry.renew_till)
    return b"".join(
        (
            _principal_bytes(entry.client),
            _principal_bytes(entry.server),
            _SHORT.pack(entry.enctype) + _data(entry.session_key),
            _TIMES_AND_FLAGS.pack(*times, entry.is_skey, entry.flags),
            _typed_list_bytes(entry.addresses),
            _typed_list_bytes(entry.authdata),
            _data(entry.ticket) + _data(entry.second_ticket),
        )
    )


class _Reader:
    """A cursor over bytes that raises Defect where they end too early or a length is over its bound."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._size = len(data)
        self.offset = 0

    @property
    def at_end(self) -> bool:
        return self.offset == self._size

    def take(self, size: int) -> bytes:
        start = self.offset
        self.offset = end = start + size
        if end > self._size:
            raise _malformed(start, "ends early")
        return self._data[start:end]

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        start = self.offset
        self.offset = end = start + form.size
        if end > self._size:
            raise _malformed(start, "ends early")
        return form.unpack_from(self._data, start)

    def bounded(self, bound: int) -> int:
        (value,) = self.unpack(_WORD)
        if value > bound:
            raise _malformed(self.offset - 4, f"a length of {value} is over {bound}")
        return value

    def data(self, bound: int) -> bytes:
        """As ``take(bounded(bound))``, which is most of what a cache is read with, in one step."""
        start = self.offset + 4
        if start > self._size:
            raise _malformed(self.offset, "ends early")
        (length,) = _WORD.unpack_from(self._data, self.offset)
        self.offset = end = start + length
        if length > bound:
            raise _malformed(start - 4, f"a length of {length} is over {bound}")
        if end > self._size:
            raise _malformed(start, "ends early")
        return self._data[start:end]


def _skip_header(reader: _Reader) -> None:
    (size,) = reader.unpack(_SHORT)
    end = size + reader.offset
    while reader.offset < end:
        _, length = reader.unpack(_TWO_SHORTS)
        reader.take(length)
    if reader.offset != end:
        raise _malformed(reader.offset, "header fields overrun the header")


def _principal(reader: _Reader) -> Principal:
    reader.take(4)
    count = reader.bounded(MAX_COMPONENTS)
    if count == 0:
        raise _malformed(reader.offset, "a principal without a name")
    realm = reader.data(MAX_NAME_BYTES)
    return Principal(realm, tuple([reader.data(MAX_NAME_BYTES) for _ in range(count)]))


def _typed_list(reader: _Reader) -> tuple[tuple[int, bytes], ...]:
    count = reader.bounded(MAX_LIST)
    return tuple([(reader.unpack(_SHORT)[0], reader.data(MAX_TICKET_BYTES)) for _ in range(count)])


def _credential(reader: _Reader) -> Credential:
    client, server = _principal(reader), _principal(reader)
    (enctype,) = reader.unpack(_SHORT)
    session_key = reader.data(MAX_NAME_BYTES)
    auth_time, start_time, end_time, renew_till, is_skey, flags = reader.unpack(_TIMES_AND_FLAGS)
    if is_skey > 1:
        raise _malformed(reader.offset - 5, "is_skey is neither 0 nor 1")
    return Credential(
        client=client,
        server=server,
        enctype=enctype,
        session_key=session_key,
        auth_time=auth_time,
        start_time=start_time,
        end_time=end_time,
        renew_till=renew_till,
        is_skey=is_skey == 1,
        flags=flags,
        addresses=_typed_list(reader),
        authdata=_typed_list(reader),
        ticket=reader.data(MAX_TICKET_BYTES),
        second_ticket=reader.data(MAX_TICKET_BYTES),
    )


def _data(value: bytes) -> bytes:
    return _WORD.pack(len(value)) + value


def _principal_bytes(principal: Principal) -> bytes:
    head = struct.pack(">II", _NT_PRINCIPAL, len(principal.components))
    return head + b"".join(_data(part) for part in (principal.realm, *principal.components))


def _typed_list_bytes(items: tuple[tuple[int, bytes], ...]) -> bytes:
    return _WORD.pack(len(items)) + b"".join(_SHORT.pack(kind) + _data(value) for kind, value in items)


def _malformed(offset: int, what: str) -> Defect:
    return Defect(
        "kerberos.ccache_malformed",
        "A credential cache does not have the format that it must have.",
        "Nothing was handed out; give the reference to the operators of the bridge.",
        offset=offset,
        what=what,
    )
