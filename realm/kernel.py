"""The few Linux calls that Python 3.11 lacks: namespaces, mounts and pivot_root.

The numbers are those of the kernel's headers linux/sched.h and linux/mount.h; see unshare(2), setns(2), mount(2),
pivot_root(2).
"""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

# pivot_root has no wrapper in glibc.
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "s390x": 217, "riscv64": 41}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give the caller new namespaces; with CLONE_NEWPID its next child is PID 1 there. Raises OSError."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd: int, kind: int) -> None:
    """Move the calling *thread* into the namespace that `fd` stands for. Raises OSError."""
    _checked(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def mount(source: str | Path, target: str | Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount `source` at `target`. Raises OSError with both in its text."""
    data = options.encode() or None
    done = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, data)
    _checked(done, f"mount {kind or 'bind'} {source} at {target}")


def bind(source: str | Path, target: str | Path, *, read_only: bool = False, recursive: bool = False) -> None:
    """Make the directory or file `source` appear at `target` as well; both exist. Raises OSError."""
    mount(source, target, flags=MS_BIND | (MS_REC if recursive else 0))
    if read_only:
        mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def unmount(target: str | Path) -> None:
    """Take `target` out of the tree at once; the kernel frees it when nobody uses it. Raises OSError."""
    _checked(_libc.umount2(os.fsencode(target), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def enter_root(new_root: Path) -> None:
    """Make `new_root`, a mount point, the root of this mount namespace and let go of the old one. Raises OSError."""
    os.chdir(new_root)
    number = _PIVOT_ROOT[platform.machine()]
    # With "." twice the old root ends up stacked over the new one, so no directory for it is needed (pivot_root(2)).
    _checked(_libc.syscall(ctypes.c_long(number), ctypes.c_char_p(b"."), ctypes.c_char_p(b".")), "pivot_root")
    unmount(".")
    os.chdir("/")
