"""Asks the KDC for tickets in names that must never be impersonated, and wants to hear no (T18, T22).

The bridge's own guards are left out: this is about the wall behind them. Where a ticket is given after all, it is
dropped at once, and the finding says how to close the gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from bridge.doctor.finding import Finding, failed, ok
from bridge.doctor.remedies import KdcKind, Problem
from bridge.doctor.site import Site
from bridge.kerberos.probe import Probe, Reply

CHECK: Final = "never-impersonated"

_MOST_SERVICES: Final = 500
_PRIVILEGED: Final = ("root", "lustre_root", "admin", "root/admin", "admin/admin", "kadmin/admin", "kadmin/changepw")
_WINDOWS: Final = ("Administrator", "krbtgt", "Guest")


def check_exposed(site: Site, probe: Probe, targets: tuple[str, ...]) -> Iterator[Finding]:
    """One finding for each name that the KDC lets the bridge act as, and one that counts the refused; raises Outage.

    targets: services that are on the delegation list, with realm. Privileged names and denied users are tried towards
    each of them, services towards the first.
    """
    replies: Counter[Reply] = Counter()
    for name, wanted in [(one, targets) for one in privileged(site)] + [(one, targets[:1]) for one in services(site)]:
        reply, target = _worst(probe, name, wanted)
        replies[reply] += 1
        if reply is Reply.GIVEN:
            yield failed(
                CHECK,
                name,
                f"the KDC lets the bridge act as this principal towards {target}",
                site.remedies.to(Problem.EXPOSED, name),
            )
    if not replies[Reply.GIVEN]:
        counted = ", ".join(f"{replies[reply]} {reply}" for reply in Reply if replies[reply])
        yield ok(CHECK, site.realm, f"none of {replies.total()} names: {counted}")


def privileged(site: Site) -> tuple[str, ...]:
    """Superusers, administrators and the denied users of accounts.toml and bridge.toml, with realm."""
    windows = _WINDOWS if site.remedies.kind in (KdcKind.AD, KdcKind.SAMBA) else ()
    names = dict.fromkeys((*_PRIVILEGED, *windows, *sorted(site.denied_users)))
    return tuple(site.full(name) for name in names)


def services(site: Site) -> tuple[str, ...]:
    """Service principals that are known by name, with realm: targets, nodes, and the bridge host's own."""
    nodes = (f"host/{node}" for cluster in site.clusters for node in cluster.nodes)
    own = f"host/{site.http_service.partition('@')[0].partition('/')[2]}"
    names = (*site.needed, site.http_service, *(site.full(name) for name in (own, *nodes)))
    return tuple(dict.fromkeys(names))[:_MOST_SERVICES]


def _worst(probe: Probe, name: str, targets: tuple[str, ...]) -> tuple[Reply, str]:
    """The first yes, or else the last no; a name that the KDC has no ticket for is asked once."""
    reply, target = Reply.REFUSED, ""
    for target in targets:
        reply = probe.act_as(name, target)
        if reply is not Reply.REFUSED:
            break
    return reply, target
