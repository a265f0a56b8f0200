"""API tokens for programs: made by a person for themselves, with some of their roles, for a time. Runs in the broker.

The secret is shown once and nowhere kept; the register has its SHA-256, which for 256 random bits is as good as any
slow hash. What a token may do is never more than what its principal may do at that moment.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from bridge.access import MAX_TOKEN_LIFE, ApiToken
from bridge.audit.ledger import Ledger, Tx
from bridge.audit.record import RecordType
from bridge.errors import Conflict, NotFound, RequestRefused
from bridge.people.acts import Acts, act_record
from bridge.people.caller import Caller, unknown
from bridge.policy.roles import Role
from bridge.references import new_reference
from bridge.sealed import SealedRegister

PREFIX: Final = "cib_"
"""Lets scanners of repositories and logs know one when they see it."""

SECRET_BYTES: Final = 32
MAX_NOTE: Final = 200
MAX_IN_FORCE: Final = 32
"""Of one principal."""

_USE_NOTED_EVERY: Final = timedelta(hours=1)
_NOBODYS: Final = hashlib.sha256(b"").hexdigest()
"""Stands for the hash of a token that there is not."""


@dataclass(frozen=True, slots=True)
class ShownToken:
    """An API token as people may see it: all but the hash of its secret."""

    token_id: str
    principal: str
    scopes: tuple[str, ...]
    note: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None
    """The hour in which it was last used; web can write it, so that nothing is decided by it."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """What its owner gets, once."""

    token: ShownToken
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ApiTokens:
    """Makes, finds and revokes API tokens; every part is passed in."""

    register: SealedRegister
    acts: Acts
    ledger: Ledger
    clock: Callable[[], datetime]
    _noted: dict[str, datetime] = field(default_factory=dict)
    """The hour that this process has written down last, by token; at most one for each token that is in force."""

    def find(self, secret: str) -> ApiToken:
        """Return the token of a secret; raises TokenRefused ``caller.unknown`` for all that do not count.

        A secret that is unknown, expired or revoked costs the same work, and gets the same answer.
        """
        shown = _hash(secret)
        token = self.register.read().api_token(shown)
        same = hmac.compare_digest(shown, _NOBODYS if token is None else token.secret_hash)
        if token is None or not same or not token.in_force(self.clock()):
            raise unknown()
        self._note_use(token)
        return token

    def create(self, caller: Caller, scopes: Sequence[str], days: int, note: str) -> NewToken:
        """Make a token for the caller, good for some of their roles and so many days.

        Raises PolicyRefused ``caller.not_a_person`` or ``caller.role``, RequestRefused ``api_token.*``, Conflict
        ``api_token.too_many``.
        """
        with self.acts.refusals(RecordType.ACCESS, "create_token", caller.principal):
            caller.require_person()
            checked, now = _scopes(scopes), self.clock()
            for scope in checked:
                caller.require(scope)
            secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
            token = ApiToken(
                token_id=new_reference(),
                secret_hash=_hash(secret),
                principal=caller.principal,
                scopes=tuple(scope.value for scope in checked),
                note=_note(note),
                created_by=caller.principal,
                created_at=now,
                expires_at=now + _life(days),
            )
            with self.register.begin() as (tx, register):
                if sum(_is_of(one, caller) and one.in_force(now) for one in register.api_tokens) >= MAX_IN_FORCE:
                    raise _too_many()
                tx.put_api_token(token)
                _record(tx, token, "token_created", caller)
            return NewToken(_shown(token, None), secret)

    def listed(self, caller: Caller) -> tuple[ShownToken, ...]:
        """Return the caller's own tokens, or everybody's for operators and auditors; oldest first."""
        with self.ledger.read() as view:
            register, uses = self.register.current(view), view.api_token_uses()
        sees_all = not caller.roles.isdisjoint({Role.OPERATOR, Role.AUDITOR})
        found = [one for one in register.api_tokens if sees_all or _is_of(one, caller)]
        return tuple(_shown(one, uses.get(one.token_id)) for one in found)

    def revoke(self, caller: Caller, token_id: str) -> ShownToken:
        """End a token: one's own, or any as an operator; one that was ended before stays as it is.

        Raises NotFound ``api_token.unknown``, also for a token that is somebody else's.
        """
        with self.acts.refusals(RecordType.ACCESS, "revoke_token", caller.principal):
            with self.register.begin() as (tx, register):
                token = next((one for one in register.api_tokens if one.token_id == token_id), None)
                may = Role.OPERATOR in caller.roles or (token is not None and caller.person and _is_of(token, caller))
                if token is None or not may:
                    raise _no_such(token_id)
                revoked = token
                if token.revoked_at is None:
                    revoked = replace(token, revoked_at=self.clock(), revoked_by=caller.principal)
                    tx.put_api_token(revoked)
                    _record(tx, revoked, "token_revoked", caller)
            return _shown(revoked, None)

    def _note_use(self, token: ApiToken) -> None:
        """Write down the hour, once for each hour: a program that calls all day must not write all day."""
        hour = self.clock().replace(minute=0, second=0, microsecond=0)
        if self._noted.get(token.token_id) != hour:
            with self.ledger.begin() as tx:
                tx.note_api_token_use(token.token_id, hour)
            self._noted[token.token_id] = hour


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _is_of(token: ApiToken, caller: Caller) -> bool:
    return token.principal == caller.principal


def _scopes(names: Sequence[str]) -> tuple[Role, ...]:
    try:
        roles = tuple(sorted({Role(name) for name in names}))
    except ValueError as error:
        raise _scope_refused() from error
    if not roles or len(roles) != len(names):
        raise _scope_refused()
    return roles


def _life(days: int) -> timedelta:
    if not 1 <= days <= MAX_TOKEN_LIFE.days:
        raise RequestRefused(
            "api_token.life",
            "An API token ends after a time that is said when it is made.",
            f"Ask for 1 to {MAX_TOKEN_LIFE.days} days.",
        )
    return timedelta(days=days)


def _note(text: str) -> str:
    if not text.strip() or len(text) > MAX_NOTE or not text.isprintable():
        raise RequestRefused(
            "api_token.note",
            "An API token needs a note that says what it is for.",
            f"Say so on one line of 1 to {MAX_NOTE} characters.",
        )
    return text.strip()


def _scope_refused() -> RequestRefused:
    return RequestRefused(
        "api_token.scopes",
        "An API token is for some of one's own roles, each named once.",
        f"Name one or more of {', '.join(role.value for role in Role)}.",
    )


def _too_many() -> Conflict:
    return Conflict(
        "api_token.too_many",
        f"You have {MAX_IN_FORCE} API tokens in force, which is the most.",
        "Revoke those that nothing uses.",
    )


def _no_such(token_id: str) -> NotFound:
    return NotFound(
        "api_token.unknown",
        "There is no such API token, or it is not yours.",
        "Look at the list of your API tokens for those that you have.",
        token=token_id,
    )


def _record(tx: Tx, token: ApiToken, act: str, caller: Caller) -> None:
    facts: dict[str, str | int | bool] = {
        **caller.proof,
        "principal": token.principal,
        "scopes": " ".join(token.scopes),
        "note": token.note,
        "expires_at": token.expires_at.isoformat(timespec="seconds"),
    }
    tx.append(act_record(RecordType.ACCESS, act, caller.principal, token.token_id, facts))


def _shown(token: ApiToken, last_used_at: datetime | None) -> ShownToken:
    members = ("token_id", "principal", "scopes", "note", "created_by", "created_at", "expires_at")
    return ShownToken(
        **{name: getattr(token, name) for name in members},
        revoked_at=token.revoked_at,
        revoked_by=token.revoked_by,
        last_used_at=last_used_at,
    )
