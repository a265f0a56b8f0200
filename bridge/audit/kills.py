"""Kill switches: what each stops, what the people it stops are told, and its record."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bridge.audit.record import Phase, Record, RecordType
from bridge.errors import PolicyRefused
from bridge.model import Grant, KillScope, KillSwitch


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


def record(
    switch: KillSwitch, act: str, actor: str, reason: str, proof: Mapping[str, str] = MappingProxyType({})
) -> Record:
    """What is written down when a switch is thrown or lifted; ``proof`` is how the actor showed who they are."""
    target = {name: value for name in ("issuer", "number", "account") if (value := getattr(switch, name)) is not None}
    return Record(
        type=RecordType.KILL,
        phase=Phase.OK,
        reference=switch.switch_id,
        detail={"act": act, "scope": switch.scope.value, "by": actor, "reason": reason, **proof} | target,
    )
