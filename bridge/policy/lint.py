"""What is strange about a bundle that loads: rules that do nothing, accounts too near to root, gaps in its tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from bridge.errors import BridgeError
from bridge.policy import accounts, envelopes
from bridge.policy.bundle import Bundle
from bridge.policy.cases import Case
from bridge.policy.engine import Engine
from bridge.policy.expiry import ending
from bridge.policy.findings import Finding, Severity, at_rule, in_file
from bridge.policy.problems import Problem
from bridge.policy.reading import rules
from bridge.policy.rulechecks import RuleChecks
from bridge.policy.trial import question_of_case


def lint(bundle: Bundle, at: datetime) -> tuple[Finding, ...]:
    """All findings, errors first, then by file and line; ``at`` is now, for what ends soon."""
    found = [Finding(Severity.WARNING, "bundle", problem) for problem in bundle.warnings]
    found += [Finding(Severity.WARNING, "expiry", problem) for problem in ending(bundle, at)]
    found += RuleChecks(bundle, at).findings()
    for check in (_shared_accounts, _unused_limits, _uncovered, _nobody):
        found += check(bundle)
    return tuple(
        sorted(
            dict.fromkeys(found),
            key=lambda one: (one.severity, one.problem.file, one.problem.line or 0, str(one.problem)),
        )
    )


def _shared_accounts(bundle: Bundle) -> Iterator[Finding]:
    """People who would be one account, without being a team."""
    owners: dict[str, list[tuple[str, int]]] = {}
    for key, row in sorted(bundle.accounts.rows.items()):
        owners.setdefault(row.account, []).append(key)
    teams = {team.account for team in bundle.accounts.teams.by_member.values()}
    for account, keys in owners.items():
        who = ", ".join(f"{user_id} of {issuer}" for issuer, user_id in keys)
        if len(keys) > 1:
            yield in_file(
                bundle, accounts.FILE, f'account = "{account}"', "shared-account", f"{account} has users {who}"
            )
        if account in teams:
            message = f"{account} is a team's account and the own one of user {who}"
            yield in_file(bundle, accounts.FILE, f'account = "{account}"', "shared-account", message)


def _unused_limits(bundle: Bundle) -> Iterator[Finding]:
    used = {name for info in bundle.policies.infos.values() for name in info.limits}
    for name in bundle.limits:
        if name not in used:
            yield in_file(
                bundle, envelopes.FILE, f"[limits.{name}]", "unused-limits", f"no permit names the limits {name!r}"
            )


def _uncovered(bundle: Bundle) -> Iterator[Finding]:
    """Policies that decide none of the bundle's own cases."""
    decided = {name for case in bundle.cases for name in _deciding(bundle, case)}
    for name, info in bundle.policies.infos.items():
        if name not in decided:
            problem = Problem(info.file, info.line, f"{name!r} decides none of the cases: write one in which it does")
            yield Finding(Severity.WARNING, "no-case", problem)


def _deciding(bundle: Bundle, case: Case) -> Iterable[str]:
    try:
        return Engine(bundle).verdict(question_of_case(bundle, case)).policy_ids
    except BridgeError:
        return ()


def _nobody(bundle: Bundle) -> Iterator[Finding]:
    """Policies about people and accounts that accounts.toml does not have."""
    rows, teams = bundle.accounts.rows, bundle.accounts.teams.by_member
    users = {f"{issuer}/{user_id}" for issuer, user_id in rows} | {f"{one[0]}/{one[1]}" for one in teams}
    names = {row.account for row in rows.values()} | {team.account for team in teams.values()}
    known: dict[str, tuple[set[str], str]] = {"User": (users, "user"), "Account": (names, "account")}
    for rule in rules(bundle):
        for kind, name in sorted(rule.entities):
            if kind in known and name not in known[kind][0]:
                message = f"{rule.policy_id!r} is about the {known[kind][1]} {name}, whom accounts.toml does not have"
                yield at_rule(rule, "nobody", message)
