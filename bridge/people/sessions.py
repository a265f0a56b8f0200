"""Sessions for browsers: a sealed token that stands for a proof given before, for a while. Runs in the broker.

No table has them. Each is bound to its principal, to how they showed who they are, and to the principal's epoch in the
register; ending all of somebody's sessions is going to the next epoch. A session idle for 30 minutes is over, since its
token is; it is made anew while it is used, and never beyond 8 hours after the proof (OWASP ASVS 4.0, 3.3.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from bridge.access import SessionEpoch
from bridge.audit.record import RecordType
from bridge.errors import PolicyRefused, RequestRefused, TokenRefused
from bridge.people.acts import Acts, act_record
from bridge.people.caller import Caller, Method, session_over
from bridge.people.tokens import SealedToken, TokenSeal
from bridge.policy.roles import Role
from bridge.references import new_reference
from bridge.sealed import SealedRegister

LIFE: Final = timedelta(hours=8)
"""After it a person has to show who they are again, whatever they do."""

IDLE: Final = timedelta(minutes=30)

RENEW_AFTER: Final = timedelta(minutes=5)
"""A token that is younger is not made anew: pages ask for many things at once."""

PURPOSE: Final = "session"

_CLOCKS: Final = timedelta(seconds=30)
"""The clocks of two brokers may differ by this much."""

_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}(/[A-Za-z0-9_.-]{1,64})?@[A-Z0-9][A-Z0-9.-]{0,126}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Session:
    """A session that is in force."""

    principal: str
    session_id: str
    """Also the reference of the record of its opening."""
    issuer: str | None
    """Of the provider that vouched for the person; None where they showed a ticket."""
    ends_at: datetime
    """Whatever happens."""
    renewed: str | None = field(default=None, repr=False)
    """The token to go on with, where the one that was shown is not fresh any more."""


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """What the browser gets, once."""

    token: str = field(repr=False)
    session_id: str
    principal: str
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Sessions:
    """Opens, knows and ends sessions; every part is passed in."""

    register: SealedRegister
    acts: Acts
    seal: TokenSeal
    clock: Callable[[], datetime]

    def open(self, caller: Caller) -> OpenedSession:
        """Open a session for whoever has just shown who they are.

        Raises PolicyRefused ``caller.no_new_session`` for those who show a session, an API token, or only a process.
        """
        with self.acts.refusals(RecordType.ACCESS, "open_session", caller.principal):
            if caller.method not in (Method.NEGOTIATE, Method.OIDC):
                raise PolicyRefused(
                    "caller.no_new_session",
                    "A session begins with a Kerberos ticket or a sign-in, and with nothing else.",
                    "Show a ticket, or sign in at your identity provider, then begin the session.",
                    method=caller.method,
                )
            now, session_id = self.clock(), new_reference()
            # Read before it is used: where all sessions are ended meanwhile, this one is ended with them.
            epoch = self.register.read().session_epoch(caller.principal)
            token = self._token(caller.principal, session_id, caller.issuer, epoch, now, now)
            with self.acts.ledger.begin() as tx:
                tx.append(
                    act_record(RecordType.ACCESS, "session_opened", caller.principal, session_id, {**caller.proof})
                )
        return OpenedSession(token, session_id, caller.principal, now + LIFE)

    def find(self, token: str) -> Session:
        """Return the session of a token; raises TokenRefused ``caller.session`` for whatever is none, or over."""
        now = self.clock()
        try:
            facts = self.seal.open(PURPOSE, token, now)
        except TokenRefused as error:
            raise session_over(error.code) from error
        principal, began = str(facts["principal"]), datetime.fromtimestamp(int(facts["began"]), UTC)
        ends_at = began + LIFE
        if not began - _CLOCKS <= now < ends_at:
            raise session_over("life")
        epoch = int(facts["epoch"])
        if epoch != self.register.read().session_epoch(principal):
            raise session_over("epoch")
        session_id, issuer = str(facts["session_id"]), str(facts["issuer"]) or None
        renewed = None
        if _is_stale(facts, now, ends_at):
            renewed = self._token(principal, session_id, issuer, epoch, began, now)
        return Session(principal, session_id, issuer, ends_at, renewed)

    def close_all(self, caller: Caller, principal: str | None = None) -> SessionEpoch:
        """End all of one's own sessions, or as an operator all of somebody's; also those that nobody knows of.

        Raises PolicyRefused ``caller.not_a_person``, ``caller.role``, RequestRefused ``session.principal``.
        """
        with self.acts.refusals(RecordType.ACCESS, "close_sessions", caller.principal):
            whose = caller.principal if principal is None else principal
            if whose == caller.principal:
                caller.require_person()
            else:
                caller.require(Role.OPERATOR)
            if _PRINCIPAL.fullmatch(whose) is None:
                raise RequestRefused(
                    "session.principal", "This is no Kerberos principal.", "Name one in full, as alice@EXAMPLE.ORG."
                )
            with self.register.begin() as (tx, register):
                epoch = SessionEpoch(whose, register.session_epoch(whose) + 1, caller.principal, self.clock())
                tx.put_session_epoch(epoch)
                facts: dict[str, str | int | bool] = {**caller.proof, "principal": whose, "epoch": epoch.epoch}
                reference = new_reference()
                tx.append(act_record(RecordType.ACCESS, "sessions_ended", caller.principal, reference, facts))
            return epoch

    def _token(
        self, principal: str, session_id: str, issuer: str | None, epoch: int, began: datetime, now: datetime
    ) -> str:
        facts: dict[str, str | int] = {
            "principal": principal,
            "session_id": session_id,
            "issuer": issuer or "",
            "epoch": epoch,
            "began": int(began.timestamp()),
        }
        return self.seal.make(PURPOSE, facts, min(now + IDLE, began + LIFE))


def _is_stale(facts: SealedToken, now: datetime, ends_at: datetime) -> bool:
    """Whether a token should be made anew, and a new one would last longer."""
    expires = datetime.fromtimestamp(int(facts["expires"]), UTC)
    return expires < ends_at - timedelta(seconds=1) and expires - now < IDLE - RENEW_AFTER
