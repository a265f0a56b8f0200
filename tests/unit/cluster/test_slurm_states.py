"""Slurm's words for states, exit codes and refusals become the bridge's types."""

import pytest

from bridge.cluster.agent import agent_error
from bridge.cluster.node import JobRow
from bridge.cluster.slurm import BaseState, job_state, slurm_error
from bridge.errors import Defect, Outage, PolicyRefused, RequestRefused


def _row(state: str, exit_code: int | None = 0, signal: int | None = 0, nodes: str = "", reason: str = "") -> JobRow:
    return JobRow(7, state, exit_code, signal, nodes, reason, "2026-11-20T10:00:00")


@pytest.mark.parametrize("base", list(BaseState))
def test_every_base_state_is_known(base: BaseState) -> None:
    state = job_state(_row(base.value))
    assert state.base is base
    assert state.ended is (base not in (BaseState.PENDING, BaseState.RUNNING, BaseState.SUSPENDED))


@pytest.mark.parametrize(
    ("text", "base", "flags", "ended"),
    [
        ("CANCELLED by 20001", BaseState.CANCELLED, set(), True),
        ("COMPLETING", BaseState.RUNNING, {"COMPLETING"}, False),
        ("CONFIGURING", BaseState.RUNNING, {"CONFIGURING"}, False),
        ("FAILED+COMPLETING", BaseState.FAILED, {"COMPLETING"}, False),
        ("COMPLETED,COMPLETING", BaseState.COMPLETED, {"COMPLETING"}, False),
        ("REQUEUED", BaseState.PENDING, {"REQUEUED"}, False),
        ("SPECIAL_EXIT", BaseState.PENDING, {"SPECIAL_EXIT"}, False),
        ("REVOKED", BaseState.CANCELLED, {"REVOKED"}, True),
        ("running", BaseState.RUNNING, set(), False),
    ],
)
def test_states_with_flags(text: str, base: BaseState, flags: set[str], *, ended: bool) -> None:
    state = job_state(_row(text))
    assert (state.base, set(state.flags), state.ended) == (base, flags, ended)


@pytest.mark.parametrize("text", ["", "SLEEPING", "FAILED COMPLETED", "by 7"])
def test_an_unknown_state_is_an_outage(text: str) -> None:
    with pytest.raises(Outage) as caught:
        job_state(_row(text))
    assert caught.value.code == "slurm.state_unknown"


@pytest.mark.parametrize(
    ("row", "exit_code", "signal"),
    [
        (_row("COMPLETED", 0, 0), 0, None),
        (_row("FAILED", 3, 0), 3, None),
        (_row("FAILED", 0, 9), None, 9),
        (_row("CANCELLED", 0, 15), None, 15),
        (_row("TIMEOUT", 0, 15), None, 15),
        (_row("RUNNING", 0, 0), None, None),
        (_row("PENDING", 0, 0), None, None),
        (_row("NODE_FAIL", None, None), None, None),
    ],
)
def test_exit_code_and_signal(row: JobRow, exit_code: int | None, signal: int | None) -> None:
    state = job_state(row)
    assert (state.exit_code, state.signal) == (exit_code, signal)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", ()),
        ("(null)", ()),
        ("None assigned", ()),
        ("node1", ("node1",)),
        ("node1,node2", ("node1", "node2")),
        ("node[1-3,7],gpu2", ("node[1-3,7]", "gpu2")),
        ("r[1-2]n[3,4]", ("r[1-2]n[3,4]",)),
    ],
)
def test_node_lists(text: str, nodes: tuple[str, ...]) -> None:
    assert job_state(_row("RUNNING", nodes=text)).nodes == nodes


def test_a_refusal_carries_slurms_sentence_without_its_noise() -> None:
    said = "sbatch: error: Batch job submission failed: Invalid qos specification\n"
    error = slurm_error(agent_error({"code": "slurm.refused", "title": "t", "remedy": "r", "detail": said}))
    assert isinstance(error, RequestRefused)
    assert error.title == "Slurm refused the job: Invalid qos specification"


@pytest.mark.parametrize("code", ["slurm.unavailable", "slurm.not_started", "slurm.not_installed"])
def test_slurm_that_is_down_is_an_outage(code: str) -> None:
    error = slurm_error(agent_error({"code": code, "title": "t", "remedy": "r", "detail": "d"}))
    assert isinstance(error, Outage)
    assert error.code == "slurm.unreachable"


def test_a_release_that_nobody_answered_is_an_outage() -> None:
    said = "Unexpected message received for job 1\nslurm_suspend error: Unexpected message received"
    error = slurm_error(agent_error({"code": "slurm.refused", "title": "t", "remedy": "r", "detail": said}))
    assert (type(error), error.code) == (Outage, "slurm.unreachable")


@pytest.mark.parametrize(
    ("header", "kind", "code"),
    [
        ({"code": "workspace.foreign", "title": "t", "remedy": "r"}, PolicyRefused, "workspace.foreign"),
        ({"code": "agent.request", "title": "t", "remedy": "r"}, Defect, "agent.request"),
        ({"code": "agent.busy", "title": "t", "remedy": "r"}, Outage, "agent.busy"),
        ({"code": "UPPER", "title": "t"}, Outage, "login.agent_error"),
        ({"code": "a" * 500}, Outage, "login.agent_error"),
        ({"code": 7, "title": 7, "remedy": None}, Outage, "login.agent_error"),
        ({}, Outage, "login.agent_error"),
    ],
)
def test_what_an_agent_says_is_cleaned(header: dict[str, object], kind: type, code: str) -> None:
    error = agent_error(header)
    assert type(error) is kind
    assert error.code == code
    assert error.title


def test_an_agents_text_can_not_write_to_a_terminal() -> None:
    error = agent_error({"code": "a.b", "title": "\x1b[2Jgone\nsection_start:1:x\r" + "x" * 999, "remedy": "\u202er"})
    assert error.title.isprintable()
    assert len(error.title) <= 300
    assert "\x1b" not in error.title
    assert "\u202e" not in error.remedy
