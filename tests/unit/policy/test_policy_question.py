"""Questions as text: one text for each, readable years later, and nothing else is one."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from policy_examples import question

from bridge.errors import Defect
from bridge.model import EvidenceLevel, ExternalIdentity, Identity, SlurmRequest
from bridge.policy.engine import Engine
from bridge.policy.question import Question

FULL = question(
    SlurmRequest("ci", "normal", "chem", 2, 4, 2, 3, 1, 1024, 45, "avx512", True),
    evidence=EvidenceLevel.INTROSPECTED,
    groups=("chem", "chem/water"),
    user_identities=(ExternalIdentity("ldapmain", "uid=é,dc=x"),),
    environment_protected=False,
    ref_path="refs/heads/main",
    project_path=None,
)


@pytest.mark.parametrize("one", [question(), FULL, replace(FULL, cluster="pocket"), question(groups=())])
def test_a_question_comes_back_as_it_was_and_gets_the_same_answer(one: Question, engine: Engine) -> None:
    data = one.to_json()
    assert Question.from_json(data) == one
    assert data == rfc8785.dumps(json.loads(data))
    assert engine.verdict(Question.from_json(data)) == engine.verdict(one)


@given(st.text(max_size=20), st.none() | st.text(max_size=9), st.none() | st.integers(-5, 10**9), st.booleans())
def test_every_question_comes_back(login: str, path: str | None, nodes: int | None, protected: bool) -> None:
    one = question(SlurmRequest(nodes=nodes), user_login=login, project_path=path, ref_protected=protected)
    assert Question.from_json(one.to_json()) == one


def test_one_moment_has_one_text() -> None:
    moved = replace(question(), at=question().at.astimezone(timezone(timedelta(hours=-7))))
    assert moved.to_json() == question().to_json()


def test_what_a_later_release_knows_more_does_not_change_earlier_questions() -> None:
    members = json.loads(question().to_json())["identity"]
    later = {"ref_path", "user_access_level", "ci_config_ref_uri", "groups", "user_identities", "deployment_tier"}
    assert later <= {field.name for field in fields(Identity)}
    assert later & members.keys() == set()


def edit(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The canonical text of a question after a change."""
    members = json.loads(FULL.to_json())
    change(members)
    return rfc8785.dumps(members)


MALFORMED = {
    "empty": b"",
    "null": b"null",
    "a list": b"[]",
    "spaces": FULL.to_json().replace(b":", b": ", 1),
    "no moment": edit(lambda one: one.pop("at")),
    "naive moment": edit(lambda one: one.update(at="2026-11-18T12:00:00")),
    "moment elsewhere": edit(lambda one: one.update(at="2026-11-18T13:00:00+01:00")),
    "moment as number": edit(lambda one: one.update(at=1795000000)),
    "extra": edit(lambda one: one.update(extra=1)),
    "nested extra": edit(lambda one: one["account"].update(extra=1)),
    "uid as text": edit(lambda one: one["account"].update(uid="20001")),
    "uid as boolean": edit(lambda one: one["account"].update(uid=True)),
    "protected as text": edit(lambda one: one["identity"].update(ref_protected="true")),
    "another level": edit(lambda one: one["identity"].update(evidence="none")),
    "a default said": edit(lambda one: one["identity"].update(deployment_tier=None)),
    "cluster left out": edit(lambda one: one.pop("cluster")),
    "an account as null": edit(lambda one: one.update(account=None)),
    "groups as text": edit(lambda one: one["account"].update(groups="chem")),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_anything_else_is_no_question(kind: str) -> None:
    with pytest.raises(Defect) as caught:
        Question.from_json(MALFORMED[kind])
    assert caught.value.code == "policy.question_malformed"


@pytest.mark.threat("T48")
def test_the_same_question_never_gets_another_answer_by_the_clock_of_the_machine(engine: Engine) -> None:
    one = question(SlurmRequest("production", nodes=9), at=datetime(2026, 11, 21, 12, tzinfo=UTC))
    assert {engine.verdict(Question.from_json(one.to_json())) for _ in range(3)} == {engine.verdict(one)}
    assert engine.verdict(one).allowed
    assert not engine.verdict(replace(one, at=datetime(2026, 11, 20, 12, tzinfo=UTC))).allowed
