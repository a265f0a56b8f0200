"""Principals like the bridge's with one right, both or none, and people of every state, which only these tests know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bridge.kerberos.deadline import Deadline
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.impersonation import Impersonation
from realm import Realm
from realm.principals import DELEGATION_TARGETS
from realm.topology import KRB_REALM
from tests.fakes import FakeGuard

BRIDGE_HOST = "bridge.realm.test"
TRANSITION = "+ok_to_auth_as_delegate"


@dataclass(frozen=True)
class Kind:
    """A principal of the bridge's kind: may it change protocol (S4U2Self forwardable), and delegate to whom."""

    name: str
    transition: bool
    targets: Sequence[str] = ()

    @property
    def service(self) -> str:
        """Its principal without realm."""
        return f"{self.name}/{BRIDGE_HOST}"

    @property
    def principal(self) -> str:
        """Its principal with realm."""
        return f"{self.service}@{KRB_REALM}"

    def keytab(self, realm: Realm) -> str:
        """Where this machine sees its keytab."""
        return str(realm.host("bridge").path(self.path))

    @property
    def path(self) -> str:
        """Where host ``bridge`` has its keytab."""
        return f"/var/lib/realm/{self.name}.keytab"

    def exchange(self, realm: Realm, deadline: Deadline | None = None) -> Exchange:
        """What asks the KDC as this principal."""
        return Exchange(self.principal, self.keytab(realm), deadline=deadline)

    def impersonation(self, realm: Realm, targets: Sequence[str] = DELEGATION_TARGETS) -> Impersonation:
        """The bridge's own code as this principal; ``targets`` are what it believes any cluster lists."""
        return Impersonation(self.exchange(realm), KRB_REALM, targets, FakeGuard())


@contextmanager
def made(realm: Realm, kinds: Sequence[Kind], others: Mapping[str, Sequence[str]] | None = None) -> Iterator[None]:
    """Have these principals, and ``others`` with their kadmin flags, at the KDC until the end of the block."""
    others = others or {}
    flags = {kind.service: ("-allow_renewable", *((TRANSITION,) if kind.transition else ())) for kind in kinds}
    wanted = {**flags, **others}
    realm.kdc.kadmin(*(f"addprinc -randkey {' '.join(added)} {name}" for name, added in wanted.items()))
    try:
        for kind in kinds:
            realm.kdc.ktadd([kind.service], realm.host("bridge"), kind.path)
            if kind.targets:
                realm.kdc.set_delegation_targets(kind.service, kind.targets)
        yield
    finally:
        realm.kdc.kadmin(*(f"delprinc -force {name}" for name in wanted))
        for kind in kinds:
            realm.host("bridge").path(kind.path).unlink(missing_ok=True)
