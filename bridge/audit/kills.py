"""Kill switches: thrown and lifted on record, and asked in the transaction that writes an intent, so without a gap."""

from __future__ import annotations

from bridge.audit.ledger import Ledger, View
from bridge.audit.record import Phase, Record, RecordType
from bridge.errors import PolicyRefused
from bridge.model import Grant, KillScope, KillSwitch


def throw(ledger: Ledger, switch: KillSwitch) -> KillSwitch:
    """Put a kill switch in force, and its record in the log; returns the one in force, which may be an older one."""
    with ledger.begin() as tx:
        in_force = tx.kill(switch)
        if in_force is switch:
            tx.append(_record(switch, "thrown", switch.actor, switch.reason))
        return in_force


def lift(ledger: Ledger, switch_id: str, actor: str, reason: str) -> KillSwitch:
    """Lift a kill switch, on record; raises NotFound ``kill.unknown``, Conflict ``kill.lifted``."""
    with ledger.begin() as tx:
        lifted = tx.lift(switch_id, actor)
        tx.append(_record(lifted, "lifted", actor, reason))
        return lifted


def require_not_killed(view: View, grant: Grant) -> None:
    """Pass where no kill switch stops the grant; raises PolicyRefused ``killed.*``."""
    for switch in view.kill_switches():
        if stops(switch, grant):
            raise refusal(switch)


def stops(switch: KillSwitch, grant: Grant) -> bool:
    """Whether the switch is about this person, account, project or runner."""
    who = grant.identity
    match switch.scope:
        case KillScope.ALL:
            return True
        case KillScope.ACCOUNT:
            return switch.account == grant.account.name
        case KillScope.ISSUER:
            return switch.issuer == who.issuer
        case KillScope.USER:
            return (switch.issuer, switch.number) == (who.issuer, who.user_id)
        case KillScope.RUNNER:
            return (switch.issuer, switch.number) == (who.issuer, who.runner_id)
        case KillScope.PROJECT:
            return switch.issuer == who.issuer and switch.number in (who.project_id, who.job_project_id)


def refusal(switch: KillSwitch) -> PolicyRefused:
    """What the people it stops are told: that it is so, and never why."""
    match switch.scope:
        case KillScope.ALL:
            return _killed("all", "All jobs on the cluster are", switch)
        case KillScope.ACCOUNT:
            return _killed("account", "Jobs as this account are", switch)
        case KillScope.ISSUER:
            return _killed("issuer", "Jobs of this GitLab are", switch)
        case KillScope.USER:
            return _killed("user", "Jobs of this GitLab user are", switch)
        case KillScope.RUNNER:
            return _killed("runner", "Jobs of this runner are", switch)
        case KillScope.PROJECT:
            return _killed("project", "Jobs of this project are", switch)


def _killed(scope: str, whose: str, switch: KillSwitch) -> PolicyRefused:
    return PolicyRefused(
        f"killed.{scope}",
        f"{whose} stopped by the administrators of the bridge.",
        "Ask them, with the reference; once they have lifted the stop, run the job again.",
        switch=switch.switch_id,
    )


def _record(switch: KillSwitch, act: str, actor: str, reason: str) -> Record:
    target = {name: value for name in ("issuer", "number", "account") if (value := getattr(switch, name)) is not None}
    return Record(
        type=RecordType.KILL,
        phase=Phase.OK,
        reference=switch.switch_id,
        detail={"act": act, "scope": switch.scope.value, "by": actor, "reason": reason} | target,
    )
