"""Asks the KDC what the bridge may delegate to, service by service, and whether it may act for people at all (T22).

delegation-list       each service of clusters.toml is given; nothing else that has a known name is
protocol-transition   ``ok_to_auth_as_delegate``: without it no S4U2Self ticket can be taken further

Asking finds a name too many only if it thinks of it, so it thinks of what sites have: the usual services on every host
that the settings name, and the KDC's own. Reading the list itself (``directory``) finds all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.doctor.finding import Finding, failed, not_checked, ok
from bridge.doctor.remedies import Problem
from bridge.doctor.site import Site
from bridge.kerberos.probe import Probe, Reply

_SERVICES: Final = ("host", "HTTP", "nfs", "cifs", "ldap", "postgres", "lustre_mds", "lustre_mgs", "lustre_oss")
_MOST_NODES: Final = 500
"""Nodes of one cluster that are asked for; one exchange takes about a millisecond."""


def check_list(site: Site, probe: Probe) -> Iterator[Finding]:
    """One finding for each name missing or too many, and one that counts the good; raises Outage.

    A service whose keys are unusable is named by ``enctypes``.
    """
    given = 0
    for name in site.needed:
        reply = probe.reach(name)
        given += reply is Reply.GIVEN
        if reply is Reply.UNKNOWN:
            yield _missing(site, name, "clusters.toml needs it, and the KDC does not know it", Problem.TARGET_UNKNOWN)
        elif reply not in (Reply.GIVEN, Reply.UNUSABLE):
            yield _missing(site, name, "clusters.toml needs it, and the KDC refuses it", Problem.TARGET_MISSING)
    asked = known_names(site)
    extra = [name for name in asked if probe.reach(name) is Reply.GIVEN]
    for name in extra:
        yield failed(
            "delegation-list",
            name,
            "the bridge may delegate to it, and clusters.toml does not need it",
            site.remedies.to(Problem.TARGET_TOO_MANY, name),
        )
    if given == len(site.needed) and not extra:
        yield ok("delegation-list", site.bridge, f"{given} needed services given, {len(asked)} others refused")


def known_names(site: Site) -> tuple[str, ...]:
    """Services of this realm that the list should not have, with realm."""
    hosts = {name.partition("/")[2] for name in (_bare(one) for one in (*site.needed, site.bridge, site.http_service))}
    names = {f"{service}/{host}" for service in _SERVICES for host in hosts}
    names |= {f"host/{node}" for cluster in site.clusters for node in cluster.nodes[:_MOST_NODES]}
    names |= {f"krbtgt/{site.realm}", "kadmin/admin", "kadmin/changepw", "kadmin/history", "kiprop/" + site.realm}
    return tuple(sorted({site.full(name) for name in names} - {*site.needed, site.bridge}))


def check_transition(site: Site, probe: Probe, target: str, person: str | None) -> Finding:
    """Whether an S4U2Self ticket can be taken to ``target``, which is on the list; raises Outage.

    Asked in the name of the ticket-granting service, which is nobody: it is always forwardable, as no forwardable TGT
    could be made otherwise (MIT kdc_util.c), and no service takes it for a person. Active Directory does not know that
    name; there ``person`` shows it, an ordinary person's principal.
    """
    check = "protocol-transition"
    reply = probe.act_as(site.full(f"krbtgt/{site.realm}"), target)
    if reply in (Reply.UNKNOWN, Reply.CLOSED) and person is not None:
        reply = probe.act_as(person, target)
    if reply is Reply.GIVEN:
        return ok(check, site.bridge, "the bridge may act for people towards the services of its list")
    if reply is Reply.REFUSED:
        return failed(
            check,
            site.bridge,
            "the KDC lets the bridge act for nobody: tickets by protocol transition are not forwardable",
            site.remedies.to(Problem.NO_TRANSITION, site.bridge),
        )
    return not_checked(
        check, site.bridge, f"there is nobody to ask it with: {reply}", "Name another test user: --user NAME."
    )


def _missing(site: Site, name: str, detail: str, problem: Problem) -> Finding:
    return failed("delegation-list", name, detail, site.remedies.to(problem, name))


def _bare(principal: str) -> str:
    return principal.rpartition("@")[0]
