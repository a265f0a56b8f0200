"""Reference ids: what a person reads out to an operator, and what the operator finds in the audit log."""

from __future__ import annotations

import secrets
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: no I, L, O or U to misread."""


def new_reference() -> str:
    """Return a fresh reference such as ``7F3K-9QXM-2DTB`` (60 random bits)."""
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(12))
    return f"{letters[:4]}-{letters[4:8]}-{letters[8:]}"
