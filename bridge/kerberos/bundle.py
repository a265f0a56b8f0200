"""Turns the bridge's own S4U cache into a ticket bundle that is safe to hand out, and checks every bundle once more.

An S4U cache holds the bridge's TGT, which can impersonate anyone (facts of T20). ``strip`` copies what is wanted, never
removes what is not; ``verify_bundle`` reads the result again from its bytes, without anything that ``strip`` knew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from bridge.errors import Defect
from bridge.kerberos import ccache, ticket
from bridge.kerberos.ccache import Credential, Principal
from bridge.model import Ticket, TicketBundle

AES_ENCTYPES: Final = frozenset({17, 18, 19, 20})
"""aes128/256-cts with HMAC-SHA1 (RFC 3962) and HMAC-SHA2 (RFC 8009); no RC4, no DES (T26)."""

_MAY_POSTDATE: Final = 0x04000000
_POSTDATED: Final = 0x02000000
_INVALID: Final = 0x01000000
_RENEWABLE: Final = 0x00800000
_INITIAL: Final = 0x00400000
_PROXIABLE: Final = 0x10000000
_FORBIDDEN_FLAGS: Final = _MAY_POSTDATE | _POSTDATED | _INVALID | _RENEWABLE | _INITIAL | _PROXIABLE
"""A renewable service ticket outlives every control: its holder renews it, even when locked (RFC 4120 section 2)."""


def strip(data: bytes, principal: str, servers: Sequence[str], not_after: datetime) -> TicketBundle:
    """Copy the tickets ``principal -> servers`` out of an S4U cache, and nothing else.

    data: a version 4 cache. principal, servers: full names with realm. not_after: no ticket may end later.
    A ticket filed under the referral realm (``host/login@``) gets the realm that the ticket itself carries. The second
    ticket of an S4U2Proxy entry, which is the evidence ticket, is dropped. Raises Defect.
    """
    client = Principal.of(principal)
    _, entries = ccache.parse(data)
    kept = tuple(_pick(entries, client, Principal.of(server)) for server in servers)
    return verify_bundle(ccache.write(client, kept), principal, servers, not_after)


def verify_bundle(data: bytes, principal: str, servers: Sequence[str], not_after: datetime) -> TicketBundle:
    """Read a finished bundle from its bytes and give it as a TicketBundle.

    Raises Defect unless it holds exactly one AES ticket of ``principal`` for each of ``servers``, that ends by
    not_after, can't be renewed, and brings neither second ticket nor address nor authorisation data.
    """
    if not servers:
        raise _broken("no server is listed")
    default, entries = ccache.parse(data)
    if default != Principal.of(principal):
        raise _broken("default principal", found=str(default))
    names = {Principal.of(server): server for server in servers}
    found = {entry.server for entry in entries}
    if found != names.keys() or not len(found) == len(entries) == len(servers):
        raise _broken("servers", found=[str(entry.server) for entry in entries], wanted=list(servers))
    checked = [_checked(entry, names[entry.server], default, principal, not_after) for entry in entries]
    return TicketBundle(principal, tuple(checked), data)


def _pick(entries: Sequence[Credential], client: Principal, server: Principal) -> Credential:
    referred = Principal(b"", server.components)
    found: dict[bytes, Credential] = {}
    for entry in entries:
        if entry.client != client:
            continue
        if entry.server == server or (entry.server == referred and ticket.open_part(entry.ticket).server == server):
            found[entry.ticket] = replace(entry, server=server, second_ticket=b"")
    if len(found) != 1:
        raise _broken("not exactly one ticket", server=str(server), found=len(found))
    return next(iter(found.values()))


def _checked(entry: Credential, name: str, client: Principal, principal: str, not_after: datetime) -> Ticket:
    part = ticket.open_part(entry.ticket)
    start, end = _moment(entry.start_time or entry.auth_time), _moment(entry.end_time)
    broken = {
        "client": entry.client != client,
        "server": part.server != entry.server or entry.server.is_config or entry.server.components[0] == b"krbtgt",
        "flags": bool(entry.flags & _FORBIDDEN_FLAGS) or entry.renew_till != 0,
        "enctype": not {entry.enctype, part.enctype} <= AES_ENCTYPES,
        "times": not start < end <= not_after,
        "baggage": bool(entry.second_ticket or entry.addresses or entry.authdata or entry.is_skey),
    }
    if any(broken.values()):
        raise _broken(", ".join(rule for rule, bad in broken.items() if bad), server=name)
    return Ticket(principal, name, start, end, part.ticket_id)


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _broken(rule: str, **context: object) -> Defect:
    return Defect(
        "kerberos.bundle_rule",
        "A ticket bundle broke one of the bridge's own rules and was not handed out.",
        "Give the reference to the operators of the bridge; nothing was handed out.",
        rule=rule,
        **context,
    )
