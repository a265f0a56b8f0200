"""Work about a bundle looks at the time itself, in each loop that a bundle can make long, and stops when it is over."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from policy_bundles import FORKS, OTHER, PROTECTED, bundle_of
from policy_examples import texts

from bridge.policy.analysis import matrix
from bridge.policy.bundle import parse_bundle
from bridge.policy.difference import difference
from bridge.policy.lint import lint
from bridge.policy.past import replay
from bridge.policy.summary import summaries
from bridge.policy.trial import run_cases
from bridge.policy.worktime import OutOfTimeError, tick, within

TODAY = date(2026, 5, 4)

DONE = matrix(bundle_of(PROTECTED, OTHER, FORKS), TODAY)

WORK: dict[str, Callable[[], object]] = {
    "matrix": lambda: matrix(bundle_of(PROTECTED, OTHER, FORKS), TODAY),
    "selection": lambda: matrix(bundle_of(PROTECTED, OTHER, FORKS), TODAY, most=40),
    "summary": lambda: summaries(DONE),
    "difference": lambda: difference(bundle_of(PROTECTED, FORKS), bundle_of(OTHER, FORKS), TODAY).lines(),
    "lint": lambda: list(lint(parse_bundle(texts()), datetime(2026, 5, 4, tzinfo=UTC))),
    "cases": lambda: run_cases(parse_bundle(texts())),
}


class Steps:
    """A clock that goes on by one with each look at it."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        """Return the time."""
        self.looks += 1
        return float(self.looks)


@pytest.mark.threat("T38")
@pytest.mark.parametrize("work", WORK)
def test_no_work_goes_on_when_its_time_is_over(work: str) -> None:
    whole = Steps()
    with within(float("inf"), whole):
        WORK[work]()
    assert whole.looks > 4
    for part in (2, whole.looks // 2, whole.looks - 1):
        steps = Steps()
        with pytest.raises(OutOfTimeError), within(part - 1, steps):
            WORK[work]()
        assert steps.looks == part


@pytest.mark.threat("T38")
def test_each_question_of_the_past_is_looked_at_only_in_time() -> None:
    past: Any = [None]
    with pytest.raises(OutOfTimeError), within(0):
        replay(past, bundle_of(PROTECTED))


def test_without_a_time_nothing_ends_early() -> None:
    with pytest.raises(OutOfTimeError), within(0):
        tick()
    for _ in itertools.repeat(None, 3):
        tick()
