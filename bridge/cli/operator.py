"""Who runs a command, as the kernel says it: for the records of what administrators do."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOGIN_UID: Final = Path("/proc/self/loginuid")
"""Set once at login, and kept through sudo and su (pam_loginuid(8)); SUDO_USER is anybody's to set."""

_NOBODY: Final = 2**32 - 1


def operator() -> str:
    """Return ``ci-bridge(990)``, and ``by alice(1000)`` where another user logged in and became this one."""
    now, login = os.getuid(), _login_uid()
    return _named(now) if login in (None, now) else f"{_named(now)} by {_named(login)}"


def _login_uid() -> int | None:
    with suppress(OSError, ValueError):
        uid = int(_LOGIN_UID.read_text(encoding="ascii"))
        return None if uid == _NOBODY else uid
    return None


def _named(uid: int | None) -> str:
    try:
        return f"{pwd.getpwuid(uid or 0).pw_name}({uid})"
    except KeyError:
        return f"({uid})"
