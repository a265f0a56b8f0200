"""What ``policy check`` finds: each strange thing with its file and line, and nothing where nothing is strange."""

from datetime import UTC, datetime

import pytest
from policy_bundles import ACCOUNTS, FORKS, OTHER, PROTECTED, SYSTEM, bundle_of, forbid, permit

from bridge.policy.bundle import Bundle
from bridge.policy.findings import Severity
from bridge.policy.lint import lint

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
SUDO = permit("sudo", "when { context.ref_protected };", resource='resource in PosixGroup::"sudo"')
CHEM = permit("chem", resource='resource in PosixGroup::"chem"')
THREE_GROUPS = 'context.groups.containsAll(["a", "b"]) && !context.groups.contains("c")'
TWO_LINES = "\n\n// why\n"

CASES = """
[[case]]
name = "a push"
issuer = "https://gitlab.realm.test"
user_id = 101
expect = { decision = "allowed" }
"""

TEAM = """
[[team]]
issuer = "https://gitlab.realm.test"
account = "alice"
uid = 20001
members = [102]
projects = [7]
"""


def found(bundle: Bundle, check: str) -> list[str]:
    """The findings of one check, as the command prints them."""
    return [f"{one.severity} {one.problem}" for one in lint(bundle, NOW) if one.check == check]


def test_the_shipped_bundle_has_one_finding_and_it_is_the_row_that_is_there_to_be_found(bundle: Bundle) -> None:
    (one,) = lint(bundle, NOW)
    assert one.severity is Severity.WARNING
    assert "linked to root (0), never allowed" in one.problem.message


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ([PROTECTED, permit("never", "when { context.hour > 12 && context.hour < 12 };")], "its condition never holds"),
        (
            [PROTECTED, permit("never", 'when { context.ref == "a" && context.ref == "b" };')],
            "its condition never holds",
        ),
        ([PROTECTED, forbid("never", "when { context.ref_protected && !context.ref_protected };")], "never holds"),
        ([PROTECTED, permit("never", "when { context.hour > 23 };")], "its condition never holds"),
        ([PROTECTED, permit("never", "when { resource.uid < 1000 };")], "accounts only that no job may have"),
        (
            [PROTECTED, permit("never", "when { context.project_id != context.job_project_id };"), FORKS],
            "'forks' forbids every job that it permits",
        ),
        (
            [
                PROTECTED,
                permit("never", "when { context.job_project_id == 9 };"),
                forbid("a", "when { context.job_project_id == 9 && context.ref_protected };"),
                forbid("b", "when { context.job_project_id == 9 } unless { context.ref_protected };"),
            ],
            "the forbids together forbid every job that it permits",
        ),
        (
            [permit("never").replace("@limits", '@expires("2026-11-01") @limits'), PROTECTED],
            "its condition never holds",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_rule_that_does_nothing_is_found(policies: list[str], said: str) -> None:
    place = next(number for number, one in enumerate(policies, 1) if '@id("never")' in one)
    (line,) = found(bundle_of(*policies), "dead-rule")
    assert line.startswith(f"warning all.cedar:{place}: 'never' does nothing: ")
    assert said in line


@pytest.mark.parametrize(
    "policies",
    [
        [PROTECTED, OTHER, FORKS, SYSTEM],
        [permit("night", "when { context.hour < 6 || context.hour >= 22 };")],
        [permit("weekend", "when { context.weekday > 5 && context.hour == 12 };")],
        [permit("one", head='principal == User::"https://gitlab.realm.test/101"'), FORKS],
        [permit("two", 'when { context has groups && context.groups.containsAll(["a", "b"]) };')],
        [CHEM, forbid("no", resource='resource in PosixGroup::"bio"')],
        [permit("three", f"when {{ context has groups && {THREE_GROUPS} }};")],
        [permit("wide", "when { context has nodes && context has gpus && context.nodes < context.gpus };")],
        [permit("own", "when { context.project_id == principal.id };")],
        [permit("later").replace("@limits", '@expires("2027-11-01") @limits')],
        [permit("more", "when { context has nodes && context.nodes * 2 > 3 };")],
        [permit("token", 'when { context.evidence == "job_token" };', "small")],
        [permit("unproven", "unless { context has namespace_id };", "small")],
        [permit("uid", "when { resource.uid > 50000 && resource.gid == 100 };")],
    ],
    ids=str,
)  # fmt: skip
def test_rules_that_do_something_are_left_alone(policies: list[str]) -> None:
    bundle = bundle_of(*policies)
    assert found(bundle, "dead-rule") == []
    assert found(bundle, "shadowed-rule") == []
    assert found(bundle, "evaluation") == []


@pytest.mark.parametrize(
    ("hidden", "policies"),
    [
        ("a", [permit("a", "when { context.ref_protected };", "gpu"), permit("b", limits="gpu-trial")]),
        ("a", [permit("a", "when { context.ref_protected };"), permit("b")]),
        ("b", [permit("a"), permit("b", 'when { context.ref == "main" };'), FORKS]),
        # They differ only where a forbid hits.
        ("a", [permit("a", 'when { ["push", "web"].contains(context.pipeline_source) };', "gpu"),
               permit("b", 'when { context.pipeline_source == "push" };', "gpu-trial"),
               forbid("c", 'when { context.pipeline_source == "web" };')]),
    ],
    ids=["tighter", "equal", "forbids", "only-where-forbidden"],
)  # fmt: skip
def test_a_permit_that_adds_nothing_is_found(hidden: str, policies: list[str]) -> None:
    (line,) = found(bundle_of(*policies), "shadowed-rule")
    assert f"'{hidden}' adds nothing: whenever it permits a job" in line


@pytest.mark.parametrize(
    "policies",
    [
        # The narrow one makes the wide one narrower; and "standard" refuses job tokens, which "small" takes.
        [permit("a", "when { context.ref_protected };", "gpu-trial"), permit("b", limits="gpu")],
        [permit("a", "when { context.ref_protected };", "standard"), permit("b", limits="small")],
        [permit("a", "when { context.ref_protected };"), permit("b", limits="standard")],
        [permit("a", 'when { context.ref == "x" };'), permit("b", 'when { context.ref == "y" };')],
        [permit("a"), permit("b", "when { context.ref_protected };", "production")],
    ],
    ids=["narrower", "evidence", "narrower-too", "apart", "other"],
)
def test_a_permit_that_changes_something_is_no_shadow(policies: list[str]) -> None:
    assert found(bundle_of(*policies), "shadowed-rule") == []


@pytest.mark.threat("T18")
@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ([permit("everybody")], ["an account whose uid is below 1000", "an account whose primary group is root's"]),
        (
            [permit("everybody"), forbid("a", "when { resource.uid < 1000 };")],
            ["an account whose primary group is root's"],
        ),
        ([permit("everybody"), forbid("a", "when { resource.gid == 0 };")], ["an account whose uid is below 1000"]),
        ([permit("everybody"), forbid("a", "when { resource.uid == 0 || resource.gid == 0 };")], ["below 1000"]),
        ([permit("people", "when { resource.uid >= 20000 && resource.gid >= 20000 };")], []),
        ([permit("everybody"), SYSTEM], []),
    ],
    ids=str,
)
def test_no_permit_reaches_a_privileged_account_unseen(policies: list[str], said: list[str]) -> None:
    lines = found(bundle_of(*policies), "privileged")
    assert len(lines) == len(said)
    for line, what in zip(sorted(lines), sorted(said), strict=True):
        assert line.startswith("warning all.cedar:1: only accounts.toml keeps jobs from")
        assert what in line
        assert "'everybody' would permit it" in line


@pytest.mark.threat("T18")
@pytest.mark.parametrize(
    "policy",
    [
        SUDO,
        permit("sudo", 'when { resource in PosixGroup::"sudo" };'),
        permit("sudo", resource='resource == Account::"slurm"'),
        permit("sudo", 'when { resource == Account::"slurm" };'),
    ],
    ids=str,
)
def test_a_permit_for_a_denied_account_or_group_is_an_error(policy: str) -> None:
    (line,) = found(bundle_of(PROTECTED, SYSTEM, policy), "privileged")
    assert line.startswith("error all.cedar:3: 'sudo' is about the ")


def test_a_policy_that_can_not_be_evaluated_is_an_error() -> None:
    big = permit("big", "when { context has nodes && context.nodes * 9223372036854775807 > 5 };")
    (line,) = found(bundle_of(big), "evaluation")
    assert line.startswith("error all.cedar:1: 'big' can not be evaluated for some jobs, which are refused: ")


def test_two_people_on_one_account_are_found() -> None:
    rows = ACCOUNTS.replace('account = "bob"', 'account = "alice"').replace("uid = 20002", "uid = 20001")
    (line,) = found(bundle_of(PROTECTED, accounts_toml=rows), "shared-account")
    assert line == (
        "warning accounts.toml:10: alice has users 101 of https://gitlab.realm.test, 102 of https://gitlab.realm.test"
    )
    (line,) = found(bundle_of(PROTECTED, accounts_toml=ACCOUNTS + TEAM), "shared-account")
    assert line.endswith("alice is a team's account and the own one of user 101 of https://gitlab.realm.test")


def test_limits_that_no_permit_names_are_found() -> None:
    lines = found(bundle_of(PROTECTED, OTHER), "unused-limits")
    assert [line.rpartition(" ")[2] for line in lines] == ["'production'", "'gpu'", "'gpu-trial'"]
    assert all(line.startswith("warning limits.toml:") for line in lines)


def test_policies_that_no_case_covers_are_found() -> None:
    bundle = bundle_of(PROTECTED, OTHER, FORKS, cases__one_toml=CASES)
    assert [line.partition(":")[2] for line in found(bundle, "no-case")] == [
        "2: 'other' decides none of the cases: write one in which it does",
        "3: 'forks' decides none of the cases: write one in which it does",
    ]


def test_people_and_accounts_without_a_row_are_found() -> None:
    bundle = bundle_of(
        permit("a", head='principal == User::"https://gitlab.realm.test/999"'),
        permit("b", resource='resource == Account::"dave"'),
        permit("c", head='principal == User::"https://gitlab.realm.test/101"', resource='resource == Account::"alice"'),
    )
    assert [line.partition(": ")[2] for line in found(bundle, "nobody")] == [
        "'a' is about the user https://gitlab.realm.test/999, whom accounts.toml does not have",
        "'b' is about the account dave, whom accounts.toml does not have",
    ]


@pytest.mark.threat("T11")
@pytest.mark.parametrize(
    "condition",
    ['principal.login == "alice"', 'context has project_path && context.project_path == "chem/water"'],
)
def test_a_permit_by_a_name_that_can_change_hands_is_found(condition: str) -> None:
    (line,) = found(bundle_of(permit("a", f"when {{ {condition} }};")), "changeable-name")
    assert line.startswith("warning all.cedar:1: ")
    assert found(bundle_of(PROTECTED, forbid("a", f"when {{ {condition} }};")), "changeable-name") == []


def test_what_ends_soon_is_found() -> None:
    bundle = bundle_of(PROTECTED, permit("soon").replace("@limits", '@expires("2026-11-30") @limits'))
    (line,) = found(bundle, "expiry")
    assert line.startswith("warning all.cedar:2: ")


def test_findings_have_an_order_and_the_line_of_the_policy() -> None:
    bundle = bundle_of(TWO_LINES + permit("everybody"), SUDO)
    findings = lint(bundle, NOW)
    assert findings == lint(bundle, NOW)
    assert [one.severity for one in findings] == sorted(one.severity for one in findings)
    assert {one.problem.line for one in findings if one.problem.message.startswith("'everybody'")} == {4}
