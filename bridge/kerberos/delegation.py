"""The exchange itself: S4U2Self, then S4U2Proxy for each service, the person's part in caches that belong to one call.

Nothing here decides whether it may be done; ``impersonation`` does. python-gssapi's lower layer is used, since its
upper one keeps an error back where there is a token too, and costs a tenth of the whole. Stores are given in bytes
only: of text it passes on pointers to copies that are gone by then, and another cache is used (seen).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import ExitStack
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


class Delegation:
    """One thread's way to the KDC: its context of libkrb5, and the bridge's own TGT made ready; not safe in threads.

    The TGT's cache is kept for the thread's next call, as it is only read (GSSAPI gives KRB5_GC_NO_STORE with S4U2Self,
    s4u_gss_glue.c), and goes with the TGT or the thread. Whatever is of a person is in caches that belong to one call.
    """

    def __init__(self, bridge: str) -> None:
        """Take the bridge's principal with realm; as long as this lives, krb5.conf is not parsed anew at each call."""
        self._bridge = bridge
        self._context = krb5.init_context()
        self._caches = ExitStack()
        self._ticket: BridgeTicket | None = None
        self._own: raw.Creds | None = None
        weakref.finalize(self, self._caches.close)

    def delegate(self, ticket: BridgeTicket, account: str, user: str, servers: Sequence[str]) -> bytes:
        """Give the tickets of ``user`` for ``servers`` in file format, with their evidence: for ``bundle.strip`` only.

        user, servers: principals with realm. account: whom to name in errors. Raises the errors of ``faults``, and
        krb5.Krb5Error where the library itself fails.
        """
        person = self._transition(ticket, account, user)
        for server in servers:
            _proxy(person, account, server)
        with memory.receiving(self._context) as cache:
            raw.store_cred_into(
                {b"ccache": cache.name}, person, usage="initiate", mech=_KRB5, overwrite=True, set_default=False
            )
            _require_person(user, cache.owner())
            return cache.tickets(user, servers)

    def _transition(self, ticket: BridgeTicket, account: str, user: str) -> raw.Creds:
        """S4U2Self: a credential of ``user`` (MS-SFU section 3.1.5.1.1)."""
        try:
            name = raw.import_name(user.encode(), _PRINCIPAL)
            return raw.acquire_cred_impersonate_name(self._ready(ticket), name, None, [_KRB5], "initiate").creds
        except GSSError as error:
            _raise(Step.PROTOCOL_TRANSITION, error, account, None)

    def _ready(self, ticket: BridgeTicket) -> raw.Creds:
        """The bridge's credential with this TGT and nothing else; the one before it is destroyed."""
        if self._own is None or self._ticket is not ticket:
            self._own = self._ticket = None
            self._caches.close()
            cache = self._caches.enter_context(memory.private_cache(self._bridge, [ticket.credential], self._context))
            self._own = raw.acquire_cred_from(
                {b"ccache": cache.encode()}, name=None, lifetime=None, mechs=[_KRB5], usage="initiate"
            ).creds
            self._ticket = ticket
        return self._own


def _proxy(person: raw.Creds, account: str, server: str) -> None:
    """S4U2Proxy (MS-SFU section 3.1.5.2.1): the ticket stays in ``person``; the context that fetched it is dropped."""
    try:
        name = raw.import_name(server.encode(), _PRINCIPAL)
        raw.init_sec_context(name, person, None, _KRB5, _INTEGRITY, None)
    except GSSError as error:
        _raise(Step.CONSTRAINED_DELEGATION, error, account, server)


def _require_person(user: str, owner: str) -> None:
    """Raise Defect where the credential is not of ``user``: libkrb5 files what it got under its own name for it."""
    if owner != user:
        raise Defect(
            "kerberos.wrong_person",
            "The KDC gave a credential of somebody else.",
            "Give the reference to the operators of the bridge; nothing was handed out.",
            expected=user,
            got=owner,
        )


def _raise(step: Step, error: GSSError, account: str, target: str | None) -> NoReturn:
    raise fault(step, error.min_code, error.gen_message(), account, target) from error
