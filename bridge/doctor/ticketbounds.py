"""Checks what tickets a thief of the keytab could ask for: how long, renewable, and of which kind (T22, T26).

ticket-life        the longest TGT that the KDC gives to the bridge, against the longest life that policy hands out
ticket-renewable   a renewable TGT makes renewable tickets of people, which live on when their accounts are locked
enctypes           AES only: keys in the keytab, keys that the KDC would use, and the tickets it makes for the services
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.doctor.finding import Finding, failed, ok, warning
from bridge.doctor.kdc import error_finding
from bridge.doctor.remedies import KdcKind, Problem
from bridge.doctor.site import Site
from bridge.errors import BridgeError
from bridge.kerberos.bundle import AES_ENCTYPES
from bridge.kerberos.ownkeys import InitialFacts, initial_facts, kdc_takes, keytab_keys
from bridge.kerberos.probe import Probe, Reply, ServiceFacts

_LONGEST_SECONDS: Final = 366 * 24 * 3600
_SLACK_SECONDS: Final = 60

_WEAK: Final = {16: "DES3", 23: "RC4"}
"""Weak enctypes that a client can still ask for (RFC 8429); single DES is in no supported release."""
_NAMES: Final = {
    1: "DES",
    2: "DES",
    3: "DES",
    17: "aes128-sha1",
    18: "aes256-sha1",
    19: "aes128-sha2",
    20: "aes256-sha2",
}


def check_bounds(site: Site) -> Iterator[Finding]:
    """Ask for the longest renewable TGT that there is, and judge what the KDC made of it; raises Outage."""
    facts = initial_facts(site.bridge, site.keytab, _LONGEST_SECONDS, _LONGEST_SECONDS)
    yield _renewable(site, facts)
    yield _life(site, facts.life_seconds)


def check_enctypes(site: Site, probe: Probe) -> Iterator[Finding]:
    """One finding for each weak key or ticket, or one that says that all are AES; raises Outage."""
    found = [*_weak_keys(site), *_weak_tickets(site, probe)]
    yield from found
    if not found:
        yield ok("enctypes", site.realm, f"AES only: the bridge's keys, and tickets for {len(site.needed)} services")


def enctype_name(number: int) -> str:
    """A name for people (RFC 3961 and its successors)."""
    return _WEAK.get(number) or _NAMES.get(number) or f"enctype {number}"


def _renewable(site: Site, facts: InitialFacts) -> Finding:
    check, remedy = "ticket-renewable", site.remedies.to(Problem.RENEWABLE, site.bridge)
    if not facts.renewable:
        return ok(check, site.bridge, "the KDC gives no renewable ticket, even if asked")
    detail = "the KDC gives renewable tickets: whoever takes the keytab can make tickets that outlive a lock"
    if site.remedies.kind in (KdcKind.AD, KdcKind.SAMBA):
        return warning(check, site.bridge, detail, remedy)
    return failed(check, site.bridge, detail, remedy)


def _life(site: Site, seconds: int) -> Finding:
    check, remedy = "ticket-life", site.remedies.to(Problem.LIFE, site.bridge, site.longest_minutes)
    detail = f"the KDC gives at most {seconds // 60} minutes, the longest ticket_minutes of the limits is "
    detail += str(site.longest_minutes)
    wanted = site.longest_minutes * 60
    if seconds < wanted - _SLACK_SECONDS:
        return warning(check, site.bridge, f"{detail}: tickets end sooner than policy says", remedy)
    if seconds > wanted + _SLACK_SECONDS:
        return warning(check, site.bridge, f"{detail}: a thief of the keytab gets the longer one", remedy)
    return ok(check, site.bridge, detail)


def _weak_keys(site: Site) -> Iterator[Finding]:
    remedy = site.remedies.to(Problem.WEAK_KEY, site.bridge)
    held = sorted({key.enctype for key in keytab_keys(site.keytab)} - AES_ENCTYPES)
    for enctype in held:
        yield failed("enctypes", site.keytab, f"has a key of the weak kind {enctype_name(enctype)}", remedy)
    for enctype, name in _WEAK.items():
        try:
            taken = kdc_takes(site.bridge, site.keytab, enctype)
        except BridgeError as error:
            yield error_finding("enctypes", site.bridge, error)
        else:
            if taken:
                yield failed("enctypes", site.bridge, f"the KDC gives it tickets of the weak kind {name}", remedy)


def _weak_tickets(site: Site, probe: Probe) -> Iterator[Finding]:
    """A service that the KDC does not know, or has locked, is the delegation list's business."""
    preauth = site.remedies.to(Problem.TARGET_PREAUTH, site.bridge)
    for service in site.needed:
        facts = probe.service(service)
        if isinstance(facts, ServiceFacts):
            weak = sorted({facts.ticket_enctype, facts.session_enctype} - AES_ENCTYPES)
            detail = f"tickets for it are made with {', '.join(map(enctype_name, weak))}; the bridge refuses them"
        else:
            weak, detail = [], ""
        if weak:
            yield failed("enctypes", service, detail, site.remedies.to(Problem.WEAK_KEY, service))
        if facts is Reply.UNUSABLE:
            detail = "the KDC makes no ticket for it: it has no AES key, or wants pre-authentication of the bridge"
            yield failed("enctypes", service, detail, f"{site.remedies.to(Problem.WEAK_KEY, service)} Or: {preauth}")
