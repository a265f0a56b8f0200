"""Reads every ticket cache that is put into a directory of the realm's nodes, the moment it lies there (inotify(7)).

Between the event and the reading a cache may be gone: it is then known by what brought it only.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from realm import Realm

HOSTS = ("login", "node1", "node2")
DIRECTORIES = ("/tmp", "/var/tmp")
_CACHE = re.compile(r"\.?(krb5cc|tkt).*")
_CLOSE_WRITE, _MOVED_TO = 0x8, 0x80
_EVENT = struct.Struct("iIII")

Found = Callable[[str, int, bytes, float], None]
"""Takes where a file lay ("login:/tmp/krb5cc_20001"), its owner's uid, its content, and when it was read."""


class CacheFiles:
    """Watches from a thread of its own, from `follow` until `close`."""

    def __init__(self, realm: Realm, found: Found) -> None:
        self._realm = realm
        self._found = found
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._events = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._places: dict[int, tuple[str, Path]] = {}
        self._followed: dict[str, int] = {}
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._draining = threading.Lock()
        self.missed = 0
        self.follow()
        self._thread = threading.Thread(target=self._run, name="tap-files", daemon=True)
        self._thread.start()

    def follow(self) -> None:
        """Watch the hosts as they are now; one that was booted again has another /tmp."""
        for name in HOSTS:
            host = self._realm.hosts.get(name)
            if host is None or host.anchor in (0, self._followed.get(name)):
                continue
            for directory in DIRECTORIES:
                path = Path(f"/proc/{host.anchor}/root{directory}")
                number = self._libc.inotify_add_watch(self._events, bytes(path), _CLOSE_WRITE | _MOVED_TO)
                if number < 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
                self._places[number] = (f"{name}:{directory}", path)
            self._followed[name] = host.anchor

    def settle(self) -> None:
        """Take what has happened until now; the thread may be behind, or about to read what it has heard of."""
        self._drain()

    def close(self) -> None:
        """Take the last of it, and watch no more."""
        os.eventfd_write(self._end, 1)
        self._thread.join()
        self._drain()
        os.close(self._events)
        os.close(self._end)

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._events, self._end], [], [])
            if self._end in ready:
                return
            self._drain()

    def _drain(self) -> None:
        with self._draining:
            while self._take():
                pass

    def _take(self) -> bool:
        """Read the caches of the next events; False where there are none."""
        try:
            events = os.read(self._events, 1 << 16)
        except BlockingIOError:
            return False
        at = 0
        while at < len(events):
            number, _, _, size = _EVENT.unpack_from(events, at)
            name = os.fsdecode(events[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0"))
            at += _EVENT.size + size
            if _CACHE.fullmatch(name) and number in self._places:
                self._read(*self._places[number], name)
        return True

    def _read(self, place: str, directory: Path, name: str) -> None:
        try:
            with open(os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
                self._found(f"{place}/{name}", os.fstat(file.fileno()).st_uid, file.read(), time.time())
        except OSError:
            # Gone again, a link, or a directory (a cache of type DIR).
            self.missed += 1
