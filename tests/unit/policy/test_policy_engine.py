"""Decisions: default deny, a forbid wins, and the tightest of all envelopes counts."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_examples import ALICE, question, texts

from bridge.errors import Defect, PolicyRefused
from bridge.model import Grant, Limits, SlurmPlan, SlurmRequest
from bridge.policy.bundle import Bundle, parse_bundle
from bridge.policy.engine import Engine
from bridge.policy.limits import Settled, intersection, settle

EVERYBODY = '@id("everybody") @limits("small") permit (principal, action == Action::"run_as", resource);'
NOBODY = '@id("nobody") @reason("closed.") forbid (principal, action == Action::"run_as", resource);'


def engine_of(*policies: str, limits: str | None = None) -> Engine:
    """An engine over the shipped bundle with only these policies, and no cases."""
    files = {name: text for name, text in texts().items() if not name.startswith("cases/")}
    files |= {"people.cedar": "\n".join(policies), "guards.cedar": "", "research.cedar": ""}
    return Engine(parse_bundle(files if limits is None else files | {"limits.toml": limits}))


def decide(engine: Engine, request: SlurmRequest | None = None, **changes: Any) -> Grant:
    """The decision for alice's job with changes."""
    return engine.decide(question(request, **changes))


def refusal(engine: Engine, request: SlurmRequest | None = None, **changes: Any) -> PolicyRefused:
    """The refusal of alice's job with changes."""
    with pytest.raises(PolicyRefused) as caught:
        decide(engine, request, **changes)
    return caught.value


def test_a_grant_says_why_and_carries_what_decided(engine: Engine, bundle: Bundle) -> None:
    grant = decide(engine)
    assert grant.policy_ids == ("people-on-protected-refs",)
    assert grant.bundle_hash == bundle.content_hash
    assert grant.limits == bundle.limits["standard"]
    assert grant.plan == SlurmPlan(partition="ci", nodes=1, time_minutes=30)
    assert grant.reason == (
        "GitLab user alice (101) is linked to alice (uid 20001); shown by id_token; allowed by people-on-protected-refs"
    )


def test_an_empty_policy_set_denies() -> None:
    assert refusal(engine_of()).code == "policy.no_permit"


def test_no_matching_permit_denies() -> None:
    other = EVERYBODY.replace(";", " when { context.project_id == 8 };")
    assert refusal(engine_of(other)).code == "policy.no_permit"
    assert decide(engine_of(other), project_id=8, job_project_id=8).policy_ids == ("everybody",)


def test_a_forbid_wins_over_any_permit_and_names_itself() -> None:
    error = refusal(engine_of(EVERYBODY, NOBODY))
    assert (error.code, error.title) == ("policy.forbidden", "The policy 'nobody' forbids this job: closed.")
    assert error.context["policy_ids"] == ("nobody",)


def test_policies_decide_on_ids_and_groups() -> None:
    chem = EVERYBODY.replace("resource)", 'resource in PosixGroup::"chem")')
    alice = chem.replace("principal,", 'principal == User::"https://gitlab.realm.test/101",')
    assert decide(engine_of(alice)).account == ALICE
    assert refusal(engine_of(alice), user_id=102).code == "policy.no_permit"
    assert refusal(engine_of(alice), issuer="https://other.realm.test").code == "policy.no_permit"
    assert refusal(engine_of(chem), account=replace(ALICE, groups=("bio",))).code == "policy.no_permit"


@pytest.mark.threat("T12")
@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({"job_project_id": 8}, "no-forks"),
        ({"project_id": 99, "pipeline_source": "merge_request_event"}, "no-forks"),
        *(
            ({"pipeline_source": source}, "no-indirect-pipelines")
            for source in ("external", "trigger", "pipeline", "parent_pipeline", "external_pull_request_event", "chat")
        ),
        ({"runner_environment": "gitlab-hosted"}, "only-own-runners"),
    ],
    ids=str,
)
def test_the_shipped_guards_refuse(engine: Engine, changes: dict[str, Any], policy: str) -> None:
    error = refusal(engine, **changes)
    assert error.code == "policy.forbidden"
    assert error.context["policy_ids"] == (policy,)


@pytest.mark.threat("T18")
@pytest.mark.parametrize("changes", [{"uid": 0}, {"uid": 999}, {"gid": 0}, {"gid": 4}], ids=str)
def test_the_second_wall_refuses_system_accounts_without_the_floor(engine: Engine, changes: dict[str, Any]) -> None:
    error = refusal(engine, account=replace(ALICE, **changes))
    assert error.context["policy_ids"] == ("no-system-accounts",)


_ONLY_RELEASE = engine_of(
    EVERYBODY.replace(
        ";", ' when { context.ref == "release" && context has project_path && context.project_path == "chem/water" };'
    )
)

HOSTILE = st.text(max_size=30) | st.sampled_from(['"', '" || true', 'User::"x"', "\\", "\n", "\x00", "${x}", "//"])


@settings(max_examples=150, deadline=None)
@given(text=HOSTILE)
def test_names_from_outside_never_change_the_meaning_of_a_policy(text: str) -> None:
    changes: dict[str, Any] = {
        "ref": text,
        "job_name": text,
        "user_login": text,
        "environment": text,
        "project_path": text,
    }
    assert refusal(_ONLY_RELEASE, **changes).code == "policy.no_permit"


PARTS = ("context.ref_protected", "context.project_id == 7", 'context.pipeline_source == "push"', "context has nodes")


def naive(effects: list[tuple[str, tuple[bool, ...]]], facts: tuple[bool, ...]) -> str:
    """What permit and forbid mean, without Cedar."""
    hits = {effect for effect, wanted in effects if all(fact for fact, want in zip(facts, wanted, strict=True) if want)}
    if "forbid" in hits:
        return "policy.forbidden"
    return "allowed" if "permit" in hits else "policy.no_permit"


@settings(max_examples=60, deadline=None)
@given(
    effects=st.lists(st.tuples(st.sampled_from(["permit", "forbid"]), st.tuples(*[st.booleans()] * 4)), max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_random_policy_sets_agree_with_a_naive_reading_in_any_order(
    effects: list[tuple[str, tuple[bool, ...]]], order: Any
) -> None:
    policies = []
    for number, (effect, wanted) in enumerate(effects):
        condition = " && ".join(part for part, want in zip(PARTS, wanted, strict=True) if want) or "true"
        extra = '@limits("small")' if effect == "permit" else '@reason("x")'
        policies.append(
            f'@id("p{number}") {extra} {effect} (principal, action == Action::"run_as", resource) '
            f"when {{ {condition} }};"
        )
    order.shuffle(policies)
    engine = engine_of(*policies)
    for facts in itertools.product([False, True], repeat=4):
        changes = {
            "ref_protected": facts[0],
            "project_id": 7 if facts[1] else 8,
            "pipeline_source": "push" if facts[2] else "web",
        }
        try:
            decide(engine, SlurmRequest(nodes=1) if facts[3] else SlurmRequest(), **changes)
            got = "allowed"
        except PolicyRefused as error:
            got = error.code
        assert got == naive(effects, facts)


def envelope(name: str, **changes: Any) -> Limits:
    """A roomy envelope with changes."""
    members: dict[str, Any] = {
        "names": (name,),
        "partitions": ("ci", "debug"),
        "qos": ("normal",),
        "slurm_accounts": ("chem",),
        "max_nodes": 4,
        "max_tasks": 8,
        "max_cpus_per_task": 4,
        "max_gpus": 2,
        "max_memory_mib": 4096,
        "max_time_minutes": 60,
        "default_time_minutes": 30,
        "ticket_minutes": 120,
        "job_token_on_nodes": True,
    }
    return Limits(**(members | changes))


EXCEEDED = [
    ({"nodes": 5}, "5 nodes; the limit 'wide' allows at most 4"),
    ({"nodes": 0}, "0 nodes; the limit 'wide' starts at 1"),
    ({"nodes": -1}, "-1 nodes"),
    ({"tasks": 9}, "9 tasks; the limit 'wide' allows at most 8"),
    ({"nodes": 3, "tasks_per_node": 3}, "9 tasks;"),
    ({"tasks": 1, "nodes": 4, "tasks_per_node": 4}, "16 tasks;"),
    ({"tasks_per_node": 0}, "0 tasks per node"),
    ({"nodes": 4, "tasks": 0}, "0 tasks;"),
    ({"cpus_per_task": 5}, "5 cpus per task; the limit 'wide' allows at most 4"),
    ({"gpus": 3}, "3 gpus; the limit 'wide' allows at most 2"),
    ({"gpus": -1}, "-1 gpus"),
    ({"memory_mib": 4097}, "4097 MiB of memory per node; the limit 'wide' allows at most 4096"),
    ({"memory_mib": 0}, "0 MiB of memory per node; the limit 'wide' starts at 1"),
    ({"time_minutes": 61}, "61 minutes; the limit 'wide' allows at most 60"),
    ({"time_minutes": 0}, "0 minutes;"),
]


@pytest.mark.parametrize(("asked", "expected"), EXCEEDED, ids=str)
def test_asked_too_much_is_refused_with_number_limit_and_name(asked: dict[str, int], expected: str) -> None:
    with pytest.raises(PolicyRefused) as caught:
        settle(SlurmRequest(**asked), [envelope("wide")])  # type: ignore[arg-type]
    assert caught.value.code == "limits.exceeded"
    assert expected in caught.value.title


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"partition": "gpu"}, "partition 'gpu'; the limit 'wide' allows ci, debug"),
        ({"qos": "high"}, "qos 'high'; the limit 'wide' allows normal"),
        ({"slurm_account": "bio"}, "Slurm account 'bio'; the limit 'wide' allows chem"),
    ],
)
def test_choices_outside_the_envelope_are_refused(asked: dict[str, str], expected: str) -> None:
    with pytest.raises(PolicyRefused) as caught:
        settle(SlurmRequest(**asked), [envelope("wide")])  # type: ignore[arg-type]
    assert caught.value.code == "limits.not_allowed"
    assert expected in caught.value.title


def test_the_tightest_of_several_envelopes_is_the_one_that_is_named() -> None:
    with pytest.raises(PolicyRefused) as caught:
        settle(SlurmRequest(nodes=3), [envelope("wide"), envelope("narrow", max_nodes=2), envelope("mid", max_nodes=3)])
    assert caught.value.context["limit"] == "narrow"


def test_what_was_asked_is_given_as_far_as_it_fits() -> None:
    asked = SlurmRequest("debug", "normal", "chem", 2, 4, 2, 3, 1, 1024, 45, "avx512", True)
    plan = SlurmPlan("debug", 2, 45, "normal", "chem", 4, 2, 3, 1, 1024, "avx512", True)
    assert settle(asked, [envelope("wide")]) == Settled(plan, ())


def test_envelopes_without_a_common_partition_refuse() -> None:
    with pytest.raises(PolicyRefused) as caught:
        intersection([envelope("a", partitions=("ci",)), envelope("b", partitions=("debug",))])
    assert caught.value.code == "limits.empty"
    assert "'a', 'b'" in caught.value.title


def test_several_permits_mean_the_intersection_of_their_envelopes() -> None:
    two = '@id("two") @limits("standard small") permit (principal, action == Action::"run_as", resource);'
    grant = decide(engine_of(two.replace("two", "one").replace(" small", ""), two, EVERYBODY))
    assert grant.policy_ids == ("everybody", "one", "two")
    assert set(grant.limits.names) == {"small", "standard"}
    assert (grant.limits.max_nodes, grant.limits.ticket_minutes, grant.plan.time_minutes) == (1, 60, 10)


def test_a_plan_must_fit_the_last_envelope_as_well_as_the_first() -> None:
    two = '@id("two") @limits("standard small") permit (principal, action == Action::"run_as", resource);'
    error = refusal(engine_of(two), SlurmRequest(nodes=2))
    assert (error.code, error.context["limit"]) == ("limits.exceeded", "small")


def test_an_intersection_allows_nothing_that_one_envelope_does_not() -> None:
    wide = envelope("wide", qos=("normal", "high"), slurm_accounts=("chem", "bio"))
    narrow = envelope(
        "narrow",
        partitions=("debug",),
        qos=("high",),
        slurm_accounts=("bio",),
        max_nodes=1,
        max_tasks=1,
        max_cpus_per_task=1,
        max_gpus=0,
        max_memory_mib=1,
        max_time_minutes=10,
        default_time_minutes=10,
        ticket_minutes=5,
        job_token_on_nodes=False,
    )
    assert intersection([wide, narrow]) == replace(narrow, names=("wide", "narrow"))
    assert intersection([narrow, wide]) == replace(narrow, names=("narrow", "wide"))


def test_a_forbid_that_can_not_be_evaluated_lets_nobody_in() -> None:
    broken = NOBODY.replace(";", " when { context has nodes && context.nodes * 9223372036854775807 > 1 };")
    engine = engine_of(EVERYBODY, broken)
    assert decide(engine).policy_ids == ("everybody",)
    with pytest.raises(Defect) as caught:
        decide(engine, SlurmRequest(nodes=2))
    assert caught.value.code == "policy.evaluation_failed"


NUMBERS = ("max_nodes", "max_tasks", "max_cpus_per_task", "max_gpus", "max_memory_mib", "max_time_minutes")
ENVELOPES = st.lists(
    st.fixed_dictionaries({name: st.integers(1, 5) for name in NUMBERS}).map(
        lambda numbers: envelope("e", **numbers, default_time_minutes=1)
    ),
    min_size=1,
    max_size=4,
)
REQUESTS = st.builds(
    SlurmRequest,
    nodes=st.none() | st.integers(-1, 6),
    tasks=st.none() | st.integers(-1, 6),
    cpus_per_task=st.none() | st.integers(-1, 6),
    gpus=st.none() | st.integers(-1, 6),
    memory_mib=st.none() | st.integers(-1, 6),
    time_minutes=st.none() | st.integers(-1, 6),
)


@settings(max_examples=300, deadline=None)
@given(envelopes=ENVELOPES, request=REQUESTS)
def test_a_plan_lies_within_every_envelope_and_is_found_whenever_one_exists(
    envelopes: list[Limits], request: SlurmRequest
) -> None:
    def fits(one: Limits) -> bool:
        nodes = 1 if request.nodes is None else request.nodes
        tasks = nodes if request.tasks is None else request.tasks
        return (
            1 <= nodes <= one.max_nodes
            and tasks >= 1
            and max(tasks, nodes) <= one.max_tasks
            and 1 <= (request.cpus_per_task or (1 if request.cpus_per_task is None else 0)) <= one.max_cpus_per_task
            and 0 <= (request.gpus or 0) <= one.max_gpus
            and 1 <= (1 if request.memory_mib is None else request.memory_mib) <= one.max_memory_mib
            and 1 <= (1 if request.time_minutes is None else request.time_minutes) <= one.max_time_minutes
        )

    try:
        settle(request, envelopes)
        allowed = True
    except PolicyRefused:
        allowed = False
    assert allowed is all(fits(one) for one in envelopes)
