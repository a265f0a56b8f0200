"""Starts and stops a realm's services: waits for a real answer, fails fast with the log, allows one listener a port."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

from realm.errors import RealmError
from realm.host import Host, kill_session, wake
from realm.service import Service

_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.25
_TAIL_BYTES = 3000


@dataclass(frozen=True)
class Running:
    """A started service, and the process on the machine that waits for it."""

    service: Service
    process: subprocess.Popen[bytes]


class Supervisor:
    """The services that run now, by name; safe to use from several threads."""

    def __init__(self) -> None:
        self._running: dict[str, Running] = {}
        self._known: dict[str, Service] = {}
        self._guard = threading.Lock()

    def start(self, host: Host, service: Service, *, booted: bool = False) -> None:
        """Start `service` and return when it is ready; `booted` says that it is its host's boot that starts it.

        Raises RealmError `realm.service_runs`, `realm.listeners` (a port is taken, or has more than one listener),
        `realm.service_died` or `realm.service_not_ready`; the service is then stopped again.
        """
        with self._guard:
            known = self._running.get(service.name)
            if known and known.process.poll() is None:
                raise RealmError("realm.service_runs", f"{service.name} runs already.", remedy="Stop it first.")
            if service.name in self._known:
                _until_let_go(host, service)
            _check_listeners(host, service, wanted=0)
            running = Running(service, _launch(host, service, service.after_boot if booted else ()))
            self._running[service.name] = running
            self._known[service.name] = service
        try:
            _wait(host, running)
            _check_listeners(host, service, wanted=1)
        except BaseException:
            self.stop(service.name)
            raise

    def stop(self, name: str, how: int = signal.SIGTERM) -> None:
        """End a service; SIGKILL follows after its `stop_seconds`. It is no error if it has ended already."""
        with self._guard:
            running = self._running.pop(name, None)
        if running is None:
            return
        kill_session(running.process, how)
        try:
            running.process.wait(running.service.stop_seconds)
        except subprocess.TimeoutExpired:
            kill_session(running.process, signal.SIGKILL)
            running.process.wait()

    def service(self, name: str) -> Service:
        """What was last started under `name`. Raises RealmError `realm.unknown_service`."""
        try:
            return self._known[name]
        except KeyError:
            remedy = f"Known are: {', '.join(sorted(self._known)) or 'none'}."
            raise RealmError("realm.unknown_service", f"There is no service {name}.", remedy=remedy) from None

    def services(self) -> list[Service]:
        """Every service that was ever started, in that order."""
        return list(self._known.values())

    def pid(self, name: str) -> int | None:
        """The machine's pid of a living service, or None."""
        running = self._running.get(name)
        if running is None or running.process.poll() is not None:
            return None
        return running.process.pid

    def forget_host(self, host: str) -> list[str]:
        """Reap what ran on a host that was powered off, and name it in the order in which it was started."""
        with self._guard:
            gone = [name for name, running in self._running.items() if running.service.host == host]
            dead = [self._running.pop(name) for name in gone]
        for running in dead:
            running.process.wait()
        return [name for name in self._known if name in gone]

    def wake(self) -> None:
        """Have all that waits for a service take note of its end, so that the realm can end."""
        with self._guard:
            waiting = list(self._running.values())
        for running in waiting:
            wake(running.process)

    def reap(self) -> None:
        """Collect the waiting processes after the realm has ended."""
        with self._guard:
            ended, self._running = list(self._running.values()), {}
        for running in ended:
            try:
                running.process.wait(5)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()


def tail(host: Host, service: Service) -> str:
    """The end of the service's log, for people."""
    try:
        return host.read(service.log_path)[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _launch(host: Host, service: Service, more: tuple[str, ...]) -> subprocess.Popen[bytes]:
    for directory in service.runtime:
        host.mkdir(directory.path, mode=directory.mode, owner=directory.owner)
    log = host.path(service.log_path)
    log.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        argv = (*service.argv, *more)
        return host.popen(argv, user=service.user, env=service.env, cwd=service.cwd, stdout=fd, stderr=fd)
    finally:
        os.close(fd)


def _wait(host: Host, running: Running) -> None:
    service, pause = running.service, _PAUSE_SECONDS
    end = time.monotonic() + service.within
    while not _is_ready(host, service):
        _check_alive(host, running)
        if time.monotonic() > end:
            detail = f"{service.name} on {host.name} was not ready after {service.within:g} s."
            raise RealmError("realm.service_not_ready", detail, remedy=_look(service), evidence=tail(host, service))
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
    _check_alive(host, running)


def _is_ready(host: Host, service: Service) -> bool:
    if not all(host.listeners(protocol, port) for protocol, port in _ports(service)):
        return False
    try:
        return service.ready is None or service.ready(host)
    except RealmError:
        return False  # The probe's own command hung; the service's time limit decides.


def _ports(service: Service) -> list[tuple[str, int]]:
    return [("tcp", port) for port in service.tcp] + [("udp", port) for port in service.udp]


def _check_alive(host: Host, running: Running) -> None:
    code = running.process.poll()
    if code is not None:
        service = running.service
        detail = f"{service.name} on {host.name} ended with {code} before it was ready."
        raise RealmError("realm.service_died", detail, remedy=_look(service), evidence=tail(host, service))


def _check_listeners(host: Host, service: Service, *, wanted: int) -> None:
    """Refuse when not exactly `wanted` sockets listen on each port: none before a start, one after it."""
    for protocol, port in _ports(service):
        count = len(host.listeners(protocol, port))
        if count != wanted:
            detail = f"{count} sockets instead of {wanted} listen on {protocol} port {port} of {host.name}."
            remedy = f"Stop what else uses the port of {service.name}; krb5kdc shares a port without a word."
            raise RealmError("realm.listeners", detail, remedy=remedy, evidence=tail(host, service))


def _until_let_go(host: Host, service: Service) -> None:
    """Wait a while for the ports of the service's former self: what it forked may end a little later than it does."""
    end = time.monotonic() + service.stop_seconds
    while any(host.listeners(protocol, port) for protocol, port in _ports(service)) and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)


def _look(service: Service) -> str:
    return f"Read the log below, or all of it: python -m realm logs {service.host} {service.name}"
