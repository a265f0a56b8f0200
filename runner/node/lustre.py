"""Has Lustre forget a user's security contexts on this node: they live until the ticket's end, file or no file.

``lfs flushctx`` acts on the caller's own uid (lfs-flushctx(1)), so it is run as the user. Up to Lustre 2.15 it reaches
only contexts of the session that made them; there the ticket's end is the bound.
"""

from __future__ import annotations

import pwd
from pathlib import Path

from runner.node import tools

FLUSH_SECONDS = 3.0
MAX_MOUNTS = 8
MOUNTS = "/proc/self/mounts"


def flush(uid: int, tool_directories: list[str], mounts: str = MOUNTS) -> int:
    """Flush the user's contexts on every Lustre mount; returns on how many it was done. Nothing fails here."""
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        return 0
    done = 0
    for mount in _mounted(mounts)[:MAX_MOUNTS]:
        try:
            code, _, _ = tools.run(tool_directories, "lfs", "flushctx", mount, seconds=FLUSH_SECONDS, uid=uid, gid=gid)
        except tools.NoTool:
            return done
        done += code == 0
    return done


def _mounted(mounts: str) -> list[str]:
    """Give where Lustre is mounted; a name with blanks is written in octal (proc(5), fstab(5))."""
    try:
        lines = Path(mounts).read_text(errors="replace").splitlines()
    except OSError:
        return []
    fields = [line.split(" ") for line in lines]
    return [_plain(one[1]) for one in fields if len(one) > 2 and one[2] == "lustre" and one[1].startswith("/")]


def _plain(text: str) -> str:
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
