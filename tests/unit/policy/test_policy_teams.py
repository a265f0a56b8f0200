"""A team's account: for members only, in its projects only, never for a fork, and always with the person on record."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from policy_examples import ALICE, ISSUER, identity, question, resolve, texts

from bridge.errors import PolicyRefused
from bridge.model import PosixAccount, SlurmRequest
from bridge.policy.accounts import AccountRules, parse_accounts, warnings
from bridge.policy.bundle import Bundle
from bridge.policy.engine import Engine
from bridge.policy.problems import InvalidBundle

TODAY = date(2026, 11, 18)
TEAM_PROJECT = 90041
SVC = PosixAccount("svc-chem", 20100, 20100, ("svc-chem", "ci-teams", "chem"), "/home/svc-chem", "/bin/bash")


class Known:
    """A directory with everybody."""

    def lookup(self, name: str) -> PosixAccount:
        return {"alice": ALICE, "svc-chem": SVC}.get(name, replace(ALICE, name=name, uid=20002))


def account_of(rules: AccountRules, **changes: Any) -> str:
    """Whom a job of these changes runs as."""
    return resolve(rules, Known(), identity(**changes), TODAY).name


def in_team(**changes: Any) -> dict[str, Any]:
    """Members of an identity in the team's project."""
    return {"project_id": TEAM_PROJECT, "job_project_id": TEAM_PROJECT} | changes


@pytest.mark.parametrize(
    ("changes", "account"),
    [
        (in_team(), "svc-chem"),
        (in_team(user_id=102, user_login="bob"), "svc-chem"),
        ({}, "alice"),
        (in_team(project_id=99), "alice"),
        (in_team(job_project_id=99), "alice"),
        ({"project_path": "chem/nightly"}, "alice"),
        ({"namespace_id": TEAM_PROJECT}, "alice"),
    ],
    ids=str,
)
@pytest.mark.threat("T11")
def test_a_team_never_counts_outside_its_own_project(bundle: Bundle, changes: dict[str, Any], account: str) -> None:
    assert account_of(bundle.accounts, **changes) == account


@pytest.mark.threat("T11")
@pytest.mark.parametrize(
    "changes",
    [
        in_team(user_id=103),
        in_team(user_id=1010),
        in_team(issuer="https://gitlab.example"),
        in_team(issuer=ISSUER + "/"),
    ],
    ids=str,
)
def test_who_is_not_in_the_team_never_becomes_it(bundle: Bundle, changes: dict[str, Any]) -> None:
    with pytest.raises(PolicyRefused) as caught:
        account_of(bundle.accounts, **changes)
    assert caught.value.code == "account.not_mapped"


def test_the_person_stays_in_the_decision(engine: Engine) -> None:
    grant = engine.decide(question(SlurmRequest(), SVC, user_id=102, user_login="bob", **in_team()))
    assert (grant.account.name, grant.identity.user_id) == ("svc-chem", 102)
    assert grant.reason.startswith("GitLab user bob (102) is linked to svc-chem (uid 20100)")


@pytest.mark.threat("T12")
@pytest.mark.parametrize(
    "changes",
    [{"ref_protected": False}, {"pipeline_source": "web"}, {"pipeline_source": "merge_request_event"}],
    ids=str,
)
def test_work_that_nobody_reviewed_never_runs_as_a_team(engine: Engine, changes: dict[str, Any]) -> None:
    with pytest.raises(PolicyRefused) as caught:
        engine.decide(question(SlurmRequest(), SVC, **in_team(**changes)))
    assert caught.value.context["policy_ids"] == ("team-accounts-run-reviewed-work",)


def rules_of(**changes: str) -> AccountRules:
    """The shipped rows with a team that has changes."""
    text = texts()["accounts.toml"]
    for old, new in changes.items():
        shipped = {
            "account": 'account = "svc-chem"',
            "uid": "uid = 20100",
            "members": "members = [101, 102]",
            "projects": "projects = [90041]",
            "expires": "expires = 2027-12-31",
        }[old]
        assert shipped in text
        text = text.replace(shipped, new)
    return parse_accounts(text)


@pytest.mark.threat("T18")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"account": 'account = "root"', "uid": "uid = 0"}, "account.privileged"),
        ({"account": 'account = "alice"', "uid": "uid = 999"}, "account.uid_changed"),
        ({"account": 'account = "slurm"', "uid": "uid = 20002"}, "account.privileged"),
        ({"uid": "uid = 20101"}, "account.uid_changed"),
        ({"expires": "expires = 2026-11-17"}, "account.expired"),
    ],
    ids=str,
)
def test_a_teams_account_passes_every_check_of_a_persons(changes: dict[str, str], code: str) -> None:
    class Root(Known):
        def lookup(self, name: str) -> PosixAccount:
            return replace(super().lookup(name), uid=0) if name == "root" else super().lookup(name)

    with pytest.raises(PolicyRefused) as caught:
        resolve(rules_of(**changes), Root(), identity(**in_team()), TODAY)
    assert caught.value.code == code


def test_a_team_that_can_never_run_is_a_warning() -> None:
    found = [str(one) for one in warnings(rules_of(account='account = "root"', uid="uid = 0"))]
    assert "accounts.toml: a team runs as root (0), never allowed" in found


@pytest.mark.parametrize(
    "changes",
    [
        {"members": "members = []"},
        {"members": "members = [0]"},
        {"members": 'members = ["alice"]'},
        {"members": "members = [101, 101, true]"},
        {"projects": "projects = []"},
        {"projects": 'projects = ["*"]'},
        {"account": 'account = "../root"'},
        {"uid": "uid = -1"},
        {"uid": ""},
    ],
    ids=str,
)
def test_a_team_must_say_all_of_it(changes: dict[str, str]) -> None:
    with pytest.raises(InvalidBundle):
        rules_of(**changes)


@pytest.mark.threat("T11")
def test_nobody_has_two_teams_in_one_project() -> None:
    team = texts()["accounts.toml"].partition("[[team]]")
    second = team[1] + team[2].replace("svc-chem", "svc-other").replace("[101, 102]", "[102, 104]")
    with pytest.raises(InvalidBundle) as caught:
        parse_accounts("".join(team) + "\n" + second)
    assert "user 102 of https://gitlab.realm.test is in two teams of project 90041" in str(caught.value)
    assert parse_accounts("".join(team) + "\n" + second.replace("[90041]", "[90042]"))
