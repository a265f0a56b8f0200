"""Puts a test on the realm's bridge host: its network, its krb5.conf, its keytabs, and connections made from there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gssapi
import pytest

from bridge.cluster.login import LoginSession
from bridge.cluster.opening import LoginOpener
from bridge.cluster.ssh import Endpoint, HostKeys
from bridge.kerberos import memory
from bridge.kerberos.deadline import Deadline
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.guard import Guard
from bridge.kerberos.holding import hold
from bridge.kerberos.impersonation import Impersonation
from bridge.kerberos.initial import InitialTickets
from bridge.model import Cluster, TicketBundle
from realm import Realm
from realm.principals import BRIDGE, BRIDGE_KEYTAB, DELEGATION_TARGETS
from tests.fakes import FakeGuard

REALM_NAME = "REALM.TEST"
PRINCIPAL = f"{BRIDGE}@{REALM_NAME}"
LOGIN, MDS1 = DELEGATION_TARGETS[0], DELEGATION_TARGETS[1]
KRB5 = gssapi.MechType.kerberos
KERBEROS_NAME = gssapi.NameType.kerberos_principal


class BridgeSide:
    """What a process on the bridge host has at hand."""

    def __init__(self, realm: Realm, scratch: Path) -> None:
        self.realm = realm
        self.scratch = scratch
        self.keytab = str(realm.host("bridge").path(BRIDGE_KEYTAB))
        self.known_hosts = scratch / "known_hosts"
        self.known_hosts.write_text(realm.known_hosts())
        self.endpoint = Endpoint("login.realm.test", 22, REALM_NAME, realm.host("login").address)
        self.cluster = Cluster(
            name="pocket",
            realm=REALM_NAME,
            login_host="login.realm.test",
            login_port=22,
            login_targets=(LOGIN,),
            node_targets=(MDS1,),
            builds_root="/builds",
            cache_root="/builds",
            node_ccache="FILE:/tmp/krb5cc_%{uid}",
            login_ccache="FILE:/tmp/krb5cc_%{uid}",
            nodes=("node1.realm.test", "node2.realm.test"),
        )

    def impersonation(
        self, extra: Sequence[str] = (), deadline: Deadline | None = None, guard: Guard | None = None
    ) -> Impersonation:
        """The bridge's Impersonation; ``extra`` targets are listed by the bridge and not by the KDC.

        Without ``guard`` nobody looks at the account behind the name.
        """
        exchange = Exchange(PRINCIPAL, self.keytab, deadline=deadline)
        return Impersonation(exchange, REALM_NAME, (*DELEGATION_TARGETS, *extra), guard or FakeGuard())

    def tickets(self, account: str = "alice", targets: Sequence[str] = (LOGIN,), seconds: int = 600) -> TicketBundle:
        """A bundle by a fresh Impersonation."""
        return self.impersonation().tickets(account, 20001, targets, seconds)

    def unstripped(self, account: str = "alice") -> bytes:
        """What MIT's library stores after S4U: the bridge's TGT, the evidence ticket, and one for the login node."""
        ticket = InitialTickets(PRINCIPAL, self.keytab).get(600)
        file = self.scratch / "unstripped"
        with memory.private_cache(PRINCIPAL, [ticket.credential]) as own:
            person = gssapi.Credentials(mechs=[KRB5], usage="initiate", store={"ccache": own}).impersonate(
                name=gssapi.Name(f"{account}@{REALM_NAME}", KERBEROS_NAME), mechs=[KRB5], usage="initiate"
            )
            initiate(person, f"{LOGIN}@{REALM_NAME}").step()
            person.store(store={"ccache": f"FILE:{file}"}, usage="initiate", overwrite=True)
        return file.read_bytes()

    def login(self, account: str = "alice") -> LoginSession:
        """A session of the real login agent over the real sshd."""
        opener = LoginOpener(
            hold, HostKeys(self.known_hosts), addresses={"login.realm.test": self.realm.host("login").address}
        )
        return opener(self.cluster, account, self.tickets(account))

    def acceptor(self, host: str, keytab: str) -> gssapi.SecurityContext:
        """A service that takes one context with the keys of a host's keytab."""
        store: dict[str | bytes, str | bytes] = {
            "keytab": f"FILE:{self.realm.host(host).path(keytab)}",
            "rcache": "none:",
        }
        credential = gssapi.Credentials(usage="accept", mechs=[KRB5], store=store)
        return gssapi.SecurityContext(creds=credential, usage="accept")


@contextmanager
def bridge_network(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be on the bridge host with this thread, in a realm that may have nothing but a KDC."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.krb5_conf))
    monkeypatch.delenv("KRB5CCNAME", raising=False)
    with realm.host("bridge").network():
        yield
    assert "KRB5CCNAME" not in os.environ


@contextmanager
def bridge_side(realm: Realm, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    """Be on the bridge host with this thread, and threads started by it, until the end of the block."""
    with bridge_network(realm, monkeypatch):
        yield BridgeSide(realm, scratch)


def initiate(credential: gssapi.Credentials, server: str) -> gssapi.SecurityContext:
    """A context towards ``service/host@REALM``, not begun yet."""
    flags = int(gssapi.RequirementFlag.mutual_authentication)
    name = gssapi.Name(server, KERBEROS_NAME)
    return gssapi.SecurityContext(name=name, creds=credential, mech=KRB5, usage="initiate", flags=flags)
