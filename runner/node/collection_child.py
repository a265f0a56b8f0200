"""Puts a job's tickets into a user's ccache collection, or takes them out: the part that runs as that user.

A program of its own, which ``runner.node.collection`` runs by ``python3 -I -S -c``; it imports nothing of the package.
Arguments: ``put`` or ``remove``, the collection (``KEYRING:persistent:20001`` or ``KCM:20001``), uid and gid. Standard
input: the cache to put, a ccache file of version 4. The exit code is the whole answer.

Neither kernel nor KCM daemon replaces a cache at once: libkrb5 clears it and fills it ticket by ticket (cc_keyring.c,
cc_kcm.c). So tickets go into a cache of a new name, which is read again before the collection's primary is switched to
it, by one key or one request: who asks for the default cache gets the old tickets or the new ones, whole. Only then the
old cache goes.

The collection is the user's. A cache in it with a TGT that is good is a login of theirs, by whatever name: it is never
written to, never removed, and stays the primary if it is. ``kinit`` makes that needful, for it takes over the cache of
its principal that it finds, which is ours (krb5_cc_cache_match).

Sources: MIT krb5, "ccache types" and krb5.h (1.20); persistent-keyring(7).
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import sys
import time
from collections.abc import Iterator

DONE, NOTHING_THERE = 0, 1
USAGE, NOT_THE_USER, REFUSED, NO_ROOM, NO_DAEMON, UNLIKE, LEFT = 64, 70, 71, 72, 73, 74, 75
"""Not asked for anything; not irrevocably the user; libkrb5 or what it asked said no; over the user's key quota; no
KCM daemon; what was written reads otherwise; a cache of ours can't be removed."""

OUR_NAME = "ci_bridge_"
MAX_BYTES = 1024 * 1024

_CC_END = -1765328242
_KCM_NO_SERVER = -1750600181
_CONFIGURATION = "@X-CACHECONF:"


class Failed(Exception):
    """It was not done; carries the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Creds(ctypes.Structure):
    """The beginning of krb5_creds, which krb5.h makes public, with room for the rest."""

    _fields_ = (
        ("magic", ctypes.c_int32),
        ("client", ctypes.c_void_p),
        ("server", ctypes.c_void_p),
        ("key_magic", ctypes.c_int32),
        ("key_enctype", ctypes.c_int32),
        ("key_length", ctypes.c_uint32),
        ("key_contents", ctypes.c_void_p),
        ("authtime", ctypes.c_uint32),
        ("starttime", ctypes.c_uint32),
        ("endtime", ctypes.c_uint32),
        ("renew_till", ctypes.c_uint32),
        ("rest", ctypes.c_byte * 256),
    )


class Cache:
    """One cache of the collection."""

    def __init__(self, handle: ctypes.c_void_p, name: str) -> None:
        self.handle = handle
        self.name = name


class Collection:
    """A user's collection of ticket caches, through libkrb5."""

    def __init__(self, name: str) -> None:
        """Take ``KEYRING:persistent:<uid>``, or ``KCM:<uid>`` for what the daemon has of the uid's; raises Failed."""
        self._prefix = f"{name}:"
        self._krb5 = ctypes.CDLL("libkrb5.so.3")
        self._krb5.krb5_cc_get_full_name.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._context = ctypes.c_void_p()
        _require(self._krb5.krb5_init_secure_context(ctypes.byref(self._context)))
        # To MIT's client KCM:20001 is one cache of that name, and KCM: the collection.
        self._default = "KCM:" if name.startswith("KCM:") else name
        self._call("krb5_cc_set_default_name", self._default.encode())

    def caches(self) -> list[Cache]:
        """Give every cache that there is."""
        cursor, found = ctypes.c_void_p(), []
        self._call("krb5_cccol_cursor_new", ctypes.byref(cursor))
        while True:
            handle = ctypes.c_void_p()
            self._call("krb5_cccol_cursor_next", cursor, ctypes.byref(handle))
            if not handle:
                break
            found.append(self._named(handle))
        self._call("krb5_cccol_cursor_free", ctypes.byref(cursor))
        return found

    def new(self) -> Cache:
        """Give a cache by a new name of ours, not there yet."""
        return self.resolve(f"{self._prefix}{OUR_NAME}{secrets.token_hex(8)}")

    def resolve(self, name: str) -> Cache:
        """Give the cache of that name."""
        handle = ctypes.c_void_p()
        self._call("krb5_cc_resolve", name.encode(), ctypes.byref(handle))
        return self._named(handle)

    def primary(self) -> Cache | None:
        """Give the cache that the collection's name stands for, be it there or not; None where it names none."""
        try:
            return self.resolve(self._default)
        except Failed:
            return None

    def copy(self, source: Cache, target: Cache) -> None:
        """Initialise a cache with what another holds."""
        principal = ctypes.c_void_p()
        self._call("krb5_cc_get_principal", source.handle, ctypes.byref(principal))
        self._call("krb5_cc_initialize", target.handle, principal)
        self._call("krb5_cc_copy_creds", source.handle, target.handle)

    def switch(self, cache: Cache) -> None:
        """Make it the primary."""
        self._call("krb5_cc_switch", cache.handle)

    def destroy(self, cache: Cache) -> None:
        """Remove it; raises Failed."""
        self._call("krb5_cc_destroy", cache.handle)

    def is_ours(self, cache: Cache) -> bool:
        """Tell whether we wrote it, and nobody has logged in over it."""
        return cache.name.startswith(f"{self._prefix}{OUR_NAME}") and not self.is_login(cache)

    def is_login(self, cache: Cache) -> bool:
        """Tell whether it holds a TGT that is good."""
        try:
            return any(server.startswith("krbtgt/") and end > time.time() for _, server, end in self.tickets(cache))
        except Failed:
            return False

    def tickets(self, cache: Cache) -> list[tuple[str, str, int]]:
        """Give client, server and end (seconds since 1970) of each ticket; raises Failed for what is no cache."""
        cursor, found = ctypes.c_void_p(), []
        self._call("krb5_cc_start_seq_get", cache.handle, ctypes.byref(cursor))
        for creds in self._each(cache, cursor):
            found.append((self._text(creds.client), self._text(creds.server), int(creds.endtime)))
        self._call("krb5_cc_end_seq_get", cache.handle, ctypes.byref(cursor))
        return found

    def _each(self, cache: Cache, cursor: ctypes.c_void_p) -> Iterator[_Creds]:
        creds = _Creds()
        next_one = self._krb5.krb5_cc_next_cred
        while not (code := next_one(self._context, cache.handle, ctypes.byref(cursor), ctypes.byref(creds))):
            yield creds
            self._krb5.krb5_free_cred_contents(self._context, ctypes.byref(creds))
        if code != _CC_END:
            raise Failed(REFUSED)

    def _text(self, principal: int) -> str:
        text = ctypes.c_char_p()
        self._call("krb5_unparse_name", ctypes.c_void_p(principal), ctypes.byref(text))
        name = (text.value or b"").decode(errors="replace")
        self._krb5.krb5_free_unparsed_name(self._context, text)
        return name

    def _named(self, handle: ctypes.c_void_p) -> Cache:
        text = ctypes.c_char_p()
        self._call("krb5_cc_get_full_name", handle, ctypes.byref(text))
        return Cache(handle, (text.value or b"").decode(errors="replace"))

    def _call(self, name: str, *arguments: object) -> None:
        _require(getattr(self._krb5, name)(self._context, *arguments))


def put(collection: Collection, data: bytes) -> int:
    """Put the tickets in as a cache of their own, the primary unless that is a login; returns the exit code."""
    draft = os.memfd_create("ci-bridge-tickets", os.MFD_CLOEXEC)
    os.write(draft, data)
    source, made = collection.resolve(f"FILE:/proc/self/fd/{draft}"), collection.new()
    try:
        collection.copy(source, made)
        if not _alike(collection, source, made):
            raise Failed(UNLIKE)
        primary = collection.primary()
        if primary is None or not collection.is_login(primary):
            collection.switch(made)
    except Failed:
        collection.destroy(made)
        raise
    _clear(collection, but=made.name)
    return DONE


def remove(collection: Collection) -> int:
    """Remove what is ours, and let a cache of the user's that stays be the primary; returns the exit code."""
    removed = _clear(collection)
    if any(collection.is_ours(cache) for cache in collection.caches()):
        raise Failed(LEFT)
    return DONE if removed else NOTHING_THERE


def _alike(collection: Collection, source: Cache, made: Cache) -> bool:
    """Compare what was meant with what is there: as libkrb5 reads it, without a TGT and without configuration."""
    meant, there = sorted(collection.tickets(source)), sorted(collection.tickets(made))
    plain = not any(one.startswith("krbtgt/") or one.endswith(_CONFIGURATION) for _, one, _ in there)
    return bool(meant) and meant == there and plain


def _clear(collection: Collection, but: str = "") -> int:
    """Remove every cache of ours but one; returns how many. A login becomes the primary where that is gone."""
    removed = 0
    for cache in collection.caches():
        if cache.name != but and collection.is_ours(cache):
            collection.destroy(cache)
            removed += 1
    left, primary = collection.caches(), collection.primary()
    if left and (primary is None or primary.name not in [cache.name for cache in left]):
        collection.switch(max(left, key=collection.is_login))
    return removed


def _require(code: int) -> None:
    if code == errno.EDQUOT:
        raise Failed(NO_ROOM)
    if code == _KCM_NO_SERVER:
        raise Failed(NO_DAEMON)
    if code:
        raise Failed(REFUSED)


def _require_user(uid: int, gid: int) -> None:
    """Go on only as the user, with no way back; raises Failed."""
    if uid < 1 or os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3 or os.getgroups() not in ([], [gid]):
        raise Failed(NOT_THE_USER)


def main(arguments: list[str]) -> int:
    """Perform what the arguments name; returns the exit code."""
    try:
        verb, name, uid, gid = arguments
        _require_user(int(uid), int(gid))
        if verb == "remove":
            return remove(Collection(name))
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        return put(Collection(name), data) if verb == "put" and len(data) <= MAX_BYTES else USAGE
    except ValueError:
        return USAGE
    except Failed as error:
        return error.code
    except OSError:
        return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
