"""What each command of `python -m realm` does."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from realm import state, workspace
from realm.errors import RealmError
from realm.state import State

_DOWN_SECONDS = 30.0


def up(options: argparse.Namespace) -> int:
    """Start a keeper and return when its realm is up. Raises RealmError with what the keeper met."""
    workspace.located(options.name)
    workspace.prune()
    command = [sys.executable, "-m", "realm.keeper", options.name, *options.parts]
    reading, writing = os.pipe()
    keeper = subprocess.Popen(
        command, cwd=workspace.CHECKOUT, stdin=subprocess.DEVNULL, stdout=writing, start_new_session=True
    )
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as report:
            line = report.readline()
    except KeyboardInterrupt:
        keeper.terminate()
        raise
    answer = json.loads(line) if line else {}
    if "seconds" not in answer:
        keeper.wait()
        raise RealmError(
            answer.get("code", "realm.keeper_died"),
            answer.get("detail", "The keeper of the realm died."),
            remedy=answer.get("remedy", "Read its message above."),
            evidence=answer.get("evidence", ""),
        )
    if options.json:
        print(json.dumps({"name": options.name, **answer}))
    else:
        print(f"realm {options.name} is up after {answer['seconds']} s")
        hint = "exec --name {} login -- sinfo" if "slurm" in options.parts else "status --name {}"
        print(f"next: python -m realm {hint.format(options.name)}")
    return 0


def down(options: argparse.Namespace) -> int:
    """End a realm; it is no error if it is not up."""
    directory = workspace.located(options.name)
    was_up = workspace.is_alive(directory)
    if was_up:
        current = state.load(options.name)
        # A test's process that holds a realm itself is not ours to end; its realm is.
        os.kill(current.owner if current.kept else current.init, signal.SIGTERM if current.kept else signal.SIGKILL)
        _wait_for_end(options.name, current)
    shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        print(json.dumps({"name": options.name, "was_up": was_up}))
    else:
        print(f"realm {options.name} is down" if was_up else f"realm {options.name} was not up")
    return 0


def _wait_for_end(name: str, current: State) -> None:
    directory, end = workspace.located(name), time.monotonic() + _DOWN_SECONDS
    while workspace.is_alive(directory) or (current.kept and _runs(current.owner)):
        if time.monotonic() > end:
            remedy = f"Kill its first process, everything goes with it: kill -9 {current.init}"
            raise RealmError(
                "realm.will_not_end", f"The realm {name} did not end in {_DOWN_SECONDS:g} s.", remedy=remedy
            )
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """Whether the process runs; one that has ended and only waits to be collected does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return False


def status(options: argparse.Namespace) -> int:
    """Show a realm. Raises RealmError `realm.not_up`."""
    current = state.load(options.name)
    hosts = [_host(current, name) for name, anchor in current.hosts.items() if anchor]
    services = [{**asdict(service), "alive": service.is_alive} for service in current.services]
    if options.json:
        answer = {
            "name": current.name,
            "owner": current.owner,
            "init": current.init,
            "hosts": hosts,
            "services": services,
        }
        print(json.dumps(answer))
        return 0
    print(f"realm {current.name}, held by process {current.owner}")
    for host in hosts:
        ports = " ".join(f"{entry['protocol']}/{entry['port']}" for entry in host["listeners"])
        print(f"  {host['name']:8} {host['address']:13} pid {host['pid']:<8} {ports}")
        for service in (service for service in services if service["host"] == host["name"]):
            word = f"pid {service['pid']}" if service["alive"] else "stopped"
            print(f"    {service['name']:16} {word}")
    return 0


def _host(current: State, name: str) -> dict[str, Any]:
    host = current.host(name)
    found = [asdict(entry) for protocol in ("tcp", "udp") for entry in host.listeners(protocol)]
    return {"name": name, "fqdn": host.fqdn, "address": host.address, "pid": host.anchor, "listeners": found}


def execute(options: argparse.Namespace) -> int:
    """Become a command on a host: it has our input and output, and its exit code is ours."""
    host = state.load(options.name).host(options.host)
    try:
        command, environment = host.command(options.command, user=options.user, own_session=False)
    except KeyError as error:
        people = "See: python -m realm exec " + options.host + " -- getent passwd"
        raise RealmError("realm.unknown_user", f"{error.args[0]}.", remedy=people) from None
    if term := os.environ.get("TERM"):
        environment["TERM"] = term
    sys.stdout.flush()
    os.execve(command[0], command, environment)  # noqa: S606 - there is no shell, on purpose


def logs(options: argparse.Namespace) -> int:
    """Print logs. Raises RealmError `realm.unknown_service`."""
    current = state.load(options.name)
    host = current.host(options.host)
    here = [service for service in current.services if service.host == options.host]
    chosen = [service for service in here if options.service in (None, service.name)]
    if not chosen:
        known = ", ".join(service.name for service in here) or "none"
        detail = f"There is no service {options.service or 'at all'} on {options.host}."
        raise RealmError("realm.unknown_service", detail, remedy=f"Known there are: {known}.")
    texts = {service.name: host.read(service.log).decode("utf-8", "replace") for service in chosen}
    if options.json:
        print(json.dumps(texts))
        return 0
    for name, text in texts.items():
        if len(texts) > 1:
            print(f"==> {name} <==")
        sys.stdout.write(text)
    return 0
