"""Keeps the memory of this process to itself: no core file, no look from outside, no swap, no new rights (T27).

What can't be done without, the process does not start without. Locking memory needs a right that not every site gives;
where it is missing the process runs, says so in its log, and ``weaknesses`` shows it from outside.

Sources: prctl(2), ptrace(2), core(5), mlockall(2), proc(5).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
from pathlib import Path
from typing import Final

from bridge.errors import Defect, RequestRefused

PR_GET_DUMPABLE: Final = 3
PR_SET_DUMPABLE: Final = 4
PR_SET_NO_NEW_PRIVS: Final = 38
MCL_CURRENT: Final = 1
MCL_FUTURE: Final = 2
MCL_ONFAULT: Final = 4
"""linux/prctl.h and asm-generic/mman.h; powerpc and sparc number MCL_* otherwise, and refuse these."""

_CAP_IPC_LOCK: Final = 14


def close_off() -> None:
    """Make this process one that nobody dumps, traces or reads but root; raises Defect, RequestRefused.

    Until it ends or executes another program. Call it before the first thread starts, since no_new_privs is each
    thread's own, and before a key or ticket is read: whoever opened /proc/PID/mem earlier keeps it, and so does a
    tracer, which is refused (``process.traced``).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(PR_SET_DUMPABLE, 0)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    threads = [_fields(thread / "status") for thread in Path("/proc/self/task").iterdir()]
    closed = _prctl(PR_GET_DUMPABLE, 0) == 0 and all(thread.get("NoNewPrivs") == "1" for thread in threads)
    if not closed or resource.getrlimit(resource.RLIMIT_CORE) != (0, 0):
        raise Defect("process.open", "The process could not be closed off from others.", "Report it to the operators.")
    tracer = _fields(Path("/proc/self/status")).get("TracerPid", "unknown")
    if tracer != "0":
        raise RequestRefused(
            "process.traced",
            f"The process is being traced, by process {tracer}.",
            "Find out who does that; secrets are not read under a debugger.",
        )


def lock_memory() -> str | None:
    """Keep every page of this process, now and later, out of swap; return None, or why that was not done.

    Pages are locked as they are used (MCL_ONFAULT): the address space of a thread's stack and of a heap is many times
    what is used of it. Without CAP_IPC_LOCK or an unlimited RLIMIT_MEMLOCK nothing is locked: memory would run out
    where the limit is, at any moment of the process's life.
    """
    if not _may_lock_all():
        return "RLIMIT_MEMLOCK is not unlimited"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0:
        return f"mlockall: {os.strerror(ctypes.get_errno())}"
    return None


def weaknesses(pid: int) -> tuple[str, ...]:
    """Look at a process from outside and tell what of the above is not so, one clause each; none is good.

    Any user may ask that sees the process in /proc, and nothing is read from the process itself. Raises
    ProcessLookupError. Where swap is encrypted or off, unlocked memory is no weakness of the machine's.
    """
    try:
        process = Path(f"/proc/{pid}")
        status, owner = _fields(process / "status"), (process / "status").stat().st_uid
        limits = (process / "limits").read_text(encoding="ascii")
    except OSError as error:
        raise ProcessLookupError(errno.ESRCH, f"process {pid} can't be looked at") from error
    uid = int(status["Uid"].split()[1])
    core = next(line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core file size"))
    found = {
        "can be read and traced by its own user": owner == uid != 0,
        "may write a core file": core != ["0", "0"],
        "may gain rights by executing a program": status.get("NoNewPrivs") != "1",
        "has memory that is not locked, and may be swapped": _kibibytes(status, "VmLck") == 0,
        "has memory in swap": _kibibytes(status, "VmSwap") != 0,
        "is being traced": status.get("TracerPid") != "0",
    }
    return tuple(weakness for weakness, present in found.items() if present)


def _may_lock_all() -> bool:
    if int(_fields(Path("/proc/self/status"))["CapEff"], 16) >> _CAP_IPC_LOCK & 1:
        return True
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY


def _prctl(option: int, value: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    unsigned = ctypes.c_ulong
    result = int(libc.prctl(ctypes.c_int(option), unsigned(value), unsigned(0), unsigned(0), unsigned(0)))
    if result < 0:
        raise Defect(
            "process.open",
            "The process could not be closed off from others.",
            "Report it to the operators.",
            option=option,
            error=os.strerror(ctypes.get_errno()),
        )
    return result


def _fields(status: Path) -> dict[str, str]:
    lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _kibibytes(status: dict[str, str], name: str) -> int:
    return int(status.get(name, "0 kB").split()[0])
