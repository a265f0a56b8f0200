"""Checks the bridge's keytab against the KDC: whose keys it has, and whether they are the present ones.

keytab            the keys of the bridge's principal, and of nobody else
keytab-kvno       the version of the key that the KDC uses now is in it (RFC 4120 section 5.2.9, kvno)
bridge-ticket     a TGT can be got with it, and is forwardable, as S4U2Proxy needs
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.doctor.finding import Finding, failed, ok, warning
from bridge.doctor.kdc import error_finding
from bridge.doctor.remedies import Problem
from bridge.doctor.site import Site
from bridge.errors import BridgeError
from bridge.kerberos.ownkeys import (
    CLIENT_EXPIRED,
    CLIENT_REVOKED,
    CLIENT_UNKNOWN,
    WRONG_KEY,
    KeytabKey,
    initial_facts,
    keytab_keys,
)
from bridge.kerberos.probe import Probe, ServiceFacts, probing

TICKET = "bridge-ticket"


def check_keytab(site: Site) -> Iterator[Finding]:
    """One finding on the file's content; raises Outage where it can't be read as a keytab."""
    keys = keytab_keys(site.keytab)
    foreign = sorted({key.principal for key in keys} - {site.bridge})
    if not _versions(site, keys):
        yield failed(
            "keytab", site.keytab, f"has no key of {site.bridge}", site.remedies.to(Problem.KEYTAB, site.bridge)
        )
    elif foreign:
        yield warning(
            "keytab",
            site.keytab,
            f"also has keys of {', '.join(foreign)}",
            "Keep only the bridge's own keys in this file (ktutil: rkt, list, delent, wkt).",
        )
    else:
        yield ok("keytab", site.keytab, f"{len(keys)} keys of {site.bridge}, kvno {_listed(_versions(site, keys))}")


def check_ticket(site: Site) -> Finding:
    """Whether the keytab gets a forwardable TGT; the KDC's reason and its present kvno where it does not."""
    try:
        facts = initial_facts(site.bridge, site.keytab, 300, 0)
    except BridgeError as error:
        return _no_ticket(site, error)
    if facts.forwardable:
        return ok(TICKET, site.bridge, "the keytab gets a forwardable ticket")
    return failed(
        TICKET,
        site.bridge,
        "the KDC gives no forwardable ticket, so nothing can be delegated",
        site.remedies.to(Problem.NOT_FORWARDABLE, site.bridge) + " If it stays: forwardable in krb5.conf.",
    )


def check_kvno(site: Site, probe: Probe) -> Finding:
    """Compare the key version in a ticket for the bridge itself with those in the keytab."""
    now = _kvno_in_tickets(probe, site.bridge)
    have = _versions(site, keytab_keys(site.keytab))
    if now is None or now in have:
        seen = f"the KDC's kvno {now} is in the keytab" if now else "the KDC's tickets name no kvno; the keytab works"
        return ok("keytab-kvno", site.bridge, seen)
    return failed(
        "keytab-kvno",
        site.bridge,
        f"the KDC uses kvno {now}, the keytab has {_listed(have)}",
        site.remedies.to(Problem.KEYTAB, site.bridge),
    )


def _no_ticket(site: Site, error: BridgeError) -> Finding:
    code = error.context.get("krb5_code")
    if code in (CLIENT_REVOKED, CLIENT_EXPIRED):
        return failed(
            TICKET, site.bridge, "the principal is locked or expired", site.remedies.to(Problem.CLOSED, site.bridge)
        )
    if code == CLIENT_UNKNOWN:
        return failed(
            TICKET,
            site.bridge,
            "the KDC does not know the principal",
            "Make it as docs/kdc.md says, or correct broker.principal in bridge.toml.",
        )
    if code in WRONG_KEY:
        detail = f"the keytab's keys are not the KDC's{_seen_kvno(site)}"
        return failed(TICKET, site.bridge, detail, site.remedies.to(Problem.KEYTAB, site.bridge))
    return error_finding(TICKET, site.bridge, error)


def _seen_kvno(site: Site) -> str:
    """With the HTTP service's keytab one can see the kvno of the bridge even when the bridge's own has gone stale."""
    try:
        with probing(site.http_service, site.http_keytab) as probe:
            now = _kvno_in_tickets(probe, site.bridge)
        have = _versions(site, keytab_keys(site.keytab))
    except BridgeError:
        return ""
    return f": it has kvno {_listed(have)}, the KDC uses {now}"


def _kvno_in_tickets(probe: Probe, service: str) -> int | None:
    facts = probe.service(service)
    return facts.kvno if isinstance(facts, ServiceFacts) else None


def _versions(site: Site, keys: tuple[KeytabKey, ...]) -> set[int]:
    return {key.kvno for key in keys if key.principal == site.bridge}


def _listed(numbers: set[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers)) or "none"
