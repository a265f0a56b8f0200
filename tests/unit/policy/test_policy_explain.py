"""Explanations: the engine's own answer, each condition as Cedar sees it, and a short form that gives nobody away."""

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_examples import ALICE, NOON, POLICIES, question, texts
from test_policy_engine import EVERYBODY, NOBODY, engine_of

from bridge.errors import Defect, PolicyRefused
from bridge.model import EvidenceLevel, ExternalIdentity, SlurmRequest
from bridge.policy.bundle import Bundle, load_bundle
from bridge.policy.cases import parse_situation
from bridge.policy.engine import Engine
from bridge.policy.explain import Explainer, Explanation
from bridge.policy.question import Question
from bridge.policy.safe import OF_THE_JOB

SHIPPED = load_bundle(POLICIES)
ENGINE, EXPLAINER = Engine(SHIPPED), Explainer(SHIPPED)


def decision(engine: Engine, asked: Question) -> str:
    """What the engine says."""
    try:
        engine.decide(asked)
    except (PolicyRefused, Defect) as error:
        return error.code
    return "allowed"


def explained(*policies: str, request: SlurmRequest | None = None, **changes: Any) -> Explanation:
    """The explanation by these policies of alice's job with changes."""
    return Explainer(engine_of(*policies).bundle).explain(question(request, **changes))


def shipped(request: SlurmRequest | None = None, **changes: Any) -> Explanation:
    """The same by the shipped bundle."""
    return EXPLAINER.explain(question(request, **changes))


GROUPS = ("chem", "bio", "gpu", "course-ml", "ci-teams")
QUESTIONS = st.builds(
    lambda groups, uid, request, at, changes: question(request, replace(ALICE, groups=groups, uid=uid), at, **changes),
    st.lists(st.sampled_from(GROUPS), unique=True).map(tuple),
    st.sampled_from([20001, 999]),
    st.builds(
        SlurmRequest,
        partition=st.sampled_from([None, "ci", "production", "gpu", "x"]),
        qos=st.sampled_from([None, "normal", "x"]),
        nodes=st.sampled_from([None, -1, 1, 2, 3, 5, 65]),
        tasks_per_node=st.sampled_from([None, 1, 9]),
        gpus=st.sampled_from([None, 0, 1, 2, 9]),
        time_minutes=st.sampled_from([None, 0, 5, 10_000]),
    ),
    st.integers(0, 2 * 365 * 86_400).map(lambda seconds: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)),
    st.fixed_dictionaries(
        {
            "evidence": st.sampled_from(EvidenceLevel),
            "ref_protected": st.booleans(),
            "project_id": st.sampled_from([7, 7, 90066, 90041]),
            "job_project_id": st.sampled_from([7, 7, 90066, 90041]),
            "pipeline_source": st.sampled_from(["push", "schedule", "trigger"]),
            "runner_environment": st.sampled_from(["self-hosted", "gitlab-hosted", None]),
            "groups": st.sampled_from([None, (), ("bio/pipelines",)]),
        }
    ),
)


@pytest.mark.threat("T18")
@settings(max_examples=400, deadline=None)
@given(QUESTIONS)
def test_an_explanation_never_says_anything_but_the_engines_answer(asked: Question) -> None:
    explanation = EXPLAINER.explain(asked)
    assert explanation.decision == decision(ENGINE, asked)
    verdict = ENGINE.verdict(asked)
    if explanation.allowed or explanation.decision.startswith("limits."):
        assert tuple(one.policy_id for one in explanation.permits) == verdict.policy_ids
        assert explanation.forbids == ()
    else:
        assert tuple(one.policy_id for one in explanation.forbids) == verdict.policy_ids
    assert json.loads(json.dumps(explanation.to_json()))["decision"] == explanation.decision


@settings(max_examples=200, deadline=None)
@given(QUESTIONS)
def test_a_policy_applies_exactly_where_all_its_conditions_hold(asked: Question) -> None:
    verdict = ENGINE.verdict(asked)
    applying = {one.policy_id for one in EXPLAINER._all(asked) if not one.lacking}
    effects = {one: SHIPPED.policies.infos[one].effect for one in applying}
    forbids = sorted(one for one, effect in effects.items() if effect == "forbid")
    permits = sorted(one for one, effect in effects.items() if effect == "permit")
    assert verdict.policy_ids == tuple(forbids or permits)
    assert verdict.allowed is (not forbids and bool(permits))


@settings(max_examples=200, deadline=None)
@given(QUESTIONS)
def test_a_number_over_a_limit_is_told_exactly_when_the_engine_minds_it(asked: Question) -> None:
    explanation = EXPLAINER.explain(asked)
    if explanation.allowed:
        assert [one.sentence for one in explanation.excesses] == list(ENGINE.decide(asked).notes)
    elif explanation.decision in ("limits.exceeded", "limits.not_allowed"):
        assert explanation.title in [one.sentence for one in explanation.excesses if not one.clamped]
    else:
        assert explanation.excesses == ()


PARTS = (
    "context.ref_protected",
    "context.project_id == 7",
    "context has nodes && context.nodes > 1",
    "context.hour < 13",
)
EXTRA = {"permit": '@limits("small")', "forbid": '@reason("x")'}
RANDOM = st.lists(
    st.tuples(
        st.sampled_from(["permit", "forbid"]),
        st.sampled_from(["when", "unless"]),
        st.lists(st.sampled_from(PARTS), min_size=1, max_size=3),
        st.sampled_from([" && ", " || "]),
        st.booleans(),
    ),
    max_size=4,
)


@pytest.mark.threat("T18")
@settings(max_examples=30, deadline=None)
@given(RANDOM)
def test_an_explanation_by_random_policies_is_the_engines_answer(shapes: list[Any]) -> None:
    policies = [
        f'@id("p{number}") {EXTRA[effect]} {effect} '
        f'(principal, action == Action::"run_as", resource) {kind} {{ {"!" if negated else ""}'
        f"({joint.join(f'({part})' for part in parts)}) }};"
        for number, (effect, kind, parts, joint, negated) in enumerate(shapes)
    ]
    engine = engine_of(*policies)
    explainer = Explainer(engine.bundle)
    for protected, project, nodes, hours in itertools.product([True, False], [7, 8], [None, 1, 2], [0, 2]):
        asked = question(
            SlurmRequest(nodes=nodes),
            at=NOON + timedelta(hours=hours),
            ref_protected=protected,
            project_id=project,
            job_project_id=project,
        )
        assert explainer.explain(asked).decision == decision(engine, asked)
        applying = {one.policy_id for one in explainer._all(asked) if not one.lacking}
        assert set(engine.verdict(asked).policy_ids) <= applying


def test_a_forbid_tells_its_reason_and_what_it_looked_at() -> None:
    explanation = shipped(job_project_id=8)
    (forbid,) = explanation.forbids
    assert (forbid.policy_id, forbid.file, forbid.line) == ("no-forks", "guards.cedar", 2)
    assert forbid.reason == "pipelines of forks do not run on this cluster."
    (finding,) = forbid.findings
    assert finding.text == "!(context.job_project_id == context.project_id)"
    assert finding.values == {"context.job_project_id": 8, "context.project_id": 7}


def test_the_nearest_permit_comes_first_with_what_it_lacks() -> None:
    explanation = shipped(SlurmRequest("gpu", gpus=1), ref_protected=False)
    assert explanation.decision == "policy.no_permit"
    assert [one.policy_id for one in explanation.permits] == [
        "chem-in-production",
        "people-on-other-refs",
        "gpu-course",
    ]
    assert [len(one.lacking) for one in explanation.permits] == [1, 1, 1]
    (lacking,) = explanation.permits[2].lacking
    assert (lacking.text, lacking.holds) == ('resource in PosixGroup::"course-ml"', False)
    assert lacking.values == {"resource": "alice, in chem"}


def test_what_can_not_be_told_without_another_condition_is_no_yes() -> None:
    guarded = EVERYBODY.replace(";", " when { context has nodes && context.nodes > 1 };")
    (rule,) = explained(guarded).permits
    assert [(one.text, one.holds) for one in rule.findings] == [
        ("context has nodes", False),
        ("context.nodes > 1", None),
    ]
    assert [one.values for one in rule.findings] == [{"context.nodes": None}] * 2


TAKEN_APART = [
    ("when { context.ref_protected && context.gpus_ok }", None),
    ("when { context.ref_protected && context.project_id == 7 }", 2),
    ("when { (context.ref_protected && context.project_id == 7) && context.hour < 24 }", 3),
    ("when { context.ref_protected } when { context.project_id == 7 }", 2),
    ("unless { !context.ref_protected || context.project_id == 8 }", 2),
    ("unless { !(context.ref_protected && context.project_id == 7) }", 2),
    ("unless { context.project_id == 8 } when { !(context.project_id == 9 || context.project_id == 10) }", 3),
    ("when { context.ref_protected || context.project_id == 7 }", 1),
    ("", 0),
]


@pytest.mark.parametrize(("body", "count"), TAKEN_APART, ids=[row[0] for row in TAKEN_APART])
def test_a_policy_is_taken_apart_without_a_change_of_meaning(body: str, count: int | None) -> None:
    policy = EVERYBODY.replace(";", f" {body};")
    if count is None:
        with pytest.raises(Exception, match="gpus_ok"):
            engine_of(policy)
        return
    engine = engine_of(policy)
    explainer = Explainer(engine.bundle)
    for project, protected in ((7, True), (7, False), (8, True), (8, False), (9, True), (10, False)):
        asked = question(project_id=project, job_project_id=project, ref_protected=protected)
        (rule,) = explainer.explain(asked).permits
        assert len(rule.findings) == count
        assert (not rule.lacking) is engine.verdict(asked).allowed


@pytest.mark.threat("T18")
def test_an_expired_permit_is_explained_by_its_last_day_and_never_as_allowing() -> None:
    ended = '@expires("2027-01-31") ' + EVERYBODY
    explanation = explained(ended, at=NOON + timedelta(days=100))
    assert explanation.decision == "policy.no_permit"
    (lacking,) = explanation.permits[0].lacking
    assert (lacking.text, lacking.values) == ("context.date <= 20270131", {"context.date": 20270226})
    assert explained(ended).allowed


def test_every_number_over_a_limit_is_told_and_not_only_the_first() -> None:
    explanation = shipped(SlurmRequest(qos="long", nodes=9, time_minutes=999))
    assert explanation.decision == "limits.not_allowed"
    assert [(one.what, one.asked, one.allowed) for one in explanation.excesses] == [
        ("qos", "long", ()),
        ("nodes", 9, 2),
        ("minutes", 999, 120),
    ]
    assert all(one.limit == "standard" for one in explanation.excesses)


def test_what_is_only_cut_down_is_told_with_the_permission() -> None:
    explanation = shipped(SlurmRequest("gpu", gpus=16), account=replace(ALICE, groups=("gpu",)))
    assert explanation.allowed
    assert [one.clamped for one in explanation.excesses] == [True]
    assert "gets 8" in explanation.safe()[-1]


def test_policies_that_can_not_be_evaluated_are_never_explained_as_allowing() -> None:
    broken = NOBODY.replace(";", " when { context has nodes && context.nodes * 9223372036854775807 > 1 };")
    explanation = explained(EVERYBODY, broken, request=SlurmRequest(nodes=2))
    assert (explanation.decision, explanation.allowed) == ("policy.evaluation_failed", False)
    assert explanation.permits == ()


def test_a_cluster_that_nobody_knows_is_explained_too() -> None:
    assert EXPLAINER.explain(replace(question(), cluster="moon")).decision == "cluster.unknown"


SECRETS = ("90909", "mallory", "secret-group", "moon-shot", "/303", "tokamak", "judy", "stealth-permit")


def secretive() -> Bundle:
    """Policies that name other people, groups and projects, as texts of permits and in conditions of forbids."""
    conditions = [
        "when { context.project_id == 90909 }",
        'when { principal.login == "mallory" }',
        'when { context has groups && context.groups.contains("secret-group") }',
        'when { context has environment && context.environment == "moon-shot" }',
        'when { principal == User::"https://gitlab.realm.test/303" }',
        'when { context.ref like "tokamak/*" }',
        'when { context has user_identities && context.user_identities.contains({provider: "", extern_uid: "judy"}) }',
        'unless { resource in PosixGroup::"chem" }',
    ]
    permits = [
        f'@id("stealth-permit-{number}") @limits("small") permit (principal, action == Action::"run_as", resource) '
        f"{condition};"
        for number, condition in enumerate(conditions)
    ]
    forbids = [
        f'@id("guard-{number}") @reason("this is for everybody to read.") '
        f'forbid (principal, action == Action::"run_as", resource) {condition} when {{ context.ref == "wet" }};'
        for number, condition in enumerate([*conditions[:-1], ""])
    ]
    return engine_of(*permits, *forbids).bundle


SECRETIVE = Explainer(secretive())


@pytest.mark.threat("T50")
@settings(max_examples=200, deadline=None)
@given(
    ref=st.sampled_from(["main", "wet"]),
    groups=st.sampled_from([None, (), ("bio",)]),
    identities=st.sampled_from([None, (ExternalIdentity("saml", "alice"),)]),
    request=st.builds(SlurmRequest, partition=st.sampled_from([None, "x"]), nodes=st.sampled_from([None, 99])),
)
def test_the_short_form_never_names_other_people_projects_or_rules(
    ref: str, groups: Any, identities: Any, request: SlurmRequest
) -> None:
    explanation = SECRETIVE.explain(question(request, ref=ref, groups=groups, user_identities=identities))
    assert not explanation.allowed
    lines = explanation.safe()
    assert lines
    for secret in SECRETS:
        assert not any(secret in line for line in lines), (secret, lines)
    if ref == "wet":
        assert "The policy 'guard-7' forbids this job: this is for everybody to read." in lines


def test_the_short_form_says_what_the_job_can_change() -> None:
    unreviewed = EVERYBODY.replace(";", " when { context.ref_protected };")
    (_, line) = explained(unreviewed, ref_protected=False).safe()
    assert line == "The nearest rule does not accept whether the branch or tag is protected (no)."


def test_the_short_form_says_no_more_than_that_a_rule_is_about_people() -> None:
    lines = explained(EVERYBODY.replace("principal,", 'principal == User::"https://gitlab.realm.test/303",')).safe()
    assert lines[1:] == ("The nearest rule also asks for something about who may use it.",)


@pytest.mark.threat("T50")
@pytest.mark.parametrize(
    ("condition", "changes"),
    [
        ('context has groups && context.groups.contains("x")', {"groups": ("hidden/group",)}),
        (
            'context has user_identities && context.user_identities.contains({provider: "x", extern_uid: "x"})',
            {"user_identities": (ExternalIdentity("hidden", "hidden"),)},
        ),
        ('context has user_access_level && context.user_access_level == "owner"', {"user_access_level": "hidden"}),
        ("context.runner_id == 9", {"runner_id": 414141}),
        ('context.ref == "x" && context.ref_protected || resource.uid == 1', {"ref": "hidden"}),
    ],
)
def test_what_is_known_of_the_person_never_stands_in_the_jobs_log(condition: str, changes: dict[str, Any]) -> None:
    lines = explained(EVERYBODY.replace(";", f" when {{ {condition} }};"), **changes).safe()
    assert lines[-1] == "The nearest rule also asks for something about who may use it."
    assert not any("hidden" in line or "414141" in line for line in lines)


HOSTILE = ["\x1b[2Jx", "a\nb", "section_start:1:x\r", "x" * 500, "\u202ex", "é"]


@pytest.mark.threat("T45")
@pytest.mark.parametrize("ref", HOSTILE, ids=ascii)
def test_a_name_from_the_project_never_breaks_a_line_of_the_short_form(ref: str) -> None:
    lines = explained(EVERYBODY.replace(";", ' when { context.ref == "main" };'), ref=ref).safe()
    assert len(lines) == 2
    assert lines[1].isascii()
    assert lines[1].isprintable()
    assert len(lines[1]) < 150


CASE = """
[[case]]
issuer = "https://gitlab.realm.test"
user_id = {user}
{more}
"""


@pytest.mark.parametrize(
    ("user", "more", "expected"),
    [
        (101, "", "allowed"),
        (101, 'asked.partition = "gpu"', "policy.no_permit"),
        (101, "at = 2028-01-01T00:00:00+01:00\njob.project_id = 90041", "account.expired"),
        (103, "", "account.not_mapped"),
        (105, "", "account.privileged"),
        (101, 'cluster = "moon"', "cluster.unknown"),
        (101, 'expect = { decision = "allowed" }\nname = "x"', "allowed"),
    ],
)
def test_a_made_up_case_is_explained_whatever_stands_in_its_way(user: int, more: str, expected: str) -> None:
    explanation = EXPLAINER.explain_case(parse_situation("x", CASE.format(user=user, more=more)))
    assert explanation.decision == expected
    assert explanation.to_json()["safe"][0] == explanation.title


def test_every_shipped_case_is_explained_with_its_decision() -> None:
    for case in SHIPPED.cases:
        assert EXPLAINER.explain_case(case).decision == case.expect.decision, case.name


def test_only_attributes_of_the_job_have_words_for_its_log() -> None:
    schema = texts()["schema.cedarschema"]
    assert [name for name in OF_THE_JOB if f"    {name}: " not in schema and f"    {name}?: " not in schema] == []
    assert not {"issuer", "groups", "user_identities", "user_access_level", "namespace_id"} & OF_THE_JOB.keys()
