"""Runs one driver call in its own process group, and ends it as GitLab Runner's killer does."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from realm.runner.context import Context
from realm.runner.errors import SystemFailure

Sink = Callable[[bytes], None]
_CHUNK = 32 * 1024


@dataclass(frozen=True)
class Call:
    """One process to run: argv, whole environment, working directory, where output goes, how long killing may take.

    With equal sinks both outputs share one pipe, so that their lines stay in order.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    stdout: Sink
    stderr: Sink
    graceful_kill_seconds: float
    force_kill_seconds: float


def run(call: Call, context: Context) -> int:
    """Run to the end and return the exit code; a negative one is the signal that ended the process.

    When the context ends, the process group gets SIGTERM, after the graceful time SIGKILL, and after the force time
    the process is given up. As in the runner, the end of a call is the end of the process *and* of its output: a
    background child that keeps stdout open holds the stage.

    Raises:
        SystemFailure: it could not be started, or outlived SIGKILL.
    """
    try:
        process = subprocess.Popen(
            list(call.argv),
            env=dict(call.environment),
            cwd=call.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if call.stderr != call.stdout else subprocess.STDOUT,
            process_group=0,
            shell=False,
            close_fds=True,
        )
    except (OSError, ValueError) as error:
        raise SystemFailure(f"failed to start command: {error}") from error
    finished = threading.Event()
    wake = threading.Event()
    threading.Thread(target=_watch, args=(process, call, finished, wake), daemon=True).start()
    while not finished.is_set() and context.cause is None:
        context.wait_for(wake)
    if not finished.is_set():
        _kill_and_wait(process, call, finished)
    return process.returncode


def _watch(process: subprocess.Popen[bytes], call: Call, finished: threading.Event, wake: threading.Event) -> None:
    pipes = [(process.stdout, call.stdout), (process.stderr, call.stderr)]
    readers = [
        threading.Thread(target=_copy, args=(pipe, sink), daemon=True) for pipe, sink in pipes if pipe is not None
    ]
    for reader in readers:
        reader.start()
    process.wait()
    for reader in readers:
        reader.join()
    finished.set()
    wake.set()


def _copy(pipe: IO[bytes], sink: Sink) -> None:
    with pipe:
        while chunk := os.read(pipe.fileno(), _CHUNK):
            sink(chunk)


def _kill_and_wait(process: subprocess.Popen[bytes], call: Call, finished: threading.Event) -> None:
    _signal_group(process.pid, signal.SIGTERM)
    if finished.wait(call.graceful_kill_seconds):
        return
    _signal_group(process.pid, signal.SIGKILL)
    if not finished.wait(call.force_kill_seconds):
        raise SystemFailure("failed to kill process, likely process is dormant")


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
