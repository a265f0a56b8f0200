"""The people and service users of a realm, and the passwd, group and shadow files that name them."""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class User:
    """A line of passwd; `groups` are supplementary, `locked` locks the Kerberos principal, not the account."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    groups: tuple[str, ...] = ()
    locked: bool = False


def _person(name: str, uid: int, *, groups: tuple[str, ...] = (), locked: bool = False) -> User:
    return User(name, uid, uid, f"/home/{name}", "/bin/bash", groups, locked)


PEOPLE: tuple[User, ...] = (
    _person("alice", 20001, groups=("chem",)),
    _person("bob", 20002, groups=("bio",)),
    _person("mallory", 20003),
    _person("carol", 20004, locked=True),
)
GROUPS: dict[str, int] = {"chem": 21001, "bio": 21002}

_NOLOGIN = "/usr/sbin/nologin"
_SERVICE_USERS: dict[str, tuple[User, ...]] = {
    "bridge": (
        User("ci-bridge", 930, 930, "/var/lib/ci-bridge", _NOLOGIN),
        User("ci-bridge-broker", 931, 931, "/var/lib/ci-bridge-broker", _NOLOGIN, ("ci-bridge",)),
        User("ci-bridge-signer", 932, 932, "/var/lib/ci-bridge-signer", _NOLOGIN, ("ci-bridge",)),
    ),
    "runner": (User("gitlab-runner", 940, 940, "/var/lib/gitlab-runner", "/bin/bash"),),
}


def service_users(host: str) -> tuple[User, ...]:
    """The users that only this host has."""
    return _SERVICE_USERS.get(host, ())


def users(host: str, *, has_people: bool) -> tuple[User, ...]:
    """Everybody whom a host adds to the machine's system users."""
    return service_users(host) + (PEOPLE if has_people else ())


def person(name: str) -> User:
    """The person called `name`; KeyError if there is none."""
    for user in PEOPLE:
        if user.name == name:
            return user
    raise KeyError(name)


def passwd(added: tuple[User, ...]) -> str:
    """passwd(5): the machine's system users (so that daemons keep their ids) and `added`, nobody else."""
    lines = [f"{u.pw_name}:x:{u.pw_uid}:{u.pw_gid}:{u.pw_gecos}:{u.pw_dir}:{u.pw_shell}" for u in _system_users(added)]
    lines += [f"{u.name}:x:{u.uid}:{u.gid}:{u.name}:{u.home}:{u.shell}" for u in added]
    return "\n".join(lines) + "\n"


def shadow(added: tuple[User, ...]) -> str:
    """shadow(5): no one has a password; "*" rather than "!", which sshd takes for a locked account."""
    names = [u.pw_name for u in _system_users(added)] + [u.name for u in added]
    return "".join(f"{name}:*:20000:0:99999:7:::\n" for name in names)


def group(added: tuple[User, ...]) -> str:
    """group(5): the machine's system groups, a group per added user, and the realm's groups with their members."""
    ours = {u.name for u in added} | set(GROUPS)
    machine = [line.split(":") for line in Path("/etc/group").read_text("utf-8").splitlines()]
    lines = [f"{name}:x:{gid}:" for name, _, gid, _ in machine if _is_system(int(gid)) and name not in ours]
    lines += [f"{name}:x:{gid}:{_members(name, added)}" for name, gid in GROUPS.items()]
    lines += [f"{u.name}:x:{u.gid}:{_members(u.name, added)}" for u in added]
    return "\n".join(lines) + "\n"


def _members(name: str, added: tuple[User, ...]) -> str:
    return ",".join(user.name for user in added if name in user.groups)


def _is_system(number: int) -> bool:
    # Debian policy 9.2.2: 0-999 and 60000-65533 are for the system; 65534 is nobody. Ours are 930-940.
    return number < 930 or 940 < number < 1000 or 60000 <= number <= 65534


def _system_users(added: tuple[User, ...]) -> list[pwd.struct_passwd]:
    ours = {user.name for user in added}
    return [entry for entry in pwd.getpwall() if _is_system(entry.pw_uid) and entry.pw_name not in ours]
