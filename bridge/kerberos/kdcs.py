"""Keeps a KDC that answers first in line, for a libkrb5 that can't do so itself.

MIT before 1.22 starts each exchange at the first KDC of its list: one that takes no connection costs a second every
time, and one that takes it and says nothing (a KDC whose database hangs) costs ten, which is longer than any caller
waits (both measured). So the bridge asks all KDCs at once when something is slow, and writes their order into a
krb5.conf that stands before the system's own in KRB5_CONFIG.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import socket
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as NoneInTime
from pathlib import Path
from typing import Final

ANSWER_SECONDS: Final = 1.0
"""A KDC that needs longer for the shortest question is not one to begin with."""

_PORT: Final = 88
_SHORTEST_REPLY: Final = 5
_REPLIES: Final = frozenset({0x6B, 0x7E})
"""AS-REP and KRB-ERROR (RFC 4120 sections 5.4.2 and 5.9.1): either was made by a KDC that has its database."""


class KdcOrder:
    """The KDCs of a realm, best first, as libkrb5 finds them in ``file``. Safe in threads."""

    def __init__(self, principal: str, kdcs: Sequence[str], file: Path) -> None:
        """Take the bridge's principal with realm, KDCs as ``host`` or ``host:port`` in the site's own order; write."""
        name, _, self._realm = principal.rpartition("@")
        self._file = file
        self._checking = threading.Lock()
        self._question = _initial_request(name.split("/"), self._realm)
        self._kdcs = tuple(kdcs)
        self._seen_from = 0.0
        self._write()

    @property
    def first(self) -> str:
        """The KDC that libkrb5 begins with."""
        return self._kdcs[0]

    def renew(self, silent: str) -> bool:
        """Put the first KDC that answers in front of ``silent``; tells whether libkrb5 now begins with another one.

        Takes a second at most, and up to one more until libkrb5 looks at the file again, where the order has changed.
        Another thread that does the same is waited for.
        """
        with self._checking:
            if self.first == silent:
                best = self._fastest()
                if best is None or best == silent:
                    return False
                self._kdcs = (best, *(kdc for kdc in self._kdcs if kdc != best))
                self._write()
        # profile_update_file_data() looks at a file at most once in each second of the clock (prof_file.c).
        time.sleep(max(0.0, self._seen_from - time.time()))
        return True

    def renew_soon(self, slow: str) -> None:
        """Do so without waiting for it."""
        if not self._checking.locked():
            threading.Thread(target=self.renew, args=(slow,), name="kdc-order", daemon=True).start()

    def _fastest(self) -> str | None:
        pool = ThreadPoolExecutor(len(self._kdcs), thread_name_prefix="kdc-order")
        asked: dict[Future[bool], str] = {pool.submit(_answers, kdc, self._question): kdc for kdc in self._kdcs}
        try:
            return next((asked[one] for one in as_completed(asked, ANSWER_SECONDS) if one.result()), None)
        except NoneInTime:
            return None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _write(self) -> None:
        lines = "".join(f"        kdc = {kdc}\n" for kdc in self._kdcs)
        draft = self._file.with_name(f".{self._file.name}.{secrets.token_hex(8)}")
        # The asterisk: later files have nothing to add to this realm. Before 1.22 only (sub)sections can say so.
        draft.write_text(f"[realms]\n    {self._realm} = {{\n{lines}    }}*\n", encoding="ascii")
        draft.replace(self._file)
        self._seen_from = math.floor(time.time()) + 1.0


def _answers(kdc: str, question: bytes) -> bool:
    """Ask one KDC over TCP (RFC 4120 section 7.2.2)."""
    host, _, port = kdc.partition(":")
    address = (host, int(port or _PORT))
    with contextlib.suppress(OSError), socket.create_connection(address, ANSWER_SECONDS) as connection:
        connection.sendall(struct.pack(">I", len(question)) + question)
        reply = b""
        while len(reply) < _SHORTEST_REPLY and (piece := connection.recv(_SHORTEST_REPLY - len(reply))):
            reply += piece
        return len(reply) == _SHORTEST_REPLY and reply[4] in _REPLIES
    return False


def _initial_request(client: Sequence[str], realm: str) -> bytes:
    """An AS-REQ without pre-authentication (RFC 4120 section 5.4.1): makes the KDC look up the bridge, and say no."""
    fields = {
        0: _der(0x03, b"\0\0\0\0\0"),
        1: _name(1, client),
        2: _der(0x1B, realm.encode("ascii")),
        3: _name(2, ("krbtgt", realm)),
        5: _der(0x18, b"19700101000000Z"),
        7: _der(0x02, b"\x01"),
        8: _der(0x30, _der(0x02, b"\x12") + _der(0x02, b"\x11")),
    }
    body = _der(0x30, b"".join(_der(0xA0 | tag, value) for tag, value in fields.items()))
    head = _der(0xA1, _der(0x02, b"\x05")) + _der(0xA2, _der(0x02, b"\x0a"))
    return _der(0x6A, _der(0x30, head + _der(0xA4, body)))


def _name(kind: int, parts: Sequence[str]) -> bytes:
    words = _der(0x30, b"".join(_der(0x1B, part.encode("ascii")) for part in parts))
    return _der(0x30, _der(0xA0, _der(0x02, bytes((kind,)))) + _der(0xA1, words))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    width = (size.bit_length() + 7) // 8
    return bytes((tag, 0x80 | width)) + size.to_bytes(width, "big") + content
