"""The verb ``run``: a script of a login stage as a process group of its own, and its end without leftovers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from typing import Any

from runner.login.call import Call
from runner.login.failures import VerbFailed
from runner.login.request import Request
from runner.wire import OUTPUT_CHUNK_BYTES

POLL_MILLISECONDS = 100
DRAIN_SECONDS = 5.0
"""How long output is still read after the script's end from a process that took the pipe elsewhere."""

KILL_SECONDS = 5.0
"""How long the kernel may take to end what got SIGKILL."""


def run(request: Request, call: Call) -> dict[str, Any]:
    """Run the data as a bash script; sends its output; returns exit_code, or the number of the signal that ended it."""
    environment = call.user.environment() | request.environment("env")
    directory = request.optional_text("cwd") or call.user.home
    group = call.registry.start(call.number, lambda: ScriptGroup(request.data, directory, environment))
    try:
        group.copy_output(call)
        status = group.wait()
    finally:
        group.kill()
    return {"exit_code": status, "signal": None} if status >= 0 else {"exit_code": None, "signal": -status}


class ScriptGroup:
    """A running script with all processes of its group.

    The first process is reaped last: as long as it is a zombie its number stays taken, so that a signal to the group
    can't reach a stranger.
    """

    def __init__(self, script: bytes, directory: str, environment: dict[str, str]) -> None:
        """Start bash on a sealed file in memory: the script, which may hold a job token, is never on a disk."""
        descriptor = _in_memory(script)
        try:
            self._process = subprocess.Popen(
                ["/bin/bash", f"/proc/self/fd/{descriptor}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                env=environment,
                cwd=directory,
                pass_fds=(descriptor,),
                start_new_session=True,
                restore_signals=True,
            )
        except OSError as error:
            raise VerbFailed(
                "agent.not_started", f"The script can't be started: {error.strerror}.", "See the login node."
            ) from error
        finally:
            os.close(descriptor)
        self._lock = threading.Lock()
        self._reaped = False
        self._ended = threading.Event()

    def copy_output(self, call: Call) -> None:
        """Send output as it comes, until its end, or until the script has ended and nothing more comes."""
        if self._process.stdout is None:
            return
        with self._process.stdout as pipe:
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            give_up = None
            while give_up is None or time.monotonic() < give_up:
                ready = poll.poll(POLL_MILLISECONDS)
                if ready:
                    data = os.read(pipe.fileno(), OUTPUT_CHUNK_BYTES)
                    if not data:
                        return
                    call.output(data)
                if give_up is None and self._has_ended(wait=False):
                    self._signal(signal.SIGKILL)
                    give_up = time.monotonic() + DRAIN_SECONDS
                elif give_up is not None and not ready:
                    return

    def wait(self) -> int:
        """Wait for the script's end; returns its exit code, or the negative number of a signal."""
        self._has_ended(wait=True)
        self.kill()
        return self._process.returncode

    def stop(self, grace_seconds: float, *, drain: bool) -> None:
        """End the whole group: SIGTERM, and SIGKILL after the grace; returns when it is gone."""
        self._signal(signal.SIGTERM)
        if not self._ended.wait(grace_seconds):
            self._signal(signal.SIGKILL)
            self._ended.wait(KILL_SECONDS)

    def kill(self) -> None:
        """End what is left of the group and reap the script."""
        if self._ended.is_set():
            return
        self._signal(signal.SIGKILL)
        with self._lock:
            self._process.wait()
            self._reaped = True
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline and self._has_members():
            time.sleep(0.005)
        self._ended.set()

    def _has_ended(self, *, wait: bool) -> bool:
        options = os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG)
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        return True

    def _has_members(self) -> bool:
        """Tell whether the group still has processes; those that fell to the agent (see ``orphans``) are reaped."""
        try:
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, 0)
                return True
            return False
        return True

    def _signal(self, number: int) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._reaped:
                os.killpg(self._process.pid, number)


def _in_memory(script: bytes) -> int:
    """Make a file in memory that nobody can change any more; returns its descriptor."""
    descriptor = os.memfd_create("ci-bridge-script", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(script)
    while view:
        view = view[os.write(descriptor, view) :]
    fcntl.fcntl(
        descriptor,
        fcntl.F_ADD_SEALS,
        fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
    )
    return descriptor
