"""Who calls: a person with a Kerberos ticket for our HTTP service, or root on the bridge's own machine.

The broker asks here, not web: what a caller may change decides who runs as whom.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bridge.errors import PolicyRefused, TokenRefused
from bridge.kerberos.negotiate import NegotiateAcceptor
from bridge.policy.names import ACCOUNT_PATTERN
from bridge.policy.roles import Role, Roles

_NAME: Final = re.compile(ACCOUNT_PATTERN, re.ASCII)
_UID: Final = r"[a-z_]?[a-z0-9_.-]{0,63}\([0-9]{1,10}\)"
_OPERATOR: Final = re.compile(rf"{_UID}( by {_UID})?", re.ASCII)
_LOCAL: Final = "local:"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, proven."""

    principal: str
    """``alice@REALM``, or ``local:root(0)`` for a process on this machine."""
    account: str | None
    """The posix account whose owner this is: that of a principal with one component, in the cluster's realm."""
    roles: frozenset[Role]
    reply: bytes = b""
    """Our side of Negotiate, for the answer's header."""

    @property
    def is_local(self) -> bool:
        """Whether it is a process on this machine, and not a person who has shown a ticket."""
        return self.principal.startswith(_LOCAL)

    def require(self, *roles: Role) -> None:
        """Pass for a caller with one of the roles; raises PolicyRefused ``caller.role``."""
        if self.roles.isdisjoint(roles):
            needed = " or ".join(role.value for role in roles)
            raise PolicyRefused(
                "caller.role",
                f"This needs the role {needed}, which you don't have.",
                "Ask the policy's authors to give it to you in roles.toml.",
                principal=self.principal,
                needed=needed,
            )

    def require_account(self) -> str:
        """Return the account of a caller who is a person; raises PolicyRefused ``caller.no_account``."""
        if self.account is None:
            raise PolicyRefused(
                "caller.no_account",
                "This is about one's own account, and your Kerberos principal is not a person's.",
                "Run kinit as yourself, then try again.",
                principal=self.principal,
            )
        return self.account


@dataclass(frozen=True, slots=True)
class Callers:
    """Finds out who calls; every part is passed in."""

    acceptor: NegotiateAcceptor
    realm: str
    """The accounts' realm; principals of any other are nobody here."""
    roles: Callable[[], Roles]
    """Those of the bundle that is active now."""

    def by_negotiate(self, authorization: str) -> Caller:
        """Return who made the value of an ``Authorization: Negotiate`` header; raises TokenRefused ``negotiate.*``."""
        if not authorization:
            raise TokenRefused(
                "negotiate.required",
                "This address answers people who show a Kerberos ticket.",
                "Run kinit, then call it with HTTP Negotiate, as ci-bridge and 'curl --negotiate -u :' do.",
            )
        shown = self.acceptor.accept_header(authorization)
        name, _, realm = shown.principal.rpartition("@")
        own = realm == self.realm and _NAME.fullmatch(name) is not None
        return Caller(shown.principal, name if own else None, self.roles().of(shown.principal), shown.reply)

    @staticmethod
    def by_socket(uid: int, operator: str) -> Caller:
        """Return the caller for a process on this machine that shows nothing but its uid, as the kernel says it.

        ``operator`` is how it names itself, for the record. Root can read the keytab and stop the service, so stopping
        and going on are nothing new to it; it is never two people, and web's user by itself is nobody.
        """
        shown = operator if _OPERATOR.fullmatch(operator) else f"({uid})"
        roles = {Role.OPERATOR, Role.VIEWER, Role.AUDITOR} if uid == 0 else set()
        return Caller(f"{_LOCAL}{shown}", None, frozenset(roles))
