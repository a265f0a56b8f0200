"""What bytes may be wrapped in: base64, hex, JSON and URL escapes, gzip and zlib, HTTP chunks; one in another as well.

What is found in a wrapping is told with the names of the wrappings, and the offset of the outermost.
"""

from __future__ import annotations

import base64
import binascii
import re
import urllib.parse
import zlib
from collections.abc import Iterator
from dataclasses import replace

from tests.tap.kerberos import Sight, sights

_DEEPEST = 4
_MOST_BYTES = 16 * 1024 * 1024
"""What one compressed piece may come to."""

_BASE64 = re.compile(rb"[A-Za-z0-9+/_\-\\\r\n]{96,}")
_HEX = re.compile(rb"[0-9A-Fa-f]{192,}")
_ZIPPED = re.compile(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]")
_CHUNKED = re.compile(rb"transfer-encoding: *chunked.*?\r\n\r\n", re.DOTALL | re.IGNORECASE)
# Of text only: a ticket's cipher may hold what looks like an escape, and would be another's with it undone.
_JSON = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.){96,}+"')
_URL = re.compile(rb"(?:%[0-9A-Fa-f]{2}|[!-$&-~]){96,}+")
_ESCAPE = re.compile(rb"\\u00([0-9A-Fa-f]{2})|\\([bfnrt\"\\/])|([\xc2\xc3][\x80-\xbf])")
_SHORT_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def uncoated(data: bytes, depth: int = 0) -> Iterator[Sight]:
    """Everything of Kerberos in these bytes, however it is wrapped."""
    yield from sights(data)
    if depth == _DEEPEST:
        return
    for coat, offset, inside in _coats(data):
        for sight in uncoated(inside, depth + 1):
            yield replace(sight, what=f"{sight.what} in {coat}", offset=offset)


def _coats(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    for found in _BASE64.finditer(data):
        text = re.sub(rb"\\[rn]|[\\\r\n]", b"", found[0]).translate(bytes.maketrans(b"-_", b"+/"))
        for shift in range(4):
            # What is before it may be of the same letters, so it may begin at each of four.
            piece = text[shift:]
            if len(piece) % 4 == 1:
                piece = piece[:-1]
            yield "base64", found.start(), base64.b64decode(piece + b"=" * (-len(piece) % 4))
    for found in _HEX.finditer(data):
        for shift in range(2):
            piece = found[0][shift:]
            yield "hex", found.start(), binascii.unhexlify(piece[: len(piece) & ~1])
    for found in _ZIPPED.finditer(data):
        yield from _unzipped(data, found.start())
    for found in _CHUNKED.finditer(data):
        yield "HTTP chunks", found.start(), _dechunked(data, found.end())
    for found in _JSON.finditer(data):
        if b"\\u00" in found[0]:
            yield "JSON", found.start(), _ESCAPE.sub(_unescaped, found[0])
    for found in _URL.finditer(data):
        if b"%" in found[0]:
            yield "URL", found.start(), urllib.parse.unquote_to_bytes(found[0])


def _unzipped(data: bytes, offset: int) -> Iterator[tuple[str, int, bytes]]:
    try:
        inside = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data[offset:], _MOST_BYTES)
    except zlib.error:
        return
    if inside:
        yield "compression", offset, inside


def _dechunked(data: bytes, at: int) -> bytes:
    body = bytearray()
    while (head := re.compile(rb"([0-9A-Fa-f]{1,8})[^\r\n]*\r\n").match(data, at)) and (size := int(head[1], 16)):
        body += data[head.end() : head.end() + size]
        at = head.end() + size + 2
    return bytes(body)


def _unescaped(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return bytes.fromhex(found[1].decode())
    if found[2]:
        return _SHORT_ESCAPES.get(found[2], found[2])
    return found[3].decode("utf-8").encode("latin-1")
