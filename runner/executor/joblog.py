"""Writes to the job log: the job's own bytes as they are, and what the bridge has to say as safe, coloured lines."""

from __future__ import annotations

import os
import select
import time

from runner.executor.failures import CANCELLED, CallFailed

_NOTE = "\x1b[36;1m"
_ERROR = "\x1b[31;1m"
_PLAIN = "\x1b[0m"

MAX_NOTE_CHARACTERS = 16 * 1024
MASK = "[MASKED]"
MIN_MASKED_CHARACTERS = 8
"""As in GitLab: shorter values are no secrets, and masking them would maim every line."""

_UNSAFE = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000)], "\N{REPLACEMENT CHARACTER}") | (
    dict.fromkeys(
        [0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF],
        "\N{REPLACEMENT CHARACTER}",
    )
)
"""Control characters, line separators and directional marks: what could move the cursor or reorder a line (T45)."""


class LogClosed(Exception):
    """Nobody reads the job log any more: the runner is gone."""


class JobLog:
    """The job log on one file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._secrets: set[str] = set()
        self._at_line_start = True
        self._writing = False
        self._waiting: list[str] = []

    def mask(self, *secrets: str) -> None:
        """Keep secrets out of every line that the executor itself says, whoever composed it."""
        self._secrets.update(secret for secret in secrets if len(secret) >= MIN_MASKED_CHARACTERS)

    def raw(self, data: bytes) -> None:
        """Write the job's own output, unchanged and unbuffered; raises LogClosed."""
        if not data:
            return
        view = memoryview(data)
        self._writing = True
        try:
            while view:
                view = view[self._write(view) :]
        except OSError as error:
            raise LogClosed from error
        finally:
            self._writing = False
        self._at_line_start = data.endswith(b"\n")
        while self._waiting:
            self._line(self._waiting.pop(0))

    def _write(self, view: memoryview) -> int:
        """Write once; a pipe that somebody else made non-blocking is waited for."""
        try:
            return os.write(self._descriptor, view)
        except BlockingIOError:
            select.select([], [self._descriptor], [])
            return 0

    def say(self, text: str) -> None:
        """Write what the bridge or the executor has to say: each line of ``text`` coloured and made harmless."""
        self._lines(text, _NOTE)

    def fail(self, failure: CallFailed) -> None:
        """Write one line that says why the call ends: code, sentence, remedy, reference."""
        word = "cancelled" if failure.outcome == CANCELLED else failure.outcome
        parts = [f"ci-bridge: {word}: {failure.title}", failure.remedy, f"({failure.code}"]
        parts[-1] += f", reference {failure.reference})" if failure.reference else ")"
        self._lines(" ".join(part.replace("\n", " ") for part in parts if part), _ERROR)

    def start_section(self, name: str, title: str, *, collapsed: bool) -> None:
        """Open a section of GitLab's job log (GitLab docs, "Custom collapsible sections")."""
        option = "[collapsed=true]" if collapsed else ""
        head = f"{_PLAIN}section_start:{int(time.time())}:{_name(name)}{option}\r\x1b[0K"
        self._line(f"{head}{_NOTE}{self._safe(title)}{_PLAIN}")

    def end_section(self, name: str) -> None:
        """Close a section that ``start_section`` opened."""
        self._line(f"{_PLAIN}section_end:{int(time.time())}:{_name(name)}\r\x1b[0K")

    def _lines(self, text: str, colour: str) -> None:
        for line in text[:MAX_NOTE_CHARACTERS].split("\n"):
            self._line(f"{colour}{self._safe(line)}{_PLAIN}")

    def _line(self, line: str) -> None:
        """Write a line of its own; one that a signal handler has to say in the middle of a write waits for its end."""
        if self._writing:
            self._waiting.append(line)
            return
        self.raw(f"{'' if self._at_line_start else chr(10)}{line}\n".encode())

    def _safe(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text.translate(_UNSAFE)


def _name(name: str) -> str:
    """Keep what GitLab allows in a section's name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in name[:64]) or "section"
