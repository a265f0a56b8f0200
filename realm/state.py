"""What a living realm writes down about itself, so that another process can find its hosts, services and owner."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from realm import workspace
from realm.errors import RealmError
from realm.host import Host
from realm.topology import spec

_FILE = "state.json"


@dataclass(frozen=True)
class ServiceState:
    """A service: where, its pid on the machine (0 when stopped), its ports and the path of its log on the host."""

    name: str
    host: str
    pid: int
    tcp: tuple[int, ...]
    udp: tuple[int, ...]
    log: str

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.pid > 0 and Path(f"/proc/{self.pid}").exists()


@dataclass(frozen=True)
class State:
    """`owner` is the pid of the process that holds the realm, `kept` whether that is `python -m realm up`'s keeper."""

    name: str
    owner: int
    kept: bool
    init: int
    hosts: dict[str, int]
    services: tuple[ServiceState, ...]

    def host(self, name: str) -> Host:
        """The host called `name`. Raises RealmError `realm.unknown_host`."""
        if not self.hosts.get(name):
            known = ", ".join(host for host, anchor in self.hosts.items() if anchor)
            raise RealmError("realm.unknown_host", f"No host {name} is up.", remedy=f"Choose one of: {known}.")
        return Host(spec(name), self.hosts[name])


def save(directory: Path, state: State) -> None:
    """Replace the state of the realm in `directory`."""
    draft = directory / f".{_FILE}.draft"
    draft.write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")
    draft.replace(directory / _FILE)


def load(name: str) -> State:
    """The state of the living realm `name`. Raises RealmError `realm.not_up`."""
    directory = workspace.located(name)
    if not workspace.is_alive(directory) or not (directory / _FILE).is_file():
        up = f"python -m realm up --name {name}"
        raise RealmError("realm.not_up", f"The realm {name} is not up.", remedy=f"Start it with: {up}")
    data = json.loads((directory / _FILE).read_text("utf-8"))
    services = tuple(
        ServiceState(**{**entry, "tcp": tuple(entry["tcp"]), "udp": tuple(entry["udp"])}) for entry in data["services"]
    )
    return State(**{**data, "services": services})


def living() -> list[str]:
    """The names of all realms of this checkout that live."""
    return sorted(lock.parent.name for lock in workspace.base().glob("*/lock") if workspace.is_alive(lock.parent))
