"""Numbers, amounts of memory and times in the forms that sbatch(1) knows. Pure; ValueError says what is expected."""

from __future__ import annotations

import re
from typing import Final

MAX_MEMORY_MIB: Final = 64 * 1024 * 1024
MAX_MINUTES: Final = 366 * 24 * 60

_COUNT: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_MEMORY: Final = re.compile(r"([0-9]{1,12})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_KIB: Final = {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3}
_DAYS: Final = re.compile(r"([0-9]{1,4})-([0-9]{1,4})(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?", re.ASCII)
_CLOCK: Final = re.compile(r"(?:([0-9]{1,6}):)?([0-9]{1,8})(?::([0-9]{1,2}))?", re.ASCII)


def count(text: str, most: int) -> int:
    """Read a number from 1 to ``most``."""
    if not _COUNT.fullmatch(text) or not 1 <= int(text) <= most:
        raise ValueError(f"a number from 1 to {most}")
    return int(text)


def memory_mib(text: str) -> int:
    """Read an amount of memory, in MiB without a suffix, else K, M, G or T; gives MiB, rounded up."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError("an amount of memory such as 512M or 16G")
    mib = -(-int(match[1]) * _KIB[match[2].upper()] // 1024)
    if not 1 <= mib <= MAX_MEMORY_MIB:
        # 0 would mean all memory of the node.
        raise ValueError(f"memory from 1M to {MAX_MEMORY_MIB}M")
    return mib


def time_minutes(text: str) -> int:
    """Read a time limit; gives minutes, rounded up.

    The forms are "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes" and
    "days-hours:minutes:seconds". 0, UNLIMITED and INFINITE, which mean no limit, are not accepted.
    """
    seconds = _seconds(text)
    minutes = -(-seconds // 60)
    if not 1 <= minutes <= MAX_MINUTES:
        raise ValueError(f"a time from 1 to {MAX_MINUTES} minutes")
    return minutes


def _seconds(text: str) -> int:
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if match := _CLOCK.fullmatch(text):
        first, second, third = match.groups()
        if first is not None and third is None:
            return int(first) * 60 + int(second)
        if first is None and third is not None:
            return int(second) * 60 + int(third)
        return (int(first or 0) * 60 + int(second)) * 60 + int(third or 0) if third is not None else int(second) * 60
    raise ValueError("a time such as 30, 30:00, 1:30:00, 2-12 or 2-12:30:00")
