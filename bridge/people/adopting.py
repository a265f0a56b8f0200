"""Takes over a register whose seal is not good any more: a lost key, or a change that somebody has looked into."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.audit.record import Phase, Record, RecordType
from bridge.errors import PolicyRefused
from bridge.people.acts import Acts
from bridge.people.callers import Caller
from bridge.people.reason import checked_reason
from bridge.policy.roles import Role
from bridge.references import new_reference
from bridge.register import LinkState, Register
from bridge.sealed import SealedRegister


@dataclass(frozen=True, slots=True)
class AdoptionDesk:
    """Every part is passed in."""

    register: SealedRegister
    acts: Acts

    def adopt(self, caller: Caller, reason: str) -> Register:
        """Seal what the tables say, whoever wrote it; for root on the broker's machine, who can read the key anyway."""
        with self.acts.refusals(RecordType.SERVICE, "adopt register", caller.principal):
            if not caller.is_local or Role.OPERATOR not in caller.roles:
                raise PolicyRefused(
                    "register.root_only",
                    "Only root on the broker's machine takes over a register as it is.",
                    "Log in there, look at what the tables say, then run 'ci-bridge db adopt-register' as root.",
                    principal=caller.principal,
                )
            why = checked_reason(reason, "register.reason", "Taking a register over needs a reason for the record.")
            with self.register.adopt() as (tx, register):
                detail: dict[str, str | int | bool] = {
                    "act": "register adopted",
                    "by": caller.principal,
                    "reason": why,
                    "revision": register.revision,
                    "active_links": sum(one.state is LinkState.ACTIVE for one in register.links),
                    "consents": len(register.consents),
                    "switches_in_force": len(register.switches_in_force),
                }
                tx.append(Record(RecordType.SERVICE, Phase.OK, new_reference(), detail=detail))
            return register
