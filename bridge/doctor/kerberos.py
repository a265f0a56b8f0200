"""The kerberos section: asks the live KDC, with the bridge's keytab, whether it allows what is needed and nothing else.

The KDC is asked rather than its database read: that works the same with MIT, FreeIPA, Samba and Active Directory, needs
no administrator's rights, and shows what is enforced, not what was meant. What only the database can tell (names that
nobody would think of) is read by LDAP where the caller gives an address; see ``directory``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bridge.doctor.delegation import check_list, check_transition
from bridge.doctor.directory import check_directory
from bridge.doctor.exposed import check_exposed
from bridge.doctor.finding import Finding, State, failed, not_checked
from bridge.doctor.kdc import check_clock, error_finding, owner
from bridge.doctor.keytabs import check_keytab, check_kvno, check_ticket
from bridge.doctor.ldapread import Source
from bridge.doctor.pac import check_pac
from bridge.doctor.remedies import KdcKind, Remedies
from bridge.doctor.roundtrip import check_user
from bridge.doctor.site import Site
from bridge.doctor.ticketbounds import check_bounds, check_enctypes
from bridge.errors import BridgeError
from bridge.kerberos.probe import Reply, probing
from bridge.kerberos.targets import account_principal
from bridge.policy.bundle import load_bundle
from bridge.policy.directory import NssDirectory
from bridge.settings import Settings


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller knows beyond the settings."""

    kind: KdcKind = KdcKind.MIT
    user: str | None = None
    """Name of a test user's account, whose tickets are got and thrown away."""
    source: Source | None = None
    """Where the KDC's database can be read."""


def check_kerberos(settings: Settings, wishes: Wishes) -> Iterator[Finding]:
    """All checks of the section, one after the other; none of them raises for what it finds, or changes anything."""
    broker = settings.broker
    remedies = Remedies(wishes.kind, f"{broker.principal}@{broker.realm}", str(broker.keytab))
    try:
        bundle = load_bundle(settings.policies)
    except BridgeError as error:
        yield error_finding("policies", str(settings.policies), error)
        return
    site = Site.of(broker, bundle, remedies)
    yield from _foreign_clusters(site)
    if wishes.source is not None:
        yield from check_directory(site, wishes.source)
    if not os.access(site.keytab, os.R_OK):
        yield _unreadable(broker.keytab, broker.realm)
        return
    try:
        yield from _ask(site, wishes)
    except BridgeError as error:
        yield error_finding("kdc", site.realm, error)


def _ask(site: Site, wishes: Wishes) -> Iterator[Finding]:
    """Every check that needs the keytab; without a ticket the rest could only say the same again."""
    yield from check_keytab(site)
    yield check_clock(site.bridge, site.keytab)
    ticket = check_ticket(site)
    yield ticket
    if ticket.state is not State.OK:
        return
    yield from check_bounds(site)
    with probing(site.bridge, site.keytab) as probe:
        yield check_kvno(site, probe)
        yield from check_enctypes(site, probe)
        yield check_pac(site, probe)
        yield from check_list(site, probe)
        given = tuple(name for name in site.needed if probe.reach(name) is Reply.GIVEN)
        if given:
            yield check_transition(site, probe, given[0], _person(site, wishes.user))
            yield from check_exposed(site, probe, given)
    if wishes.user is None:
        yield not_checked("user-tickets", site.realm, "no test user is named", "Name one: --user NAME.")
    else:
        yield from check_user(site, wishes.user, NssDirectory())


def _person(site: Site, user: str | None) -> str | None:
    """The test user's principal, if the bridge itself would take that name for a person's."""
    if user is None or user in site.denied_users:
        return None
    try:
        return account_principal(user, site.realm)
    except BridgeError:
        return None


def _foreign_clusters(site: Site) -> Iterator[Finding]:
    for cluster in site.clusters:
        if cluster.realm != site.realm:
            yield failed(
                "cluster-realm",
                cluster.name,
                f"its realm is {cluster.realm}, the bridge's is {site.realm}",
                "Correct realm in clusters.toml or broker.realm in bridge.toml; a bridge serves one realm.",
            )


def _unreadable(keytab: Path, realm: str) -> Finding:
    return not_checked(
        "keytab", realm, f"{keytab} is not there for this user", f"Run ci-bridge doctor as {owner(keytab)}."
    )
