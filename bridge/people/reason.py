"""Why somebody does something, in their words: for the record, and for whoever reads it later."""

from __future__ import annotations

from typing import Final

from bridge.errors import RequestRefused

MAX_REASON: Final = 500


def checked_reason(reason: str, code: str, sentence: str) -> str:
    """The reason without the blanks around it: one line of 1 to 500 printable characters.

    Raises RequestRefused ``code`` with ``sentence``, which says what needs a reason.
    """
    stripped = reason.strip()
    if not stripped or len(stripped) > MAX_REASON or not stripped.isprintable():
        raise RequestRefused(code, sentence, f"Say why, on one line of 1 to {MAX_REASON} characters.")
    return stripped
