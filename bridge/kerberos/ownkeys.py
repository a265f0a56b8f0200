"""What a keytab holds and what the KDC makes of it: enctypes, key versions, and the bounds of its tickets.

For ``ci-bridge doctor``. Everything here is about the principal of the keytab itself; keys are never given out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import krb5

from bridge.errors import BridgeError
from bridge.kerberos import ccache
from bridge.kerberos.deadline import Deadline, Late
from bridge.kerberos.faults import Step, fault, unreachable
from bridge.kerberos.ticket import open_part

WRONG_KEY: Final = (24, 31)
"""KDC_ERR_PREAUTH_FAILED, and KRB_AP_ERR_BAD_INTEGRITY where no proof is asked for (RFC 4120 section 7.5.9)."""
CLIENT_EXPIRED: Final = 1
CLIENT_UNKNOWN: Final = 6
CLIENT_REVOKED: Final = 18

_NO_KEY: Final = (14, 181, 210)
"""KDC_ERR_ETYPE_NOSUPP; KRB5_KT_NOTFOUND and KRB5_PREAUTH_FAILED, where the KDC asks for proof and names no key."""

_FORWARDABLE: Final = 0x40000000
_RENEWABLE: Final = 0x00800000


@dataclass(frozen=True, slots=True)
class KeytabKey:
    """A key of a keytab, without the key: principal with realm, key version, enctype number (RFC 3961)."""

    principal: str
    kvno: int
    enctype: int


@dataclass(frozen=True, slots=True)
class InitialFacts:
    """What the KDC made of a request for a TGT."""

    life_seconds: int
    renewable: bool
    forwardable: bool
    session_enctype: int
    ticket_enctype: int


def keytab_keys(path: str) -> tuple[KeytabKey, ...]:
    """List a keytab file; raises Outage ``kerberos.bridge_credential`` where it can't be read."""
    try:
        context = krb5.init_context()
        return tuple(
            KeytabKey(str(entry.principal), entry.kvno, entry.key.enctype)
            for entry in krb5.kt_resolve(context, f"FILE:{path}".encode())
        )
    except krb5.Krb5Error as error:
        raise fault(Step.INITIAL, error.err_code, str(error), path) from error


def initial_facts(
    principal: str, keytab: str, life_seconds: int, renew_seconds: int, deadline: Deadline | None = None
) -> InitialFacts:
    """Ask for a forwardable TGT of this life and renewable life, and say what came; it is dropped at once.

    principal: with realm. keytab: path. Raises Outage; its context has ``krb5_code``.
    """
    entry = ccache.parse_entry(initial(principal, keytab, life_seconds, renew_seconds, deadline=deadline))
    return InitialFacts(
        life_seconds=entry.end_time - (entry.start_time or entry.auth_time),
        renewable=bool(entry.flags & _RENEWABLE) or entry.renew_till != 0,
        forwardable=bool(entry.flags & _FORWARDABLE),
        session_enctype=entry.enctype,
        ticket_enctype=open_part(entry.ticket).enctype,
    )


def kdc_takes(principal: str, keytab: str, enctype: int, deadline: Deadline | None = None) -> bool:
    """Whether the KDC gives a TGT to this keytab when nothing but this enctype is asked for.

    A key that the KDC has and the keytab has not can't be seen this way. Raises as ``initial_facts`` does.
    """
    try:
        initial(principal, keytab, 300, 0, enctypes=(enctype,), deadline=deadline)
    except BridgeError as error:
        if error.context.get("krb5_code") in _NO_KEY:
            return False
        raise
    return True


def initial(
    principal: str,
    keytab: str,
    life_seconds: int,
    renew_seconds: int = 0,
    *,
    enctypes: tuple[int, ...] = (),
    deadline: Deadline | None = None,
) -> bytes:
    """Give a TGT as a marshalled credential; raises Outage ``kerberos.*``. Whoever has it can impersonate."""

    def fetch() -> bytes:
        context = krb5.init_context()
        options = krb5.get_init_creds_opt_alloc(context)
        krb5.get_init_creds_opt_set_tkt_life(options, life_seconds)
        krb5.get_init_creds_opt_set_renew_life(options, renew_seconds)
        krb5.get_init_creds_opt_set_forwardable(options, forwardable=True)
        krb5.get_init_creds_opt_set_proxiable(options, proxiable=False)
        if enctypes:
            krb5.get_init_creds_opt_set_etype_list(options, enctypes)
        owner = krb5.parse_name_flags(context, principal.encode())
        keys = krb5.kt_resolve(context, f"FILE:{keytab}".encode())
        return krb5.marshal_credentials(context, krb5.get_init_creds_keytab(context, owner, options, keys))

    try:
        return (deadline or Deadline()).run(fetch)
    except Late as late:
        raise unreachable(principal, str(late)) from None
    except krb5.Krb5Error as error:
        raise fault(Step.INITIAL, error.err_code, str(error), principal) from error
