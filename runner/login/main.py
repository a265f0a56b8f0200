"""Entry of the login agent: ``ci-bridge-login [--config FILE]``, sshd's forced command for the bridge."""

from __future__ import annotations

import os
import signal
import sys
import types

from runner.executor import trusted_toml
from runner.login import orphans
from runner.login.agent import Agent
from runner.login.failures import VerbFailed
from runner.login.outbox import Outbox
from runner.login.tools import DEFAULT_DIRECTORIES, Tools
from runner.login.user import User
from runner.wire import BrokenFrame

DEFAULT_CONFIG = "/etc/ci-bridge/login.toml"

REFUSED_EXIT = 77
"""sysexits(3): EX_NOPERM."""

BROKEN_EXIT = 76
"""sysexits(3): EX_PROTOCOL."""

USAGE = "usage: ci-bridge-login [--config FILE]"


class _Terminated(Exception):
    """SIGTERM or SIGHUP came."""


def main() -> int:
    """Serve the bridge on standard input and output until it goes; returns the exit code."""
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(
            f"{USAGE}\n\nThe bridge's forced command on a login node; sshd runs it, as the user, and nobody else does."
        )
        return 0
    try:
        user, directories = _check()
    except (VerbFailed, trusted_toml.Untrusted) as error:
        print(f"ci-bridge-login: {error}", file=sys.stderr)
        return REFUSED_EXIT
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _on_signal)
    orphans.adopt()
    stream, outbox = _take_over_streams()
    agent = Agent(user, Tools(user, directories), outbox)
    code = 0
    try:
        with os.fdopen(stream, "rb", buffering=1024 * 1024) as requests:
            agent.serve(requests)
    except _Terminated:
        pass
    except (BrokenFrame, VerbFailed) as error:
        print(f"ci-bridge-login: {error}", file=sys.stderr)
        code = BROKEN_EXIT
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    agent.end()
    # Threads may still wait for a file system that does not answer; there is nothing left to tell them.
    os._exit(code)


def _check() -> tuple[User, tuple[str, ...]]:
    """Make sure that this is the forced command, run by a user, and read the configuration; raises."""
    wanted = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    if wanted not in ("", "ci-bridge-login"):
        raise VerbFailed("agent.command", "Only the login agent can be run here.", "Ask for no command.")
    user = User()
    arguments = sys.argv[1:]
    if arguments and (len(arguments) != 2 or arguments[0] != "--config"):
        raise VerbFailed("agent.usage", USAGE, "")
    path = arguments[1] if arguments else DEFAULT_CONFIG
    if not arguments and not os.access(path, os.F_OK):
        return user, DEFAULT_DIRECTORIES
    directories = trusted_toml.read(path, {"tool_directories": list}).get("tool_directories", DEFAULT_DIRECTORIES)
    if not isinstance(directories, list | tuple) or not all(str(entry).startswith("/") for entry in directories):
        raise trusted_toml.Untrusted(f"{path}: tool_directories must be absolute paths")
    return user, tuple(str(entry) for entry in directories)


def _take_over_streams() -> tuple[int, Outbox]:
    """Keep standard input and output for frames alone: a stray print goes to standard error, children get neither."""
    stream, out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return stream, Outbox(out)


def _on_signal(_number: int, _frame: types.FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise _Terminated
