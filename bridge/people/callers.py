"""Who calls: a person with a ticket, a sign-in or a session; a program with an API token; or root on this machine.

The broker asks here, not web: what a caller may change decides who runs as whom. Each kind of credential has a form of
its own, letter by letter, so that none is ever tried as another. Roles are those of the moment, whatever was shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import structlog

from bridge.access import ApiToken
from bridge.errors import Outage, Refused, TokenRefused
from bridge.kerberos.negotiate import NegotiateAcceptor
from bridge.model import UnverifiedToken
from bridge.oidc.people import PeopleVerifier
from bridge.people.api_tokens import ApiTokens
from bridge.people.caller import LOCAL, Caller, Method, session_over, unknown
from bridge.people.sessions import Sessions
from bridge.policy.names import ACCOUNT_PATTERN
from bridge.policy.roles import Role, Roles

__all__ = ["Caller", "Callers", "Method"]

_NAME: Final = re.compile(ACCOUNT_PATTERN, re.ASCII)
_UID: Final = r"[a-z_]?[a-z0-9_.-]{0,63}\([0-9]{1,10}\)"
_OPERATOR: Final = re.compile(rf"{_UID}( by {_UID})?", re.ASCII)
_API_TOKEN: Final = re.compile(r"cib_[A-Za-z0-9_-]{43}", re.ASCII)
_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_SESSION: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}", re.ASCII)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Callers:
    """Finds out who calls; every part is passed in, and a kind of credential without its part is nobody's."""

    acceptor: NegotiateAcceptor
    realm: str
    """The accounts' realm; principals of any other are nobody here."""
    roles: Callable[[], Roles]
    """Those of the bundle that is active now."""
    clock: Callable[[], datetime] | None = None
    tokens: ApiTokens | None = None
    sessions: Sessions | None = None
    people: PeopleVerifier | None = None

    def by_authorization(self, authorization: str, binding: bytes | None = None) -> Caller:
        """Return who made the value of an ``Authorization`` header; ``Session`` is what web makes of its cookie.

        ``binding`` names the request, where a ticket may be bound to it. Raises PolicyRefused ``negotiate.unbound`` for
        one that was made for another, TokenRefused ``negotiate.*``, ``caller.unknown`` or ``caller.session``, and
        Outage where a credential can't be checked.
        """
        scheme, _, shown = authorization.partition(" ")
        match scheme.lower():
            case "bearer" if _API_TOKEN.fullmatch(shown):
                return self._by_api_token(shown)
            case "bearer" if _JWT.fullmatch(shown):
                return self._by_sign_in(shown)
            case "bearer":
                raise unknown()
            case "session":
                return self._by_session(shown)
        return self.by_negotiate(authorization, binding)

    def by_negotiate(self, authorization: str, binding: bytes | None = None) -> Caller:
        """Return who made the value of an ``Authorization: Negotiate`` header; raises TokenRefused ``negotiate.*``."""
        if not authorization:
            raise TokenRefused(
                "negotiate.required",
                "This address answers people who show a Kerberos ticket.",
                "Run kinit, then call it with HTTP Negotiate, as ci-bridge and 'curl --negotiate -u :' do.",
            )
        shown = self.acceptor.accept_header(authorization, binding, demanded=False)
        return Caller(
            shown.principal,
            self._account(shown.principal),
            self.roles().of(shown.principal),
            shown.reply,
            Method.NEGOTIATE,
            bound=shown.bound,
        )

    @staticmethod
    def by_socket(uid: int, operator: str) -> Caller:
        """Return the caller for a process on this machine that shows nothing but its uid, as the kernel says it.

        ``operator`` is how it names itself, for the record. Root can read the keytab and stop the service, so stopping
        and going on are nothing new to it; it is never two people, and web's user by itself is nobody.
        """
        shown = operator if _OPERATOR.fullmatch(operator) else f"({uid})"
        roles = {Role.OPERATOR, Role.VIEWER, Role.AUDITOR} if uid == 0 else set()
        return Caller(f"{LOCAL}{shown}", None, frozenset(roles), method=Method.SOCKET)

    def _by_api_token(self, secret: str) -> Caller:
        """A program has no account of its own, and never more than its principal has now."""
        if self.tokens is None:
            raise unknown()
        token = self.tokens.find(secret)
        return Caller(token.principal, None, self._scoped(token), method=Method.API_TOKEN, token_id=token.token_id)

    def _scoped(self, token: ApiToken) -> frozenset[Role]:
        return frozenset(role for role in self.roles().of(token.principal) if role.value in token.scopes)

    def _by_sign_in(self, shown: str) -> Caller:
        if self.people is None or self.clock is None:
            raise unknown()
        try:
            person = self.people.verify(UnverifiedToken(shown), self.clock())
        except Refused as error:
            # Which check it was is for the operators of this machine; the token is in no log.
            log.info("caller.refused", method=Method.OIDC.value, code=error.code, context=dict(error.context))
            raise unknown() from error
        except Outage as error:
            raise Outage(
                "caller.provider_down",
                "The identity provider's keys can't be had, so that its tokens can't be checked.",
                "Try again in a few minutes, or show a Kerberos ticket.",
                cause=error.code,
            ) from error
        return self._vouched(person.principal, person.issuer, Method.OIDC)

    def _by_session(self, shown: str) -> Caller:
        if self.sessions is None or _SESSION.fullmatch(shown) is None:
            raise session_over("form")
        session = self.sessions.find(shown)
        if session.issuer is not None:
            caller = self._vouched(session.principal, session.issuer, Method.SESSION)
        else:
            principal = session.principal
            caller = Caller(principal, self._account(principal), self.roles().of(principal), method=Method.SESSION)
        return replace(caller, token_id=session.session_id, renewed=session.renewed)

    def _vouched(self, principal: str, issuer: str, method: Method) -> Caller:
        """Whoever a provider vouches for, as long as the settings name it."""
        provider = None if self.people is None else self.people.provider(issuer)
        if provider is None:
            raise session_over("provider")
        account = self._account(principal) if provider.owns_accounts else None
        return Caller(principal, account, self.roles().of(principal), method=method, issuer=issuer)

    def _account(self, principal: str) -> str | None:
        name, _, realm = principal.rpartition("@")
        return name if realm == self.realm and _NAME.fullmatch(name) is not None else None
