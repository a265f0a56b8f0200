"""A whole realm: `with Realm() as realm:` has every host and service up, and nothing of it is left afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from realm import bridgehost, deployed, etc, forge, kdc, login, runnerhost, slurm, state, tls, workspace
from realm.errors import RealmError
from realm.host import Host
from realm.lifeline import Lifeline
from realm.plan import Step, carry_out
from realm.service import Service
from realm.supervisor import Supervisor
from realm.topology import HOSTS, NEEDED_BY, PARTS

_BINARIES = {
    "": (
        "/usr/bin/unshare",
        "/usr/bin/nsenter",
        "/usr/bin/setpriv",
        "/usr/bin/setsid",
        "/usr/sbin/ip",
        "/usr/bin/python3",
    ),
    "kdc": kdc.BINARIES,
    "login": login.BINARIES,
    "slurm": slurm.BINARIES,
    "gitlab": ("/usr/bin/git",),
    "bridge": ("/usr/bin/curl",),
    "runner": (),
}
_STEPS: dict[str, tuple[Step, ...]] = {
    "kdc": kdc.STEPS,
    "login": login.STEPS,
    "slurm": slurm.STEPS,
    "gitlab": forge.STEPS,
    "bridge": bridgehost.STEPS,
    "runner": runnerhost.STEPS,
}


class Realm:
    """A cluster in namespaces, tied to the life of this process.

    `name` defaults to a fresh one, `directory` to .realm/NAME in the checkout. `parts` switches services on ("kdc",
    "login", "slurm"); `hosts` limits which hosts exist (default: all). `kept` says that this process does nothing else.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        directory: Path | None = None,
        parts: Iterable[str] = PARTS,
        hosts: Iterable[str] | None = None,
        kept: bool = False,
    ) -> None:
        self.name = name or workspace.fresh_name()
        self.directory = directory or workspace.located(self.name)
        self.parts = tuple(parts)
        self.hosts: dict[str, Host] = {}
        self.times: dict[str, tuple[float, float]] = {}
        self._kept = kept
        self._saving = threading.Lock()
        self._lost: dict[str, list[str]] = {}
        self._wanted = _wanted_hosts(self.parts, hosts)
        self._supervisor = Supervisor()
        self._workspace: workspace.Workspace | None = None
        self._lifeline: Lifeline | None = None

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Make the hosts and start every service. Raises RealmError; then nothing is left but the logs it names."""
        _check_machine(self.parts)
        self._workspace = workspace.Workspace(self.directory)
        try:
            self._lifeline = Lifeline(self.directory, self._workspace.lock)
            for spec in HOSTS:
                if spec.name in self._wanted:
                    self.hosts[spec.name] = Host(spec, self._lifeline.boot(spec))
            steps = [Step("dress", _dress), Step("tls", tls.issue, ("dress",))]
            for part in self.parts:
                steps += _STEPS[part]
            self.times = carry_out(self, steps)
            self._save()
        except BaseException as error:
            self._fail(error)
            raise

    def down(self) -> None:
        """End every process of the realm and remove its directory; done twice it does nothing."""
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            self._supervisor.wake()
            lifeline.close()
        self._supervisor.reap()
        claimed, self._workspace = self._workspace, None
        if claimed is not None:
            claimed.release()
        self.hosts.clear()

    def host(self, name: str) -> Host:
        """The host called `name`. Raises RealmError `realm.unknown_host`."""
        try:
            return self.hosts[name]
        except KeyError:
            remedy = f"Choose one of: {', '.join(self.hosts) or 'none, the realm is down'}."
            raise RealmError("realm.unknown_host", f"There is no host {name}.", remedy=remedy) from None

    def start_service(self, service: Service) -> None:
        """Start `service` on its host and return when it is ready and alone on its ports. Raises RealmError."""
        self._supervisor.start(self.host(service.host), service)
        if self.times:
            self._save()

    def stop_service(self, name: str, how: int = signal.SIGTERM) -> None:
        """End a service with the signal `how`, with SIGKILL if that does not help."""
        self._supervisor.stop(name, how)
        self._save()

    def kill_service(self, name: str) -> None:
        """Kill a service with SIGKILL; what it started in sessions of its own lives on, as slurmd's step daemons do."""
        self.stop_service(name, signal.SIGKILL)

    def restart_service(self, name: str) -> None:
        """Stop a service if it runs, and start it as before."""
        service = self._supervisor.service(name)
        self.stop_service(name)
        self.start_service(service)

    def services(self) -> list[tuple[Service, int | None]]:
        """Every service started so far, with its pid on the machine, or None when it does not run."""
        return [(service, self._supervisor.pid(service.name)) for service in self._supervisor.services()]

    def log(self, name: str) -> str:
        """The whole log of a service. Raises RealmError `realm.unknown_service`."""
        service = self._supervisor.service(name)
        return self.host(service.host).read(service.log_path).decode("utf-8", "replace")

    def power_off(self, name: str) -> None:
        """Kill every process of a host at once, as a power cut does; /run is lost, and so is /tmp unless kept."""
        os.kill(self.host(name).anchor, signal.SIGKILL)
        self._lost[name] = self._supervisor.forget_host(name)
        self.host(name).anchor = 0
        self._save()

    def power_on(self, name: str, *, keep_tmp: bool = False) -> None:
        """Boot a host that was powered off, with a new boot id, and start the services again that ran on it.

        With `keep_tmp` its /tmp is as it was, as on nodes that have it on a disk.
        """
        host = self.host(name)
        host.anchor = self._living().boot(host.spec, keep_tmp=keep_tmp)
        for service in self._lost.pop(name, []):
            self._supervisor.start(host, self._supervisor.service(service), booted=True)
        self._save()

    def reboot(self, name: str, *, keep_tmp: bool = False) -> None:
        """Take the power from a host and give it back: `power_off` and `power_on`."""
        self.power_off(name)
        self.power_on(name, keep_tmp=keep_tmp)

    def save_logs(self, target: Path) -> Path:
        """Copy the logs of all services to `target`/HOST-SERVICE.log and return `target`."""
        target.mkdir(parents=True, exist_ok=True)
        for service in self._supervisor.services():
            try:
                text = self.host(service.host).read(service.log_path)
            except OSError:
                continue
            (target / f"{service.host}-{service.name}.log").write_bytes(text)
        return target

    @property
    def is_up(self) -> bool:
        """Whether the realm's PID 1 lives."""
        return self._lifeline is not None and self._lifeline.is_alive

    @property
    def kdc(self) -> kdc.Kdc:
        """The verbs of the KDC: addprinc, modprinc, ktadd, set_delegation_targets."""
        return kdc.Kdc(self.host("kdc"))

    @property
    def krb5_conf(self) -> Path:
        """A client's krb5.conf for processes outside, to be used inside `host(...).network()`."""
        return self.host("kdc").path("/etc/realm/krb5.conf")

    def user_keytab(self, name: str) -> str:
        """Path on host `desk` of the keytab with which `name` gets a ticket; only `name` may read it."""
        return kdc.user_keytab(name)

    def known_hosts(self) -> str:
        """known_hosts(5) lines of the login node, as the bridge and users need them."""
        return login.known_hosts(self.host("login"))

    def _living(self) -> Lifeline:
        if self._lifeline is None:
            raise RealmError("realm.not_up", f"The realm {self.name} is not up.", remedy="Call up() first.")
        return self._lifeline

    def _save(self) -> None:
        services = tuple(
            state.ServiceState(service.name, service.host, pid or 0, service.tcp, service.udp, service.log_path)
            for service, pid in self.services()
        )
        anchors = {name: host.anchor for name, host in self.hosts.items()}
        now = state.State(self.name, os.getpid(), self._kept, self._living().pid, anchors, services)
        with self._saving:
            state.save(self.directory, now)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, RealmError) and self._supervisor.services():
            kept = self.directory.parent / "failed" / self.name
            shutil.rmtree(kept, ignore_errors=True)
            error.remedy += f" All logs are kept in {self.save_logs(kept)}."
        self.down()


def _dress(realm: Realm) -> None:
    for host in realm.hosts.values():
        etc.dress(host)
        if host.spec.runs_driver:
            deployed.install(host)


def _wanted_hosts(parts: tuple[str, ...], hosts: Iterable[str] | None) -> set[str]:
    known = {host.name for host in HOSTS}
    for part in parts:
        if part not in PARTS:
            raise RealmError(
                "realm.unknown_part", f"There is no part {part}.", remedy=f"Choose from: {', '.join(PARTS)}."
            )
    wanted = known if hosts is None else set(hosts)
    for name in wanted - known:
        raise RealmError(
            "realm.unknown_host", f"There is no host {name}.", remedy=f"Choose from: {', '.join(sorted(known))}."
        )
    return wanted.union(*(NEEDED_BY[part] for part in parts))


def _check_machine(parts: tuple[str, ...]) -> None:
    if os.geteuid() != 0:
        raise RealmError(
            "realm.not_root", "A realm needs root for its namespaces.", remedy="Run it as root, in a VM or container."
        )
    missing = [path for part in ("", *parts) for path in _BINARIES[part] if not Path(path).exists()]
    if missing:
        remedy = "Install the Debian packages that scripts/packages.txt lists."
        raise RealmError("realm.missing_program", f"Not installed: {', '.join(missing)}.", remedy=remedy)
