"""Asks a live KDC what it would let the bridge do, also beyond what the bridge itself would ever ask.

For ``ci-bridge doctor``: the guards of ``targets`` and ``Impersonation`` are left out on purpose, so that the KDC's own
are seen. Tickets that are given are dropped within the call; only yes or no leaves this module.

The delegation list is asked in the bridge's own name: the evidence ticket for S4U2Proxy (MS-SFU section 3.2.5.2) is an
ordinary ticket from the bridge to itself. So no person is impersonated to read it, and the answer does not depend on
the right of protocol transition, which is asked for separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

import gssapi
import krb5
from gssapi.raw.misc import GSSError

from bridge.errors import BridgeError
from bridge.kerberos import ccache, memory
from bridge.kerberos.deadline import Deadline, Late
from bridge.kerberos.faults import Step, fault, unreachable
from bridge.kerberos.ownkeys import initial
from bridge.kerberos.ticket import open_part

_KRB5: Final = gssapi.MechType.kerberos
_PRINCIPAL: Final = gssapi.NameType.kerberos_principal
_PAC: Final = b"urn:mspac:"
_LIFE_SECONDS: Final = 300

_T = TypeVar("_T")


class Reply(StrEnum):
    """What the KDC said."""

    GIVEN = "given"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """It has no such principal."""
    CLOSED = "closed"
    """The principal is locked or has expired."""
    UNUSABLE = "unusable"
    """The KDC makes no ticket for it: it has no key of a kind that both sides take, or it requires pre-authentication,
    and the bridge's own ticket shows none. libkrb5 gives the same code for both, and not the KDC's words."""


_REPLIES: Final = {
    1: Reply.CLOSED,
    6: Reply.UNKNOWN,
    7: Reply.UNKNOWN,
    12: Reply.REFUSED,
    13: Reply.REFUSED,
    14: Reply.UNUSABLE,
    16: Reply.REFUSED,
    18: Reply.CLOSED,
    60: Reply.UNUSABLE,
}
"""Codes of RFC 4120 section 7.5.9: expired, unknown client, unknown server, policy, bad option, no enctype in common,
no support, revoked, and the generic error with which MIT 1.20 answers for a service that has nothing but an RC4 key."""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """How the KDC makes tickets for a service."""

    ticket_enctype: int
    session_enctype: int
    kvno: int | None


class Probe:
    """Questions to the KDC with one TGT of the bridge. Made by ``probing``; every method raises Outage ``kerberos.*``
    where the KDC can't be asked or its answer is none of ``Reply``."""

    def __init__(self, principal: str, keytab: str, cache: str, deadline: Deadline) -> None:
        self._principal = principal
        self._keytab = keytab
        self._cache = cache
        self._deadline = deadline
        self._evidence: gssapi.Credentials | None = None

    def reach(self, target: str) -> Reply:
        """Whether S4U2Proxy to ``service/host@REALM`` is allowed to the bridge, with evidence of its own."""
        return self._asked(lambda: _context(self._own_evidence(), target).step(), Step.CONSTRAINED_DELEGATION, target)

    def act_as(self, person: str, target: str) -> Reply:
        """Whether S4U2Self for ``person`` (principal with realm) and then S4U2Proxy to ``target`` is allowed."""

        def ask() -> None:
            own = gssapi.Credentials(mechs=[_KRB5], usage="initiate", store={"ccache": self._cache})
            name = gssapi.Name(person, _PRINCIPAL)
            _context(own.impersonate(name=name, lifetime=None, mechs=[_KRB5], usage="initiate"), target).step()

        return self._asked(ask, Step.PROTOCOL_TRANSITION, target)

    def service(self, target: str) -> ServiceFacts | Reply:
        """Get an ordinary ticket of the bridge's own for a service and read what is not encrypted of it, or say no."""
        reply = self._asked(lambda: _context(self._own(), target).step(), Step.CONSTRAINED_DELEGATION, target)
        if reply is not Reply.GIVEN:
            return reply
        server = ccache.Principal.of(target)
        for entry in ccache.parse(memory.dump(self._cache))[1]:
            if not entry.server.is_config and (part := open_part(entry.ticket)).server == server:
                return ServiceFacts(part.enctype, entry.enctype, part.kvno)
        raise fault(Step.CONSTRAINED_DELEGATION, 7, "the ticket is for another name", self._principal, target)

    def pac_buffers(self, service: str, keytab: str) -> frozenset[str]:
        """Send the bridge's own ticket to a service whose keytab is here, and name the parts of its PAC ([MS-PAC] 2.4).

        Given as MIT names them: ``client-info``, ``server-checksum``, or a number such as ``16`` (ticket signature) and
        ``19`` (full checksum). Empty where the ticket has no PAC.
        """

        def ask() -> frozenset[str]:
            keys: dict[str | bytes, str | bytes] = {"keytab": f"FILE:{keytab}", "rcache": "none:"}
            acceptor = gssapi.SecurityContext(
                creds=gssapi.Credentials(mechs=[_KRB5], usage="accept", store=keys), usage="accept"
            )
            acceptor.step(_context(self._own(), service).step())
            names = acceptor.initiator_name.attributes or {}
            return frozenset(name.removeprefix(_PAC).decode() for name in names if name.startswith(_PAC))

        return self._run(ask, service)

    def _own(self) -> gssapi.Credentials:
        return gssapi.Credentials(mechs=[_KRB5], usage="initiate", store={"ccache": self._cache})

    def _own_evidence(self) -> gssapi.Credentials:
        """Accept a context from ourselves: libkrb5 then gives a credential for S4U2Proxy (accept_sec_context.c)."""
        if self._evidence is None:
            both: dict[str | bytes, str | bytes] = {
                "ccache": self._cache,
                "keytab": f"FILE:{self._keytab}",
                "rcache": "none:",
            }
            acceptor = gssapi.SecurityContext(
                creds=gssapi.Credentials(mechs=[_KRB5], usage="both", store=both), usage="accept"
            )
            acceptor.step(_context(self._own(), self._principal).step())
            if acceptor.delegated_creds is None:
                raise fault(Step.CONSTRAINED_DELEGATION, 13, "the bridge's own ticket is not forwardable", "")
            self._evidence = acceptor.delegated_creds
        return self._evidence

    def _asked(self, call: Callable[[], object], step: Step, target: str) -> Reply:
        try:
            self._run(call, target, step)
        except BridgeError as error:
            code = error.context.get("krb5_code")
            if isinstance(code, int) and code in _REPLIES:
                return _REPLIES[code]
            raise
        return Reply.GIVEN

    def _run(self, call: Callable[[], _T], target: str, step: Step = Step.CONSTRAINED_DELEGATION) -> _T:
        try:
            return self._deadline.run(call)
        except Late as late:
            raise unreachable(self._principal, str(late)) from None
        except GSSError as error:
            raise fault(step, error.min_code, error.gen_message(), self._principal, target) from error
        except krb5.Krb5Error as error:
            raise fault(step, error.err_code, str(error), self._principal, target) from error


@contextmanager
def probing(principal: str, keytab: str, deadline: Deadline | None = None) -> Iterator[Probe]:
    """Give a Probe with a TGT of five minutes, which is gone at the end; raises Outage ``kerberos.*``.

    principal: the bridge's, with realm. keytab: path.
    """
    patience = deadline or Deadline()
    ticket = initial(principal, keytab, _LIFE_SECONDS, deadline=patience)
    with memory.private_cache(principal, [ticket]) as cache:
        yield Probe(principal, keytab, cache, patience)


def _context(credential: gssapi.Credentials, server: str) -> gssapi.SecurityContext:
    context = gssapi.SecurityContext(
        name=gssapi.Name(server, _PRINCIPAL),
        creds=credential,
        lifetime=None,
        flags=int(gssapi.RequirementFlag.integrity),
        mech=_KRB5,
        usage="initiate",
    )
    # python-gssapi otherwise keeps an error back where there is a token too.
    context.__DEFER_STEP_ERRORS__ = False  # type: ignore[attr-defined]
    return context
