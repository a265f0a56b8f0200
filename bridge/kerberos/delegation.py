"""The exchange itself: S4U2Self, then S4U2Proxy for each service, in caches that belong to one call.

Nothing here decides whether it may be done; ``impersonation`` does. python-gssapi's lower layer is used, since its
upper one keeps an error back where there is a token too, and costs a tenth of the whole. Stores are given in bytes
only: of text it passes on pointers to copies that are gone by then, and another cache is used (seen).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

import gssapi
import krb5
from gssapi import raw
from gssapi.raw.misc import GSSError

from bridge.errors import Defect
from bridge.kerberos import memory
from bridge.kerberos.faults import Step, fault
from bridge.kerberos.initial import BridgeTicket

_KRB5: Final = gssapi.MechType.kerberos
_PRINCIPAL: Final = gssapi.NameType.kerberos_principal
_INTEGRITY: Final = int(gssapi.RequirementFlag.integrity)


def delegate(
    context: krb5.Context, bridge: str, ticket: BridgeTicket, account: str, user: str, servers: Sequence[str]
) -> bytes:
    """Give the tickets of ``user`` for ``servers`` in file format, with their evidence: for ``bundle.strip`` only.

    context: this thread's. bridge, user, servers: principals with realm. account: whom to name in errors. Raises
    the errors of ``faults``, and krb5.Krb5Error where the library itself fails.
    """
    with memory.private_cache(bridge, [ticket.credential], context) as own:
        person = _transition(own, account, user)
        for server in servers:
            _proxy(person, account, server)
        with memory.receiving(user, servers, context) as (name, take):
            raw.store_cred_into(
                {b"ccache": name.encode()}, person, usage="initiate", mech=_KRB5, overwrite=True, set_default=False
            )
            return take()


def _transition(own: str, account: str, user: str) -> raw.Creds:
    """S4U2Self: a credential of ``user`` (MS-SFU section 3.1.5.1.1)."""
    try:
        name = raw.import_name(user.encode(), _PRINCIPAL)
        bridge = raw.acquire_cred_from(
            {b"ccache": own.encode()}, name=None, lifetime=None, mechs=[_KRB5], usage="initiate"
        ).creds
        person = raw.acquire_cred_impersonate_name(bridge, name, None, [_KRB5], "initiate").creds
        got = raw.inquire_cred(person, name=True, lifetime=False, usage=False, mechs=False).name
        shown = raw.display_name(got, name_type=False).name if got else b""
    except GSSError as error:
        _raise(Step.PROTOCOL_TRANSITION, error, account, None)
    if shown != user.encode():
        raise Defect(
            "kerberos.wrong_person",
            "The KDC gave a credential of somebody else.",
            "Give the reference to the operators of the bridge; nothing was handed out.",
            expected=user,
            got=shown.decode(errors="replace"),
        )
    return person


def _proxy(person: raw.Creds, account: str, server: str) -> None:
    """S4U2Proxy (MS-SFU section 3.1.5.2.1): the ticket stays in ``person``; the context that fetched it is dropped."""
    try:
        name = raw.import_name(server.encode(), _PRINCIPAL)
        raw.init_sec_context(name, person, None, _KRB5, _INTEGRITY, None)
    except GSSError as error:
        _raise(Step.CONSTRAINED_DELEGATION, error, account, server)


def _raise(step: Step, error: GSSError, account: str, target: str | None) -> NoReturn:
    raise fault(step, error.min_code, error.gen_message(), account, target) from error
