"""Reads the KDC's own database by LDAP and finds what asking can't: names too many that nobody would think of.

directory-list    ``krbAllowedToDelegateTo`` is exactly what clusters.toml needs, letter by letter
directory-flags   ``krbTicketFlags`` of the bridge's principal
directory-exposed service principals, administrators and denied users without ``-allow_forwardable``

The attributes are those of MIT's and FreeIPA's kerberos schema (kerberos.openldap.ldif); keys are never asked for.
FreeIPA has the same flags, and its delegation list in entries of its own; Active Directory has neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.doctor.exposed import privileged
from bridge.doctor.finding import Finding, failed, not_checked, ok, warning
from bridge.doctor.ldapread import Entry, NotRead, Source
from bridge.doctor.remedies import KdcKind, Problem, Remedies
from bridge.doctor.site import Site

# krb5.h / kdb.h: KRB5_KDB_DISALLOW_FORWARDABLE, _RENEWABLE, _ALL_TIX, OK_TO_AUTH_AS_DELEGATE.
NO_FORWARDABLE: Final = 0x2
NO_RENEWABLE: Final = 0x8
NO_TICKETS: Final = 0x40
TRANSITION: Final = 0x200000

_NAME: Final = "krbPrincipalName"
_FLAGS: Final = "krbTicketFlags"
_LIST: Final = "krbAllowedToDelegateTo"
_REMEDY_READ: Final = (
    "Check --ldap, --ldap-base and the reader's rights; on the KDC, root reads everything at ldapi:///."
)


def check_directory(site: Site, source: Source) -> Iterator[Finding]:
    """All that the database shows, in three searches; none of them raises."""
    if site.remedies.kind not in (KdcKind.MIT, KdcKind.FREEIPA):
        yield not_checked(
            "directory",
            source.url,
            f"a directory of kind {site.remedies.kind} is not read",
            "See docs/kdc.md, section 3.",
        )
        return
    try:
        found = source.search(f"({_NAME}={escaped(site.bridge)})", (_NAME, _FLAGS, _LIST))
        if not found:
            yield failed("directory", source.url, f"has no entry of {site.bridge} for this reader", _REMEDY_READ)
            return
        yield from _principal(site, found[0])
        yield from _exposed(site, source)
    except NotRead as error:
        remedy = f"Install ldap-utils. {_REMEDY_READ}" if "can't be run" in str(error) else _REMEDY_READ
        yield not_checked("directory", source.url, str(error), remedy)


def escaped(value: str) -> str:
    """A value as it stands in a filter (RFC 4515 section 3)."""
    return "".join(f"\\{ord(c):02x}" if c in "\\*()\0" else c for c in value)


def _principal(site: Site, entry: Entry) -> Iterator[Finding]:
    remedies = site.remedies.knowing(entry["dn"][0])
    if site.remedies.kind is KdcKind.MIT:
        yield from _listed(site, remedies, frozenset(entry.get(_LIST.lower(), ())))
    else:
        yield not_checked(
            "directory-list", site.bridge, "FreeIPA keeps it elsewhere", "Run ipa servicedelegationrule-find --all."
        )
    flags = _flags(entry)
    wrong = [
        (flags & NO_FORWARDABLE, "its tickets are not forwardable", Problem.NOT_FORWARDABLE),
        (not flags & TRANSITION, "ok_to_auth_as_delegate is not set", Problem.NO_TRANSITION),
        (not flags & NO_RENEWABLE, "its tickets may be renewable", Problem.RENEWABLE),
        (flags & NO_TICKETS, "it is locked", Problem.CLOSED),
    ]
    for bad, detail, problem in wrong:
        if bad:
            yield failed("directory-flags", site.bridge, detail, remedies.to(problem, site.bridge))
    if not any(bad for bad, _, _ in wrong):
        yield ok("directory-flags", site.bridge, "+ok_to_auth_as_delegate -allow_renewable")


def _listed(site: Site, remedies: Remedies, listed: frozenset[str]) -> Iterator[Finding]:
    needed = frozenset(site.needed)
    for name in sorted(needed - listed):
        detail = "clusters.toml needs it, and the list does not have it"
        yield failed("directory-list", name, detail, remedies.to(Problem.TARGET_MISSING, name))
    for name in sorted(listed - needed):
        detail = "the list has it, and clusters.toml does not need it"
        yield failed("directory-list", name, detail, remedies.to(Problem.TARGET_TOO_MANY, name))
    if listed == needed:
        yield ok("directory-list", site.bridge, f"exactly the {len(needed)} services of clusters.toml")


def _exposed(site: Site, source: Source) -> Iterator[Finding]:
    names = "".join(f"({_NAME}={escaped(name)})" for name in privileged(site))
    entries = source.search(f"(|({_NAME}=*/*){names})", (_NAME, "krbCanonicalName", _FLAGS, _LIST))
    exposed = [entry for entry in entries if _can_be_taken_further(site, entry)]
    for entry in sorted(exposed, key=_canonical):
        name, detail = _canonical(entry), "the KDC would let the bridge act as this principal"
        remedy = site.remedies.to(Problem.EXPOSED, name)
        if entry.get(_LIST.lower()):
            yield warning("directory-exposed", name, f"{detail}, which delegates itself", f"If it need not: {remedy}")
        else:
            yield failed("directory-exposed", name, detail, remedy)
    if not exposed:
        yield ok("directory-exposed", site.realm, f"none of {len(entries)} services and privileged names")


def _can_be_taken_further(site: Site, entry: Entry) -> bool:
    """Left out: the bridge, whose own ticket must be forwardable; krbtgt, by which everybody's is; what is locked."""
    name = _canonical(entry)
    if name == site.bridge or name.startswith("krbtgt/"):
        return False
    return not _flags(entry) & (NO_FORWARDABLE | NO_TICKETS)


def _canonical(entry: Entry) -> str:
    return (entry.get("krbcanonicalname") or entry.get(_NAME.lower()) or entry["dn"])[0]


def _flags(entry: Entry) -> int:
    """The flags as stored, in decimal; absent means none."""
    return int(entry.get(_FLAGS.lower(), ("0",))[0])
