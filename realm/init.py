"""PID 1 of a realm: makes its switch and hosts, and takes everything away when its caller is gone.

Standard library only. It runs in new PID, mount, network and UTS namespaces, reads one JSON order per line from its
standard input and answers each with one JSON line. End of file there means that the caller closed, exited, crashed or
was killed: init then kills every process of the realm and removes its directory; the kernel takes namespaces and mounts
with it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from realm import hostroot, kernel

SWITCH = "sw0"


def main() -> None:
    """Serve the orders of the caller for the realm whose directory is the only argument."""
    directory = Path(sys.argv[1])
    os.umask(0o022)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        _prepare(directory)
        _serve(directory, wake_read)
    finally:
        _end(directory)


def _prepare(directory: Path) -> None:
    store = directory / "fs"
    store.mkdir()
    # Memory, so that fsync is free and a crash leaves nothing; it is mounted in this namespace only.
    kernel.mount("realm", store, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0711")
    _ip([f"link add {SWITCH} type bridge forward_delay 0", f"link set {SWITCH} up", "link set lo up"])


def _serve(directory: Path, wake_read: int) -> None:
    pending = b""
    while True:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            _reap()
        if 0 in ready:
            chunk = os.read(0, 65536)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                _answer(directory, json.loads(line))


def _answer(directory: Path, order: dict[str, Any]) -> None:
    try:
        reply: dict[str, Any] = {"pid": _boot(directory, order)}
    except (OSError, ValueError, RuntimeError) as error:
        reply = {"error": str(error)}
    os.write(1, json.dumps(reply).encode() + b"\n")


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _boot(directory: Path, order: dict[str, Any]) -> int:
    """Start one host and return the PID of its own PID 1, as seen here; RuntimeError says which step failed."""
    ours, theirs = os.pipe()
    go_read, go_write = os.pipe()
    middle = os.fork()
    if middle == 0:
        _in_child(lambda: _separate(directory, order, theirs, go_read), theirs, (ours, go_write))
    os.close(theirs)
    os.close(go_read)
    try:
        with os.fdopen(ours) as report:
            pid = int(_expect(report.readline()))
            os.waitpid(middle, 0)
            # A new name each time: that of a host that was powered off goes away when the kernel gets round to it.
            veth = f"v{pid}"
            _ip([f"link add {veth} type veth peer name eth0 netns {pid}", f"link set {veth} master {SWITCH} up"])
            os.write(go_write, b"\n")
            _expect(report.readline())
    finally:
        os.close(go_write)
    return pid


def _in_child(work: Any, report: int, unused: tuple[int, ...]) -> None:
    """Run `work` in a forked child, which never returns from here."""
    try:
        for fd in (0, 1, *unused):
            os.close(fd)
        work()
    except BaseException as error:  # noqa: BLE001 - whatever it was, the caller must read it; this child ends here
        os.write(report, f"failed {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(1)


def _separate(directory: Path, order: dict[str, Any], report: int, go: int) -> None:
    signal.set_wakeup_fd(-1)
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET
    kernel.unshare(flags)
    anchor = os.fork()
    if anchor:
        os.write(report, f"ok {anchor}\n".encode())
        os._exit(0)
    os.read(go, 1)
    _anchor(directory, order, report, go)


def _anchor(directory: Path, order: dict[str, Any], report: int, go: int) -> None:
    """Be PID 1 of a host: dress it, report, then reap until killed."""
    os.setsid()
    hostroot.build(directory, order)
    eth0 = [f"address add {order['address']}/{order['bits']} dev eth0", "link set eth0 up", "link set lo up"]
    _ip(eth0)
    os.write(report, b"ok 0\n")
    os.close(report)
    os.close(go)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwait({signal.SIGCHLD})
        _reap()


def _expect(line: str) -> str:
    word, _, rest = line.strip().partition(" ")
    if word != "ok":
        raise RuntimeError(rest or "the host's first process died")
    return rest


def _ip(commands: list[str]) -> None:
    batch = "\n".join(commands) + "\n"
    done = subprocess.run(["/usr/sbin/ip", "-batch", "-"], input=batch, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip: {done.stderr.strip()}")


def _end(directory: Path) -> None:
    # Sent to -1, the signal reaches every process of this PID namespace and of the hosts' below it, but not init.
    signal.set_wakeup_fd(-1)
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    with suppress(OSError):
        kernel.unmount(directory / "fs")
    shutil.rmtree(directory, ignore_errors=True)
