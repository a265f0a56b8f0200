"""Reads a known_hosts file (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT), and refuses one that it does not understand whole.

A line that is passed over could be the one that revokes a key, so there is no such line.
"""

from __future__ import annotations

import base64
import binascii
import enum
import fnmatch
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

import paramiko
from paramiko.pkey import UnknownKeyType

_HASHED: Final = re.compile(r"\|1\|([A-Za-z0-9+/]{27}=)\|([A-Za-z0-9+/]{27}=)", re.ASCII)
_PATTERN: Final = re.compile(r"!?[A-Za-z0-9._:*?\[\]-]+", re.ASCII)


class Unreadable(ValueError):
    """The file has a line that is none."""


class Marker(enum.Enum):
    """What a line says of its key."""

    PINNED = ""
    """A host's own key."""
    AUTHORITY = "@cert-authority"
    """The key of an authority that signs certificates of hosts."""
    REVOKED = "@revoked"
    """A key that is never to be accepted again, as a host's own or as an authority's."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file."""

    marker: Marker
    patterns: tuple[str, ...]
    kind: str
    """The key's type, e.g. ``ssh-ed25519``."""
    key: bytes
    """The key's blob (RFC 4253 section 6.6)."""

    def names(self, host: str) -> bool:
        """Whether the line is about ``host``, or ``[host]:port``; a pattern with ``!`` that fits rules the line out."""
        matched = False
        for pattern in self.patterns:
            if _fits(pattern.removeprefix("!"), host):
                if pattern.startswith("!"):
                    return False
                matched = True
        return matched


def parse(text: str) -> tuple[Line, ...]:
    """Give the lines of a file's text in their order; raises Unreadable with the number of the first bad one."""
    lines: list[Line] = []
    for number, raw in enumerate(text.split("\n"), 1):
        words = raw.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            lines.append(_line(words))
        except (ValueError, binascii.Error, paramiko.SSHException, UnknownKeyType) as error:
            raise Unreadable(f"line {number}: {error}") from error
    return tuple(lines)


def _line(words: list[str]) -> Line:
    marker = Marker.PINNED
    if words[0].startswith("@"):
        marker, words = Marker(words[0]), words[1:]
    if len(words) < 3:
        raise ValueError("a line is: [marker] names type key [comment]")
    names, kind, key = words[:3]
    form, patterns = (_HASHED, (names,)) if names.startswith("|") else (_PATTERN, tuple(names.split(",")))
    if not all(form.fullmatch(pattern) for pattern in patterns):
        raise ValueError(f"not a list of names: {names!r:.100}")
    blob = base64.b64decode(key, validate=True)
    # Reading the key as one refuses what could never match: a cut one, a certificate, a type that nobody knows.
    if paramiko.PKey.from_type_string(kind, blob).asbytes() != blob:
        raise ValueError(f"not a key of type {kind!r:.60}")
    return Line(marker, patterns, kind, blob)


def _fits(pattern: str, host: str) -> bool:
    if hashed := _HASHED.fullmatch(pattern):
        salt, known = (base64.b64decode(part) for part in hashed.groups())
        return hmac.compare_digest(hmac.digest(salt, host.lower().encode(), hashlib.sha1), known)
    # Brackets are part of the name here (``[host]:port``) and no set of characters.
    literal = "".join(f"[{character}]" if character == "[" else character for character in pattern.lower())
    return fnmatch.fnmatchcase(host.lower(), literal)
