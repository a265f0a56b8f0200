"""Stages and runs take only the steps of the table; an end is an end."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import sampled_from

from bridge.errors import Conflict, Defect
from bridge.lifecycle import FINAL, ON_SLURM, RUN_TRANSITIONS, advance, require_live, sources, transitions
from bridge.model import RunState, StageKind, StageState

SLURM_STEPS = {
    ("intended", "held"), ("intended", "cancelled"), ("intended", "lost"),
    ("held", "released"), ("held", "cancelled"), ("held", "lost"),
    ("released", "pending"), ("released", "running"), ("released", "ended"), ("released", "cancelled"),
    ("released", "lost"),
    ("pending", "running"), ("pending", "ended"), ("pending", "cancelled"), ("pending", "lost"),
    ("running", "pending"), ("running", "ended"), ("running", "cancelled"), ("running", "lost"),
}  # fmt: skip
LOGIN_STEPS = {
    ("intended", "running"), ("intended", "cancelled"), ("intended", "lost"),
    ("running", "ended"), ("running", "cancelled"), ("running", "lost"),
}  # fmt: skip
STEPS = {StageKind.SLURM: SLURM_STEPS, StageKind.LOGIN: LOGIN_STEPS}


@pytest.mark.parametrize("kind", StageKind)
@pytest.mark.parametrize("current", StageState)
@pytest.mark.parametrize("target", StageState)
def test_a_step_is_taken_where_the_table_has_it_and_nowhere_else(
    kind: StageKind, current: StageState, target: StageState
) -> None:
    if current not in transitions(kind):
        assert kind is StageKind.LOGIN
        return
    if (current.value, target.value) in STEPS[kind]:
        assert advance(kind, current, target) is target
        assert current in sources(kind, target)
    else:
        assert current not in sources(kind, target)
        with pytest.raises(Defect, match=r"stage\.transition"):
            advance(kind, current, target)


@pytest.mark.parametrize("kind", StageKind)
def test_an_end_has_no_way_out_and_is_reached_from_everywhere(kind: StageKind) -> None:
    table = transitions(kind)
    assert {state for state in table if not table[state]} == FINAL
    for state in table.keys() - FINAL:
        assert {StageState.CANCELLED, StageState.LOST} <= table[state]


def test_what_is_on_slurm_has_a_job_and_has_not_ended() -> None:
    assert not ON_SLURM & FINAL
    assert {StageState.INTENDED} | ON_SLURM | FINAL == set(transitions(StageKind.SLURM))


def test_only_the_runners_retry_leads_out_of_an_ended_run() -> None:
    assert RUN_TRANSITIONS[RunState.ENDED] == {RunState.ADMITTED}
    assert all(RunState.ENDED in RUN_TRANSITIONS[state] for state in (RunState.ADMITTED, RunState.PREPARED))
    require_live(RunState.ADMITTED)
    require_live(RunState.PREPARED)
    with pytest.raises(Conflict, match=r"run\.ended"):
        require_live(RunState.ENDED)


class Walk(RuleBasedStateMachine):
    """Tries steps at random; whatever is refused changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.states = dict.fromkeys(StageKind, StageState.INTENDED)

    @rule(kind=sampled_from(StageKind), towards=sampled_from(StageState))
    def step(self, kind: StageKind, towards: StageState) -> None:
        """Try to go there."""
        before = self.states[kind]
        try:
            self.states[kind] = advance(kind, before, towards)
        except Defect:
            assert (before.value, towards.value) not in STEPS[kind]
        else:
            assert (before.value, towards.value) in STEPS[kind]
            assert before not in FINAL

    @invariant()
    def stays_in_the_table(self) -> None:
        """Every state that is reached has a row."""
        assert all(state in transitions(kind) for kind, state in self.states.items())


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
