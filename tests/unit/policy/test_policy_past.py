"""Decisions of the past under a new bundle: each one that turns is told, and no other."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from policy_bundles import ACCOUNTS, FORKS, OTHER, PROTECTED, bundle_of, forbid
from policy_examples import ALICE, question, texts

from bridge.model import SlurmRequest
from bridge.policy.bundle import Bundle
from bridge.policy.cases import ALLOWED
from bridge.policy.engine import Engine
from bridge.policy.past import OTHER_ACCOUNT, Answer, Recorded, Replay, answer, replay
from bridge.policy.question import Question

OLD = bundle_of(PROTECTED, OTHER, FORKS)
NIGHT = datetime(2026, 11, 18, 2, tzinfo=UTC)

PUSH = question()
BRANCH = question(ref_protected=False)
FORK = question(project_id=99)
WIDE = question(SlurmRequest(nodes=2, time_minutes=60))
ALL = (PUSH, BRANCH, FORK, WIDE)


def record(*questions: Question, bundle: Bundle = OLD) -> list[Recorded]:
    """The questions with the answers of a bundle, as they came back from the record."""
    engine = Engine(bundle)
    return [
        Recorded(f"ref-{number}", Question.from_json(one.to_json()), answer(engine, one))
        for number, one in enumerate(questions)
    ]


def turned(found: Replay) -> dict[str, tuple[str, ...]]:
    """Reference -> differences."""
    return {turn.recorded.reference: turn.differences for turn in found.turns}


def test_the_same_bundle_turns_no_decision() -> None:
    found = replay(record(*ALL), OLD)
    assert (found.asked, found.turns, found.counts()) == (4, (), {})
    assert [one.answer.code for one in record(*ALL)] == [ALLOWED, ALLOWED, "policy.forbidden", ALLOWED]


@pytest.mark.parametrize(
    ("new", "differences"),
    [
        (bundle_of(PROTECTED, FORKS), {"ref-1": ("allowed -> policy.no_permit",)}),
        (bundle_of(PROTECTED, OTHER), {"ref-2": ("policy.forbidden -> allowed by protected",)}),
        (
            bundle_of(PROTECTED, OTHER, FORKS, forbid("closed", "when { context.hour == 13 };")),
            {
                "ref-0": ("allowed -> policy.forbidden by closed",),
                "ref-1": ("allowed -> policy.forbidden by closed",),
                "ref-3": ("allowed -> policy.forbidden by closed",),
            },
        ),
        (
            bundle_of(PROTECTED.replace("standard", "small"), OTHER, FORKS),
            {
                "ref-0": ("limits standard -> small", "time_minutes: 30 -> 10"),
                "ref-3": ("allowed -> limits.exceeded",),
            },
        ),
        (
            bundle_of(
                PROTECTED,
                OTHER,
                FORKS,
                limits_toml=texts()["limits.toml"].replace("default_time_minutes = 30", "default_time_minutes = 20"),
            ),
            {"ref-0": ("time_minutes: 30 -> 20",)},
        ),
        (
            bundle_of(PROTECTED, OTHER, FORKS, accounts_toml=ACCOUNTS.replace("user_id = 101", "user_id = 109")),
            {
                "ref-0": ("allowed -> account.not_mapped",),
                "ref-1": ("allowed -> account.not_mapped",),
                "ref-2": ("policy.forbidden -> account.not_mapped",),
                "ref-3": ("allowed -> account.not_mapped",),
            },
        ),
        (
            bundle_of(
                PROTECTED,
                OTHER,
                FORKS,
                accounts_toml=ACCOUNTS.replace("uid = 20001", "uid = 20001\nexpires = 2026-11-17"),
            ),
            {
                "ref-0": ("allowed -> account.expired",),
                "ref-1": ("allowed -> account.expired",),
                "ref-2": ("policy.forbidden -> account.expired",),
                "ref-3": ("allowed -> account.expired",),
            },
        ),
    ],
    ids=["permit", "forbid", "hours", "limits", "default", "row", "expired"],
)
def test_no_decision_turns_unseen(new: Bundle, differences: dict[str, tuple[str, ...]]) -> None:
    found = replay(record(*ALL), new)
    assert turned(found) == differences
    assert [turn.loud for turn in found.turns] == [one[0].endswith("by protected") for one in differences.values()]


def test_an_account_that_nobody_looked_up_is_not_guessed_at() -> None:
    moved = bundle_of(PROTECTED, OTHER, accounts_toml=ACCOUNTS.replace('"alice"', '"alice2"'))
    (turn,) = replay(record(PUSH), moved).turns
    assert turn.answer == Answer(OTHER_ACCOUNT, account="alice2")
    assert turn.differences == ("allowed -> other_account alice2",)
    assert not turn.loud


def test_hours_are_those_of_the_question_and_not_of_the_replay() -> None:
    night = bundle_of(PROTECTED, forbid("night", "when { context.hour < 6 };"))
    found = replay(record(question(at=NIGHT), PUSH), night)
    assert turned(found) == {"ref-0": ("allowed -> policy.forbidden by night",)}


def test_what_is_not_on_record_is_not_compared() -> None:
    (one,) = record(PUSH)
    bare = replace(one, answer=Answer(ALLOWED))
    assert replay([bare], bundle_of(PROTECTED.replace("standard", "small"))).turns == ()


def test_turns_are_counted_and_said() -> None:
    found = replay(record(*ALL, replace(BRANCH, account=ALICE)), bundle_of(PROTECTED.replace("standard", "small")))
    assert found.counts() == {
        "allowed -> policy.no_permit": 2,
        "allowed -> limits.exceeded": 1,
        "allowed, with other limits": 1,
        "policy.forbidden -> allowed": 1,
    }
    assert found.turns[0].line() == (
        "ref-0 user 101 as alice, job 301 of project 7: limits standard -> small; time_minutes: 30 -> 10"
    )
    assert [turn.loud for turn in found.turns] == [False, False, True, False, False]
