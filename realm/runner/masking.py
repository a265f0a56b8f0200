"""Replaces secrets in the job log by [MASKED], also when a secret arrives in pieces."""

import re
import threading
from collections.abc import Iterable

MASK = b"[MASKED]"
MAX_OPEN_TOKEN_BYTES = 1024
"""Longer runs of token characters are shown: nobody may make the runner hoard output."""


class Masker:
    """A stream filter: bytes go in, bytes that are safe to show come out.

    Args:
        secrets: texts to hide; empty ones are ignored.
        prefixes: token prefixes whose following token characters are hidden too (`glpat-` and the like).
    """

    def __init__(self, secrets: Iterable[str], prefixes: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._secrets = sorted({text.encode() for text in secrets if text}, key=len, reverse=True)
        patterns = [re.escape(secret) for secret in self._secrets]
        patterns += [re.escape(prefix.encode()) + rb"[\w.=-]{4,}" for prefix in prefixes]
        self._pattern = re.compile(b"|".join(patterns)) if patterns else None
        self._prefixes = [prefix.encode() for prefix in prefixes]
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take more output and return what can be shown already."""
        with self._lock:
            text = self._held + data
            if self._pattern is None:
                return text
            cut = self._safe_length(text)
            shown, position = bytearray(), 0
            for found in self._pattern.finditer(text):
                if found.start() >= cut:
                    break
                shown += text[position : found.start()] + MASK
                position = found.end()
            shown += text[position:cut]
            self._held = text[max(position, cut) :]
            return bytes(shown)

    def flush(self) -> bytes:
        """Return the rest at the end of the log."""
        with self._lock:
            rest, self._held = self._held, b""
            return self._pattern.sub(MASK, rest) if self._pattern else rest

    def _safe_length(self, text: bytes) -> int:
        """How much of the text can not be the beginning of a secret that goes on in the next piece."""
        longest = max((len(secret) for secret in self._secrets), default=1)
        for start in range(max(0, len(text) - longest + 1), len(text)):
            tail = text[start:]
            if any(len(tail) < len(secret) and secret.startswith(tail) for secret in self._secrets):
                return self._before_open_token(text, start)
        return self._before_open_token(text, len(text))

    def _before_open_token(self, text: bytes, cut: int) -> int:
        """Move the cut before a prefixed token that reaches, or may reach, the end of the text."""
        for prefix in self._prefixes:
            open_end = re.search(re.escape(prefix) + rb"[\w.=-]*$", text)
            if open_end and len(text) - open_end.start() <= MAX_OPEN_TOKEN_BYTES:
                cut = min(cut, open_end.start())
            for size in range(1, len(prefix)):
                if text.endswith(prefix[:size]):
                    cut = min(cut, len(text) - size)
        return cut
