"""Gets service tickets in a person's name: S4U2Self, then S4U2Proxy for each target, stripped and checked.

Everything happens in caches in memory that belong to one call; the bridge's TGT is never written anywhere. The facts
behind each step (what an S4U cache holds, why the TGT sets the life, why names are compared) were measured; see
``bundle`` and ``initial``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn, Protocol

import gssapi
import krb5
from gssapi.raw.misc import GSSError

from bridge.errors import BridgeError, Defect, PolicyRefused, RequestRefused
from bridge.kerberos import bundle, memory
from bridge.kerberos.deadline import Deadline, Late
from bridge.kerberos.faults import Step, fault, unreachable
from bridge.kerberos.initial import InitialTickets
from bridge.kerberos.targets import account_principal, checked_realm, target_principal
from bridge.model import TicketBundle

MIN_LIFE_SECONDS: Final = 60
MAX_LIFE_SECONDS: Final = 7 * 24 * 3600
MAX_TARGETS: Final = 32

_CLOCK_ALLOWANCE: Final = timedelta(seconds=300)
"""The KDC's clock may differ from ours by this much (MIT's default clockskew) before its tickets look too long."""

_KRB5: Final = gssapi.MechType.kerberos
_PRINCIPAL: Final = gssapi.NameType.kerberos_principal


class Impersonator(Protocol):
    """What admission needs of Kerberos."""

    def tickets(self, account: str, targets: Sequence[str], lifetime_seconds: int) -> TicketBundle:
        """Give tickets of ``account`` for ``targets`` (``service/host``, no realm) that end within the lifetime.

        Raises PolicyRefused or RequestRefused where account or target may not be, Outage where the KDC is not there,
        Defect where the result broke a rule.
        """
        ...


class Impersonation:
    """Impersonator with the bridge's own principal and keytab. Safe in threads; holds TGTs in memory only."""

    def __init__(
        self,
        principal: str,
        keytab: str,
        realm: str,
        targets: Iterable[str],
        *,
        denied_accounts: Iterable[str] = (),
        deadline: Deadline | None = None,
    ) -> None:
        """Take the bridge's principal with realm, its keytab's path, and every target that any cluster lists."""
        self._principal = principal
        self._realm = checked_realm(realm)
        self._targets = frozenset(targets)
        self._denied = frozenset(denied_accounts)
        self._deadline = deadline or Deadline()
        self._initial = InitialTickets(principal, keytab)

    def tickets(self, account: str, targets: Sequence[str], lifetime_seconds: int) -> TicketBundle:
        """See Impersonator.tickets. Names are checked first: what may not be asked never reaches the KDC."""
        user = account_principal(account, self._realm, self._denied)
        servers = self._servers(targets)
        if not MIN_LIFE_SECONDS <= lifetime_seconds <= MAX_LIFE_SECONDS:
            raise _bad_life(lifetime_seconds)
        not_after = datetime.now(UTC) + timedelta(seconds=lifetime_seconds) + _CLOCK_ALLOWANCE
        try:
            data = self._deadline.run(lambda: self._obtain(account, user, servers, lifetime_seconds))
        except Late as late:
            raise unreachable(account, str(late)) from None
        except BridgeError as error:
            # A TGT that went bad (new key, KDC with a new database) must not fail every later request too.
            if not isinstance(error, PolicyRefused):
                self._initial.forget()
            raise
        return bundle.strip(data, user, servers, not_after)

    def _servers(self, targets: Sequence[str]) -> tuple[str, ...]:
        if not 0 < len(targets) <= MAX_TARGETS or len(set(targets)) != len(targets):
            raise _bad_targets(len(targets))
        servers = tuple(target_principal(target, self._realm) for target in targets)
        for target, server in zip(targets, servers, strict=True):
            # A ticket for the bridge itself is evidence, whatever a cluster lists.
            if target not in self._targets or server == self._principal:
                raise _target_not_listed(target)
        return servers

    def _obtain(self, account: str, user: str, servers: Sequence[str], life_seconds: int) -> bytes:
        try:
            ticket = self._initial.get(life_seconds)
            with memory.private_cache(self._principal, [ticket.credential]) as own:
                return _delegate(own, account, user, servers)
        except krb5.Krb5Error as error:
            raise fault(Step.INITIAL, error.err_code, str(error), account) from error


def _delegate(own: str, account: str, user: str, servers: Sequence[str]) -> bytes:
    """Give the S4U cache for ``user`` in file format, got with the bridge's credentials in the cache ``own``."""
    person = _transition(own, account, user)
    for server in servers:
        _proxy(person, account, server)
    with memory.private_cache(user) as result:
        person.store(store={"ccache": result}, usage="initiate", mech=_KRB5, overwrite=True, set_default=False)
        return memory.dump(result)


def _transition(own: str, account: str, user: str) -> gssapi.Credentials:
    """S4U2Self: a credential of ``user`` (MS-SFU section 3.1.5.1.1)."""
    try:
        bridge = gssapi.Credentials(mechs=[_KRB5], usage="initiate", store={"ccache": own})
        person = bridge.impersonate(name=gssapi.Name(user, _PRINCIPAL), lifetime=None, mechs=[_KRB5], usage="initiate")
        name = str(person.name)
    except GSSError as error:
        _raise(Step.PROTOCOL_TRANSITION, error, account, None)
    if name != user:
        raise Defect(
            "kerberos.wrong_person",
            "The KDC gave a credential of somebody else.",
            "Give the reference to the operators of the bridge; nothing was handed out.",
            expected=user,
            got=name,
        )
    return person


def _proxy(person: gssapi.Credentials, account: str, server: str) -> None:
    """S4U2Proxy (MS-SFU section 3.1.5.2.1): the ticket stays in ``person``; the context that fetched it is dropped."""
    try:
        context = gssapi.SecurityContext(
            name=gssapi.Name(server, _PRINCIPAL),
            creds=person,
            lifetime=None,
            flags=int(gssapi.RequirementFlag.integrity),
            mech=_KRB5,
            usage="initiate",
        )
        # python-gssapi otherwise keeps an error back where there is a token too.
        context.__DEFER_STEP_ERRORS__ = False  # type: ignore[attr-defined]
        context.step()
    except GSSError as error:
        _raise(Step.CONSTRAINED_DELEGATION, error, account, server)


def _raise(step: Step, error: GSSError, account: str, target: str | None) -> NoReturn:
    raise fault(step, error.min_code, error.gen_message(), account, target) from error


def _bad_life(seconds: int) -> RequestRefused:
    return RequestRefused(
        "kerberos.lifetime",
        f"Tickets can live from {MIN_LIFE_SECONDS} to {MAX_LIFE_SECONDS} seconds.",
        "Correct ticket_minutes in the limits.",
        asked=seconds,
    )


def _bad_targets(count: int) -> RequestRefused:
    return RequestRefused(
        "kerberos.targets",
        f"Tickets are given for 1 to {MAX_TARGETS} different services at once.",
        "Correct the cluster's list of targets.",
        count=count,
    )


def _target_not_listed(target: str) -> PolicyRefused:
    return PolicyRefused(
        "kerberos.target_not_listed",
        f"No cluster lists the service '{target}'.",
        "Add the service to the cluster's targets if CI jobs are to reach it.",
        target=target,
    )
