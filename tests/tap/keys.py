"""Opens tickets with the services' own keys, by libkrb5 itself: the client that a service sees, not the one outside.

Layouts of structures: krb5.h of MIT krb5, whose ABI has kept them since 1.3.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_INT, _UINT, _POINTER = ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p


class _Data(ctypes.Structure):
    _fields_ = (("magic", _INT), ("length", _UINT), ("data", ctypes.c_char_p))


class _EncData(ctypes.Structure):
    _fields_ = (("magic", _INT), ("enctype", _INT), ("kvno", _UINT), ("ciphertext", _Data))


class _Transited(ctypes.Structure):
    _fields_ = (("magic", _INT), ("kind", ctypes.c_ubyte), ("contents", _Data))


class _EncTicketPart(ctypes.Structure):
    _fields_ = (
        ("magic", _INT),
        ("flags", _INT),
        ("session", _POINTER),
        ("client", _POINTER),
        ("transited", _Transited),
        ("auth_time", _INT),
        ("start_time", _INT),
        ("end_time", _UINT),
        ("renew_till", _UINT),
    )


class _Ticket(ctypes.Structure):
    _fields_ = (
        ("magic", _INT),
        ("server", _POINTER),
        ("encrypted", _EncData),
        ("part", ctypes.POINTER(_EncTicketPart)),
    )


@dataclass(frozen=True)
class Inside:
    """What the service that a ticket is for reads in it."""

    client: str
    flags: int
    end: int
    renew_till: int


def inside(ticket: bytes, keytabs: Sequence[Path]) -> Inside | None:
    """Open a ticket in DER; None where no keytab has its key."""
    with _context() as (krb5, context):
        for keytab in keytabs:
            if not keytab.exists():
                continue
            decoded = ctypes.POINTER(_Ticket)()
            data = _Data(0, len(ticket), ticket)
            if krb5.krb5_decode_ticket(ctypes.byref(data), ctypes.byref(decoded)):
                raise ValueError("libkrb5 can't read the ticket")
            try:
                with _keytab(krb5, context, keytab) as table:
                    if krb5.krb5_server_decrypt_ticket_keytab(context, table, decoded) == 0:
                        return _read(krb5, context, decoded.contents.part.contents)
            finally:
                krb5.krb5_free_ticket(context, decoded)
    return None


def _read(krb5: ctypes.CDLL, context: ctypes.c_void_p, part: _EncTicketPart) -> Inside:
    name = ctypes.c_char_p()
    if krb5.krb5_unparse_name(context, ctypes.c_void_p(part.client), ctypes.byref(name)):
        raise ValueError("libkrb5 can't read the client's name")
    text = (name.value or b"").decode("latin-1")
    krb5.krb5_free_unparsed_name(context, name)
    return Inside(text, part.flags & 0xFFFFFFFF, part.end_time, part.renew_till)


@contextmanager
def _context() -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
    krb5 = ctypes.CDLL(ctypes.util.find_library("krb5") or "libkrb5.so.3")
    context = ctypes.c_void_p()
    if krb5.krb5_init_context(ctypes.byref(context)):
        raise OSError("libkrb5 does not start")
    try:
        yield krb5, context
    finally:
        krb5.krb5_free_context(context)


@contextmanager
def _keytab(krb5: ctypes.CDLL, context: ctypes.c_void_p, path: Path) -> Iterator[ctypes.c_void_p]:
    table = ctypes.c_void_p()
    if krb5.krb5_kt_resolve(context, f"FILE:{path}".encode(), ctypes.byref(table)):
        raise OSError(f"libkrb5 can't open {path}")
    try:
        yield table
    finally:
        krb5.krb5_kt_close(context, table)
