"""Cancels a run at an operator's word, on record; web's processes look for it and end the run. Runs in the broker.

The row is under no seal: it can only stop a run, and a retry of the same job by the runner is stopped again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from bridge.audit.record import RecordType
from bridge.lifecycle import require_live
from bridge.listing import Cancel
from bridge.model import RunId
from bridge.people.acts import Acts, act_record
from bridge.people.callers import Caller
from bridge.people.reason import checked_reason
from bridge.policy.roles import Role
from bridge.references import new_reference


@dataclass(frozen=True, slots=True)
class CancelDesk:
    """Every part is passed in."""

    acts: Acts
    clock: Callable[[], datetime]

    def cancel(self, caller: Caller, run_id: RunId, reason: str) -> Cancel:
        """Have a run ended, as an operator; a run that is cancelled already stays cancelled by the first word.

        Raises PolicyRefused ``caller.role``, RequestRefused ``run.cancel_reason``, NotFound ``run.unknown``, Conflict
        ``run.ended``.
        """
        with self.acts.refusals(RecordType.RUN, "cancel", caller.principal):
            caller.require(Role.OPERATOR)
            cancel = Cancel(
                run_id,
                caller.principal,
                checked_reason(reason, "run.cancel_reason", "A cancel needs a reason."),
                self.clock(),
            )
            with self.acts.ledger.begin() as tx:
                require_live(tx.run(run_id).state)
                in_force = tx.cancel_run(cancel)
                if in_force is cancel:
                    facts: dict[str, str | int | bool] = {"reason": cancel.reason, **caller.proof}
                    record = act_record(RecordType.RUN, "cancel", caller.principal, new_reference(), facts)
                    tx.append(dataclasses.replace(record, run_id=run_id))
            return in_force
