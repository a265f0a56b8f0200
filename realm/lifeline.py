"""The caller's side of a realm's PID 1: starts it, asks it for hosts, and ends everything by letting go.

The caller holds the only write end of a pipe to PID 1, so whatever ends the caller, SIGKILL too, ends the realm.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from realm.errors import RealmError
from realm.topology import NETWORK_BITS, HostSpec
from realm.workspace import CHECKOUT

_ANSWER_SECONDS = 30.0
_END_SECONDS = 20.0
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from realm.init import main; main()"


class Lifeline:
    """A realm's PID 1, as long as this object is open."""

    def __init__(self, directory: Path, lock: int) -> None:
        """Start PID 1 for `directory`; it inherits `lock`. How that went shows on the first order."""
        self._directory = directory
        self._pid = 0
        python = ["/usr/bin/python3", "-E", "-s", "-S", "-B", "-c", _START, str(CHECKOUT), str(directory)]
        flags = ["--pid", "--mount", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        (orders, ours), (answers, theirs) = os.pipe(), os.pipe()
        self._orders, self._answers = os.fdopen(ours, "wb", buffering=0), os.fdopen(answers, "rb")
        with (directory / "init.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["/usr/bin/unshare", *flags, "--", *python],
                stdin=orders,
                stdout=theirs,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
                cwd="/",
            )
        os.close(orders)
        os.close(theirs)

    def boot(self, spec: HostSpec, *, keep_tmp: bool = False) -> int:
        """Start one host and return the machine's pid of its PID 1. Raises RealmError `realm.init_failed`.

        With `keep_tmp` its /tmp is that of its last boot, as on a disk; otherwise it is empty.
        """
        order = {
            "name": spec.name,
            "fqdn": spec.fqdn,
            "address": spec.address,
            "bits": NETWORK_BITS,
            "shares_home": spec.shares_home,
            "keep_tmp": keep_tmp,
            "keep": _kept(),
        }
        return self._outer_pid(int(self._ask(order)["pid"]))

    def close(self) -> None:
        """Let go, and wait until no process, mount or file of the realm is left. Raises `realm.will_not_end`."""
        self._orders.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            # --kill-child makes the kernel kill PID 1, and with it all the rest.
            self._process.kill()
            self._process.wait()
        finally:
            self._answers.close()

    @property
    def pid(self) -> int:
        """The machine's pid of the realm's PID 1. Raises RealmError `realm.init_failed` when it is dead."""
        if not self.is_alive:
            raise self._failed("it died")
        if not self._pid:
            self._pid = self._init_pid()
        return self._pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            raise self._failed("it died") from None
        ready, _, _ = select.select([self._answers], [], [], _ANSWER_SECONDS)
        line = self._answers.readline() if ready else b""
        if not line:
            raise self._failed(f"it gave no answer in {_ANSWER_SECONDS:g} s" if not ready else "it died")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise self._failed(str(reply["error"]))
        return reply

    def _failed(self, why: str) -> RealmError:
        try:
            evidence = (self._directory / "init.log").read_text("utf-8", "replace")[-2000:]
        except FileNotFoundError:
            evidence = ""
        remedy = "A realm needs root, namespaces, overlayfs and tmpfs: in a container, run it with --privileged."
        return RealmError(
            "realm.init_failed", f"The realm's first process failed: {why}.", remedy=remedy, evidence=evidence
        )

    def _init_pid(self) -> int:
        for pid, parent, _ in _processes():
            if parent == self._process.pid:
                return pid
        raise self._failed("it died")

    def _outer_pid(self, inner: int) -> int:
        init = self.pid
        for pid, parent, names in _processes():
            # Its names, from the outermost namespace that we can see inwards: ours, the realm's, the host's.
            if parent == init and names[-2:] == [inner, 1]:
                return pid
        raise self._failed("the host's first process died")


def _processes() -> Iterable[tuple[int, int, list[int]]]:
    """Each process's pid, parent's pid and its pids from our namespace inwards (proc(5), NSpid)."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "status").read_text("utf-8", "replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        yield int(entry.name), int(fields["PPid"]), [int(name) for name in fields["NSpid"].split()]


def _kept() -> list[str]:
    """What must stay visible on every host: the checkout, and the Python that runs us unless /usr has it."""
    paths = {str(path) for path in (CHECKOUT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())}
    return sorted(path for path in paths if path != "/usr" and not path.startswith("/usr/") and path != "/")
