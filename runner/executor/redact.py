"""Takes secrets out of scripts before they leave the runner's host."""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Iterable, Iterator

REMOVED = b"[removed-by-ci-bridge]"


def remove(script: bytes, secrets: Iterable[str]) -> bytes:
    """Replace each secret in ``script``, as it is, base64-encoded or URL-encoded, by a word that says so."""
    for secret in secrets:
        for form in sorted(set(_forms(secret.encode())), key=len, reverse=True):
            script = script.replace(form, REMOVED)
    return script


def _forms(secret: bytes) -> Iterator[bytes]:
    """Yield the byte strings that give a secret away.

    Base64 works on groups of three bytes, so what a secret looks like in an encoded text (``user:secret`` in basic
    authentication) depends on how many bytes stand before it: one form for each of the three alignments, less the
    characters that also hold bits of its neighbours.
    """
    if not secret:
        return
    yield secret
    quoted = urllib.parse.quote_from_bytes(secret, safe="")
    yield quoted.encode()
    yield urllib.parse.quote_from_bytes(secret, safe="/:@").encode()
    yield _lower_escapes(quoted).encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            padded = encode(bytes(before) + secret)
            start = -(-before * 8 // 6)
            end = (before + len(secret)) * 8 // 6
            if end - start >= 8:
                yield padded[start:end]


def _lower_escapes(quoted: str) -> str:
    """Give the form with ``%2f`` where the standard one has ``%2F``."""
    first, *rest = quoted.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])
