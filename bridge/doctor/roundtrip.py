"""Gets tickets for a named test user as a job would, by the broker's own code, and throws them away."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.doctor.finding import Finding, ok
from bridge.doctor.kdc import error_finding
from bridge.doctor.site import Site, targets_of
from bridge.doctor.ticketbounds import enctype_name
from bridge.errors import BridgeError
from bridge.kerberos import ccache
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.guard import AccountGuard
from bridge.kerberos.impersonation import MAX_TARGETS, Impersonation
from bridge.kerberos.targets import account_principal
from bridge.kerberos.ticket import open_part
from bridge.policy.directory import Directory

CHECK = "user-tickets"
_LIFE_SECONDS = 300


def check_user(site: Site, user: str, directory: Directory) -> Iterator[Finding]:
    """One finding for each cluster: a checked bundle for all its services, or the refusal that a job would get."""
    targets = {name for cluster in site.clusters for name in targets_of(cluster)}
    guard = AccountGuard(directory, site.uid_floor, site.denied_users, site.denied_groups)
    person = Impersonation(Exchange(site.bridge, site.keytab), site.realm, targets, guard)
    for cluster in site.clusters:
        subject = f"{user} on {cluster.name}"
        try:
            account_principal(user, site.realm)
            uid = directory.lookup(user).uid
            seen = [_tickets(person, user, uid, part) for part in _parts(targets_of(cluster))]
        except BridgeError as error:
            yield error_finding(CHECK, subject, error)
        else:
            kinds = sorted({enctype_name(number) for part in seen for number in part})
            yield ok(CHECK, subject, f"{len(targets_of(cluster))} tickets, {', '.join(kinds)}")


def _tickets(person: Impersonation, user: str, uid: int, targets: tuple[str, ...]) -> set[int]:
    """Get one bundle, which is checked where it is made; give the enctypes of its tickets."""
    bundle = person.tickets(user, uid, targets, _LIFE_SECONDS)
    return {open_part(entry.ticket).enctype for entry in ccache.parse(bundle.ccache)[1]}


def _parts(targets: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return (targets[at : at + MAX_TARGETS] for at in range(0, len(targets), MAX_TARGETS))
