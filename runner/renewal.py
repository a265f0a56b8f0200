"""When tickets that are in use are to be replaced: one rule for compute nodes and login nodes."""

from __future__ import annotations

RENEW_SHARE = 3
"""Tickets are renewed once no more than this part of their life, a third, is left."""


def renew_at(got: float, end: float) -> float:
    """Return from when on tickets are to be renewed that were got at ``got`` and end at ``end``; seconds since 1970."""
    return end - (end - got) / RENEW_SHARE
