"""A caller, proven: who it is, how that was shown, and what they may do."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from bridge.errors import PolicyRefused, TokenRefused
from bridge.policy.roles import Role

LOCAL: Final = "local:"


class Method(enum.StrEnum):
    """How somebody shows who they are."""

    NEGOTIATE = "negotiate"
    """A Kerberos ticket for this one request."""
    OIDC = "oidc"
    """A token of an identity provider that the settings name."""
    SESSION = "session"
    """A session, which one of the two above began."""
    API_TOKEN = "api_token"  # noqa: S105 - the name of a kind
    """The secret of a program."""
    SOCKET = "socket"
    """Nothing but the uid of a process on this machine."""


_OF_PEOPLE: Final = frozenset({Method.NEGOTIATE, Method.OIDC, Method.SESSION})


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
    method: Method = Method.SOCKET
    issuer: str | None = None
    """Of the identity provider that vouched for them, now or when the session began."""
    token_id: str | None = None
    """Of the API token, or of the session."""
    bound: bool = False
    """Whether a Kerberos ticket was shown that speaks for this very request and no other."""
    renewed: str | None = field(default=None, repr=False)
    """The session's next token, for the answer."""

    @property
    def is_local(self) -> bool:
        """Whether it is a process on this machine, and not a person who has shown a ticket."""
        return self.principal.startswith(LOCAL)

    @property
    def person(self) -> bool:
        """Whether a person is behind this request, and not a program on its own."""
        return self.method in _OF_PEOPLE

    @property
    def proof(self) -> dict[str, str]:
        """How it was shown who they are, for the record: ``method``, the credential's id, and who vouched for them."""
        known = {"method": self.method.value, "credential": self.token_id, "provider": self.issuer}
        return {name: value for name, value in known.items() if value is not None}

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
                method=self.method.value,
            )

    def require_person(self) -> None:
        """Pass for a person; raises PolicyRefused ``caller.not_a_person``."""
        if not self.person:
            raise PolicyRefused(
                "caller.not_a_person",
                "This needs a person, and neither an API token nor a process of this machine is one.",
                "Do it yourself, with a Kerberos ticket, a sign-in or a session of the console.",
                principal=self.principal,
                method=self.method.value,
            )

    def require_ticket(self) -> None:
        """Pass for a Kerberos ticket, shown with this very request; raises PolicyRefused ``caller.no_ticket``."""
        if self.method is not Method.NEGOTIATE:
            raise PolicyRefused(
                "caller.no_ticket",
                "This decides who can become you, and needs a Kerberos ticket with each step.",
                "Run kinit as yourself, then begin again with HTTP Negotiate, without the console's session.",
                principal=self.principal,
                method=self.method.value,
            )

    def require_bound(self) -> None:
        """Pass for a ticket that was made for this very request, and for root here; raises PolicyRefused.

        Everything else could be spent by whoever took web on another request than its owner's: ``caller.not_bound``.
        """
        if not self.bound and not self.is_local:
            raise PolicyRefused(
                "caller.not_bound",
                "This needs a Kerberos ticket that was made for this very request.",
                "Run kinit, then do it with the command ci-bridge; no browser and no other program makes such a one.",
                principal=self.principal,
                method=self.method.value,
            )

    def require_account(self) -> str:
        """Return the account of a caller who is a person; raises PolicyRefused ``caller.no_account``."""
        if self.account is None:
            raise PolicyRefused(
                "caller.no_account",
                "This is about one's own account, and what you have shown does not make you the owner of one.",
                "Run kinit as yourself, then try again.",
                principal=self.principal,
                method=self.method.value,
            )
        return self.account


def unknown() -> TokenRefused:
    """The one answer to every credential that does not count, whatever is wrong with it (T50)."""
    return TokenRefused(
        "caller.unknown",
        "The token that was shown does not count here.",
        "Show a Kerberos ticket, or a token that is in force and meant for the bridge.",
    )


def session_over(why: str) -> TokenRefused:
    """The one answer to every session that does not count; ``why`` is for the log only."""
    return TokenRefused("caller.session", "Your session is over.", "Sign in again.", why=why)
