"""Which hosts a realm has, their fixed addresses, and what is shared between them; data only."""

from __future__ import annotations

from dataclasses import dataclass

DOMAIN = "realm.test"
KRB_REALM = "REALM.TEST"
NETWORK_BITS = 24

PARTS = ("kdc", "login", "slurm", "gitlab", "bridge", "runner")
"""What can be switched on: kdc (slapd, krb5kdc, kadmind), login (sshd), slurm (munge, slurmdbd, slurmctld, slurmd),
gitlab (the stand-in), bridge (broker and web), runner."""


@dataclass(frozen=True)
class HostSpec:
    """One host: short name, IPv4 address, and whether it mounts the cluster's shared /home and /builds."""

    name: str
    address: str
    shares_home: bool = False
    has_people: bool = True
    runs_driver: bool = False

    @property
    def fqdn(self) -> str:
        """The name that principals, certificates and /etc/hosts use."""
        return f"{self.name}.{DOMAIN}"


# Every realm uses the same addresses: each has a switch of its own and no route to anything else.
HOSTS: tuple[HostSpec, ...] = (
    HostSpec("kdc", "10.113.0.10", has_people=False),
    HostSpec("gitlab", "10.113.0.11", has_people=False),
    HostSpec("bridge", "10.113.0.12"),
    HostSpec("runner", "10.113.0.13", has_people=False, runs_driver=True),
    HostSpec("login", "10.113.0.14", shares_home=True, runs_driver=True),
    HostSpec("ctl", "10.113.0.15", shares_home=True),
    HostSpec("node1", "10.113.0.21", shares_home=True, runs_driver=True),
    HostSpec("node2", "10.113.0.22", shares_home=True, runs_driver=True),
    HostSpec("mds1", "10.113.0.31"),
    HostSpec("desk", "10.113.0.40"),
)

NEEDED_BY: dict[str, tuple[str, ...]] = {
    "kdc": ("kdc",),
    "login": ("kdc", "login"),
    "slurm": ("login", "ctl", "node1", "node2"),
    "gitlab": ("gitlab",),
    "bridge": ("kdc", "login", "gitlab", "bridge"),
    "runner": ("gitlab", "bridge", "login", "runner"),
}
"""The hosts without which a part cannot work."""


def spec(name: str) -> HostSpec:
    """The host called `name`; KeyError if there is none."""
    for host in HOSTS:
        if host.name == name:
            return host
    raise KeyError(name)
