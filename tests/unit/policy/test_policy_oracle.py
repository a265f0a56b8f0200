"""Random bundles and questions: the engine, the access matrix and a naive second reading agree, and laws hold."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import Condition, Policy, facts_of, judge
from policy_bundles import ACCOUNTS
from policy_examples import identity, texts

from bridge.errors import PolicyRefused
from bridge.model import EvidenceLevel, Flavor, Limits, OnExcess, PosixAccount, SlurmRequest
from bridge.policy.analysis import matrix
from bridge.policy.bundle import Bundle, parse_bundle
from bridge.policy.engine import Engine
from bridge.policy.limits import intersection
from bridge.policy.question import Question

ENVELOPES: dict[str, dict[str, Any]] = {
    "wide": {"partitions": ["ci", "debug", "gpu"], "max_nodes": 8, "max_gpus": 4, "max_time_minutes": 600},
    "small": {"partitions": ["debug", "ci"], "max_nodes": 1, "max_gpus": 0, "max_time_minutes": 30},
    "gpu": {"partitions": ["gpu"], "max_nodes": 2, "max_gpus": 8, "max_time_minutes": 60},
    "token": {"partitions": ["ci"], "max_nodes": 2, "max_gpus": 0, "max_time_minutes": 90},
}
REST = "max_tasks = 64\nmax_cpus_per_task = 8\nmax_memory_mib = 4096\ndefault_time_minutes = 5\nticket_minutes = 60\n"
for _name, _one in ENVELOPES.items():
    _one["evidence"] = "job_token" if _name in ("small", "token") else "id_token"
SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def limits_toml() -> str:
    """The envelopes as a file."""
    tables = ['[time]\nzone = "Europe/Zurich"\n']
    for name, one in ENVELOPES.items():
        lines = [f"{key} = {value if isinstance(value, int) else repr(value)}" for key, value in one.items()]
        tables.append(f"[limits.{name}]\n" + "\n".join(lines).replace("'", '"') + f"\n{REST}")
    return "\n".join(tables)


FIXED = {name: text for name, text in texts().items() if not name.endswith(".cedar") and "/" not in name} | {
    "limits.toml": limits_toml(),
    "accounts.toml": ACCOUNTS,
}


def bundle_of(policies: list[Policy], files: int = 1) -> Bundle:
    """A bundle of these policies, spread over so many files."""
    spread = {f"{number}.cedar": "" for number in range(files)}
    for number, policy in enumerate(policies):
        spread[f"{number % files}.cedar"] += policy.cedar() + "\n"
    return parse_bundle(FIXED | spread)


COMPARISONS = st.one_of(
    st.builds(Condition, st.just("=="), fact=st.just("context.ref_protected"), value=st.booleans()),
    st.builds(Condition, st.just("=="), fact=st.just("context.ref"), value=st.sampled_from(["main", "x"])),
    st.builds(Condition, st.just("like"), fact=st.just("context.ref"), value=st.sampled_from(["ma", "rel-", ""])),
    st.builds(
        Condition,
        st.just("one of"),
        fact=st.just("context.pipeline_source"),
        value=st.sampled_from([("push",), ("push", "web"), ("schedule", "web")]),
    ),
    st.builds(
        Condition,
        st.sampled_from(["==", "<", ">="]),
        fact=st.sampled_from(["context.project_id", "context.job_project_id", "principal.id"]),
        value=st.sampled_from([7, 8, 101]),
    ),
    st.builds(
        Condition, st.sampled_from(["<", ">="]), fact=st.just("resource.uid"), value=st.sampled_from([1000, 20002])
    ),
    st.builds(Condition, st.sampled_from(["<", ">=", "=="]), fact=st.just("context.hour"), value=st.integers(0, 23)),
    st.builds(Condition, st.sampled_from(["<", ">="]), fact=st.just("context.weekday"), value=st.integers(1, 7)),
    st.builds(Condition, st.just("in"), fact=st.just("resource"), value=st.sampled_from(["chem", "bio"])),
    st.builds(Condition, st.just("has"), fact=st.just("context.groups"), value=st.sampled_from(["g/a", "g/b"])),
    st.builds(Condition, st.just("=="), fact=st.just("context.partition"), value=st.sampled_from(["ci", "gpu"])),
    st.builds(Condition, st.sampled_from(["<", ">="]), fact=st.just("context.nodes"), value=st.integers(1, 9)),
    st.builds(Condition, st.just("=="), fact=st.just("context.environment"), value=st.sampled_from(["prod", "test"])),
    st.builds(
        Condition, st.just("=="), fact=st.just("context.evidence"), value=st.sampled_from(["id_token", "job_token"])
    ),
    st.builds(Condition, st.just("=="), fact=st.just("context.runner_environment"), value=st.just("self-hosted")),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds(Condition, st.sampled_from(["and", "or"]), st.tuples(inner, inner)),
        st.builds(Condition, st.just("not"), st.tuples(inner)),
    ),
    max_leaves=4,
)


def policy_of(permits: st.SearchStrategy[bool]) -> st.SearchStrategy[Policy]:
    """Policies without a name yet."""
    return st.builds(
        Policy,
        name=st.just(""),
        permits=permits,
        when=st.lists(CONDITIONS, max_size=2).map(tuple),
        unless=st.lists(CONDITIONS, max_size=1).map(tuple),
        limits=st.lists(st.sampled_from(sorted(ENVELOPES)), min_size=1, max_size=2, unique=True).map(tuple),
        group=st.sampled_from([None, None, "chem", "bio"]),
    )


def named(policies: list[Policy]) -> list[Policy]:
    """Each with a name of its own, in an order that is not the order of names."""
    return [replace(one, name=f"p{(number * 7) % 11}-{number}") for number, one in enumerate(policies)]


POLICIES = st.lists(policy_of(st.sampled_from([True, True, False])), max_size=6).map(named)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Question, dict[str, Any], dict[str, Any]]:
    """A question, and its facts and what is asked for as the naive reading takes them."""
    signed = draw(st.booleans()) or draw(st.booleans())
    job: dict[str, Any] = {
        "user_id": draw(st.sampled_from([101, 102])),
        "evidence": "id_token" if signed else "job_token",
        "project_id": draw(st.sampled_from([6, 7, 8, 102])),
        "job_project_id": draw(st.sampled_from([7, 8])),
        "pipeline_source": draw(st.sampled_from(["push", "web", "schedule", "trigger"])),
        "ref": draw(st.sampled_from(["main", "x", "rel-1"])),
        "ref_protected": signed and draw(st.booleans()),
        "runner_environment": draw(st.sampled_from(["self-hosted", "gitlab-hosted"])) if signed else None,
        "environment": draw(st.sampled_from([None, "prod", "test"])) if signed else None,
        "groups": draw(st.sampled_from([None, (), ("g/a",), ("g/a", "g/b")])) if signed else None,
    }
    asked: dict[str, Any] = {
        "partition": draw(st.sampled_from([None, "ci", "debug", "gpu", "secret"])),
        "nodes": draw(st.sampled_from([None, 1, 2, 8, 9])),
        "gpus": draw(st.sampled_from([None, 0, 4, 9])),
        "time_minutes": draw(st.sampled_from([None, 30, 60, 601])),
    }
    uid = draw(st.sampled_from([999, 20001, 20002]))
    groups = draw(st.sampled_from([(), ("chem",), ("bio", "chem")]))
    at = datetime(2026, 11, 16, tzinfo=UTC) + timedelta(minutes=draw(st.integers(0, 14 * 24 * 60)))
    who = identity(**{**job, "evidence": EvidenceLevel(job["evidence"])})
    question = Question(who, PosixAccount("alice", uid, uid, groups, "/", "/bin/sh"), None, SlurmRequest(**asked), at)
    return question, facts_of(job, {"uid": uid, "groups": groups}, asked, at), asked


def decision(engine: Engine, question: Question) -> tuple[str, tuple[str, ...]]:
    """Code and deciding policies, as ``judge`` says them."""
    try:
        return "allowed", engine.decide(question).policy_ids
    except PolicyRefused as error:
        ids = error.context.get("policy_ids", ())
        assert isinstance(ids, tuple)
        return error.code, ids


@SLOW
@given(policies=POLICIES, asked=st.lists(questions(), min_size=1, max_size=8))
def test_no_decision_differs_from_a_naive_reading(
    policies: list[Policy], asked: list[tuple[Question, dict[str, Any], dict[str, Any]]]
) -> None:
    engine = Engine(bundle_of(policies))
    for question, facts, request in asked:
        assert decision(engine, question) == judge(policies, ENVELOPES, facts, request)


@settings(SLOW, max_examples=25)
@given(policies=POLICIES, picks=st.lists(st.integers(0, 2**32), min_size=8, max_size=8))
def test_no_cell_of_a_random_matrix_differs_from_the_engine(policies: list[Policy], picks: list[int]) -> None:
    found = matrix(bundle_of(policies), datetime(2026, 11, 18, tzinfo=UTC).date(), most=2**16)
    engine = Engine(found.bundle)
    alice = next(person for person in found.people if person.subject.user_id == 101)
    for number in (pick % found.board.size for pick in picks):
        cell = alice.outcome(number)
        if cell is not None:
            code, ids = decision(engine, found.stage.question(alice.subject, found.board.at(number)))
            assert cell.code == code
            assert cell.policies == ids or code.startswith("limits.")


@SLOW
@given(policies=POLICIES, extra=policy_of(st.just(False)), asked=st.lists(questions(), min_size=1, max_size=8))
def test_one_more_forbid_never_lets_anybody_in(
    policies: list[Policy], extra: Policy, asked: list[tuple[Question, dict[str, Any], dict[str, Any]]]
) -> None:
    before = Engine(bundle_of(policies))
    after = Engine(bundle_of([*policies, replace(extra, name="extra")]))
    for question, _, _ in asked:
        was, now = decision(before, question), decision(after, question)
        assert now == was or (now[0] == "policy.forbidden" and "extra" in now[1])


@SLOW
@given(policies=POLICIES, extra=policy_of(st.just(True)), asked=st.lists(questions(), min_size=1, max_size=8))
def test_one_more_permit_takes_nothing_away_but_by_its_own_tighter_limits(
    policies: list[Policy], extra: Policy, asked: list[tuple[Question, dict[str, Any], dict[str, Any]]]
) -> None:
    """All permits that apply count together, so one more can make limits tighter. That is all it can do."""
    before = Engine(bundle_of(policies))
    after = Engine(bundle_of([*policies, replace(extra, name="extra")]))
    for question, facts, _ in asked:
        was, now = decision(before, question), decision(after, question)
        if not replace(extra, name="extra").holds(facts) or was[0] == "policy.forbidden":
            assert now == was
        else:
            assert now[0] == "allowed" or now[0].startswith("limits.")
        if was[0] == now[0] == "allowed":
            wider, tighter = before.decide(question).limits, after.decide(question).limits
            assert_within(tighter, wider)
        if was[0].startswith("limits."):
            assert now[0] != "allowed", "more limits never allow what fewer refuse"


@SLOW
@given(policies=POLICIES, asked=st.lists(questions(), min_size=1, max_size=6), data=st.data())
def test_the_order_of_policies_and_files_never_matters(
    policies: list[Policy], asked: list[tuple[Question, dict[str, Any], dict[str, Any]]], data: st.DataObject
) -> None:
    first = Engine(bundle_of(policies))
    shuffled = data.draw(st.permutations(policies))
    second = Engine(bundle_of(shuffled, files=data.draw(st.integers(1, 4))))
    for question, _, _ in asked:
        assert decision(first, question) == decision(second, question)
        if decision(first, question)[0] == "allowed":
            one, other = first.decide(question), second.decide(question)
            assert (one.plan, one.limits, one.reason) == (other.plan, other.limits, other.reason)


@settings(max_examples=60, deadline=None)
@given(asked=questions())
def test_an_empty_bundle_never_lets_anybody_in(
    asked: tuple[Question, dict[str, Any], dict[str, Any]],
) -> None:
    assert decision(EMPTY, asked[0]) == ("policy.no_permit", ())


EMPTY = Engine(bundle_of([]))

_NUMBERS = ("max_nodes", "max_tasks", "max_cpus_per_task", "max_gpus", "max_memory_mib", "max_time_minutes")
_NAMES = st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(tuple)
_CHOSEN = st.none() | _NAMES


@st.composite
def envelopes(draw: st.DrawFn) -> Limits:
    """Any envelope."""
    most = draw(st.integers(1, 50))
    return Limits(
        names=(draw(st.sampled_from(["x", "y", "z"])),),
        partitions=("common", *draw(_NAMES)),
        qos=draw(_NAMES),
        slurm_accounts=draw(_NAMES),
        **{name: draw(st.integers(1, 50)) for name in _NUMBERS[:-1]},
        max_time_minutes=most,
        default_time_minutes=draw(st.integers(1, most)),
        ticket_minutes=draw(st.integers(5, 1440)),
        job_token_on_nodes=draw(st.booleans()),
        targets=draw(_CHOSEN),
        mounts=draw(_CHOSEN),
        mdt_flavor=draw(st.sampled_from(Flavor)),
        ost_flavor=draw(st.sampled_from(Flavor)),
        evidence=draw(st.sampled_from(EvidenceLevel)),
        on_excess=draw(st.sampled_from(OnExcess)),
    )


def bare(limits: Limits) -> tuple[object, ...]:
    """What limits allow: without names, and without the order of choices."""
    sets = (limits.partitions, limits.qos, limits.slurm_accounts)
    chosen = (limits.targets, limits.mounts)
    return (
        *map(frozenset, sets),
        *(None if one is None else frozenset(one) for one in chosen),
        *(getattr(limits, name) for name in _NUMBERS),
        *(limits.default_time_minutes, limits.ticket_minutes, limits.job_token_on_nodes),
        *(limits.mdt_flavor, limits.ost_flavor, limits.evidence, limits.on_excess),
    )


def assert_within(tight: Limits, wide: Limits) -> None:
    """That ``tight`` allows nothing that ``wide`` does not."""
    for name in (*_NUMBERS, "default_time_minutes", "ticket_minutes", "job_token_on_nodes"):
        assert getattr(tight, name) <= getattr(wide, name)
    for name in ("partitions", "qos", "slurm_accounts"):
        assert set(getattr(tight, name)) <= set(getattr(wide, name))
    for name in ("targets", "mounts"):
        all_of_it, some = getattr(wide, name), getattr(tight, name)
        assert all_of_it is None or (some is not None and set(some) <= set(all_of_it))
    assert tight.mdt_flavor.strength >= wide.mdt_flavor.strength
    assert tight.ost_flavor.strength >= wide.ost_flavor.strength
    assert wide.evidence is EvidenceLevel.INTROSPECTED or tight.evidence is EvidenceLevel.SIGNED
    assert wide.on_excess is OnExcess.CLAMP or tight.on_excess is OnExcess.REFUSE


@settings(max_examples=150, deadline=None)
@given(some=st.lists(envelopes(), min_size=1, max_size=4))
def test_limits_together_never_exceed_one_of_them(some: list[Limits]) -> None:
    together = intersection(some)
    for one in some:
        assert_within(together, one)
    for order in itertools.permutations(some):
        assert bare(intersection(order)) == bare(together)
    assert bare(intersection([*some, *some])) == bare(together)
    assert bare(intersection([together, *some])) == bare(together)
    assert together.default_time_minutes <= together.max_time_minutes
