"""Throws and lifts kill switches, on record and under the broker's seal. Runs in the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bridge.audit import kills
from bridge.audit.record import RecordType
from bridge.errors import RequestRefused
from bridge.model import KillScope, KillSwitch
from bridge.people.acts import Acts
from bridge.people.callers import Caller
from bridge.people.reason import checked_reason
from bridge.policy.roles import Role
from bridge.references import new_reference
from bridge.sealed import SealedRegister

_BY_NUMBER: Final = frozenset({KillScope.USER, KillScope.PROJECT, KillScope.RUNNER})


@dataclass(frozen=True, slots=True)
class KillDesk:
    """Every part is passed in."""

    register: SealedRegister
    acts: Acts
    issuers: frozenset[str]
    clock: Callable[[], datetime]

    def throw(
        self,
        caller: Caller,
        scope: KillScope,
        reason: str,
        *,
        issuer: str | None,
        number: int | None,
        account: str | None,
    ) -> tuple[KillSwitch, bool]:
        """Put a kill switch in force; returns it and True, or the older one that stops just the same and False.

        For operators, and for whoever runs a command on this machine as the service's user: stopping harms nobody
        whom stopping the service would not. Raises PolicyRefused ``caller.role``, RequestRefused ``kill.*``.
        """
        with self.acts.refusals(RecordType.KILL, "throw", caller.principal):
            if not caller.is_local:
                caller.require(Role.OPERATOR)
            self._require_target(scope, issuer, number, account)
            switch = KillSwitch(
                new_reference(), scope, issuer, number, account, _checked(reason), caller.principal, self.clock()
            )
            with self.register.begin() as (tx, _):
                in_force = tx.kill(switch)
                if in_force is switch:
                    tx.append(kills.record(switch, "thrown", caller.principal, switch.reason, caller.proof))
            return in_force, in_force is switch

    def lift(self, caller: Caller, switch_id: str, reason: str) -> KillSwitch:
        """Lift a kill switch, as an operator; raises NotFound ``kill.unknown``, Conflict ``kill.lifted``."""
        with self.acts.refusals(RecordType.KILL, "lift", caller.principal):
            caller.require(Role.OPERATOR)
            caller.require_bound()
            checked = _checked(reason)
            with self.register.begin() as (tx, _):
                lifted = tx.lift(switch_id, caller.principal)
                tx.append(kills.record(lifted, "lifted", caller.principal, checked, caller.proof))
            return lifted

    def _require_target(self, scope: KillScope, issuer: str | None, number: int | None, account: str | None) -> None:
        """A switch with a misspelt target would stop nobody, and look as if it did."""
        has_issuer = scope is KillScope.ISSUER or scope in _BY_NUMBER
        fits = (
            (issuer in self.issuers if has_issuer else issuer is None)
            and (number is not None and number > 0 if scope in _BY_NUMBER else number is None)
            and (bool(account) if scope is KillScope.ACCOUNT else account is None)
        )
        if not fits:
            raise RequestRefused(
                "kill.target",
                "What this kill switch is to stop is not clear.",
                "Name a GitLab of the settings and the number there, or the account, as its scope needs it.",
            )


def _checked(reason: str) -> str:
    return checked_reason(reason, "kill.reason", "A kill switch needs a reason.")
