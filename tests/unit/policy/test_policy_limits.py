"""What limits give and refuse beyond numbers: clamping, targets, mounts with their flavors, and evidence."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_examples import question, texts
from test_policy_engine import EVERYBODY, NUMBERS, REQUESTS, engine_of, envelope

from bridge.errors import PolicyRefused
from bridge.model import EvidenceLevel, Flavor, Grant, Limits, OnExcess, SlurmRequest
from bridge.policy.bundle import parse_bundle
from bridge.policy.engine import Engine
from bridge.policy.limits import excesses, intersection, settle
from bridge.policy.problems import InvalidBundle

CLAMPING = envelope("soft", on_excess=OnExcess.CLAMP)
FIELDS = dict(zip(NUMBERS, ("nodes", "tasks", "cpus_per_task", "gpus", "memory_mib", "time_minutes"), strict=True))


@pytest.mark.parametrize(
    ("asked", "what", "most"),
    [
        ({"nodes": 5}, "nodes", 4),
        ({"tasks": 9}, "tasks", 8),
        ({"tasks_per_node": 9}, "tasks_per_node", 8),
        ({"cpus_per_task": 5}, "cpus_per_task", 4),
        ({"gpus": 16}, "gpus", 2),
        ({"memory_mib": 2**40}, "memory_mib", 4096),
        ({"time_minutes": 61}, "time_minutes", 60),
    ],
)
def test_a_limit_that_says_so_cuts_down_and_tells(asked: dict[str, int], what: str, most: int) -> None:
    got = settle(SlurmRequest(**asked), [CLAMPING])  # type: ignore[arg-type]
    assert getattr(got.plan, what) == most
    (note,) = got.notes
    assert f"asked for {asked[what]} " in note
    assert f"gets {most}, the most that the limit 'soft' allows" in note


@pytest.mark.parametrize(
    "asked",
    [
        {"partition": "gpu"},
        {"qos": "high"},
        {"slurm_account": "bio"},
        {"nodes": 0},
        {"gpus": -1},
        {"memory_mib": 0},
        {"time_minutes": 0},
        {"nodes": 4, "tasks_per_node": 4},
        {"nodes": 9, "tasks_per_node": 9},
    ],
    ids=str,
)
def test_names_and_nonsense_are_never_replaced(asked: dict[str, Any]) -> None:
    with pytest.raises(PolicyRefused):
        settle(SlurmRequest(**asked), [CLAMPING])


@pytest.mark.threat("T18")
def test_one_limit_that_refuses_is_enough() -> None:
    hard = envelope("hard", max_nodes=3)
    assert settle(SlurmRequest(nodes=3), [CLAMPING, hard]).plan.nodes == 3
    for envelopes in ([CLAMPING, hard], [hard, CLAMPING]):
        with pytest.raises(PolicyRefused) as caught:
            settle(SlurmRequest(nodes=4), envelopes)
        assert caught.value.context["limit"] == "hard"
    roomy = envelope("roomy", max_nodes=9)
    assert settle(SlurmRequest(nodes=9), [CLAMPING, roomy]).plan.nodes == 4


ENVELOPES = st.lists(
    st.tuples(st.fixed_dictionaries({name: st.integers(1, 5) for name in NUMBERS}), st.sampled_from(OnExcess)).map(
        lambda one: envelope("e", **one[0], default_time_minutes=1, on_excess=one[1])
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.threat("T18")
@settings(max_examples=300, deadline=None)
@given(envelopes=ENVELOPES, request=REQUESTS, per_node=st.none() | st.integers(-1, 6))
def test_what_a_job_gets_never_exceeds_a_limit_or_what_it_asked_for(
    envelopes: list[Limits], request: SlurmRequest, per_node: int | None
) -> None:
    request = replace(request, tasks_per_node=per_node)
    found = excesses(request, envelopes)
    try:
        plan = settle(request, envelopes).plan
    except PolicyRefused:
        assert any(not one.clamped for one in found)
        return
    assert all(one.clamped for one in found)
    for limit, field in FIELDS.items():
        got, asked = getattr(plan, field), getattr(request, field)
        assert got is None or got <= min(getattr(one, limit) for one in envelopes)
        assert asked is None or got <= asked
    tasks = max(plan.tasks or 0, plan.nodes * (plan.tasks_per_node or 1))
    assert tasks <= min(one.max_tasks for one in envelopes)
    if all(one.on_excess is OnExcess.REFUSE for one in envelopes):
        assert found == ()


TARGETS = ("lustre_mds/mds1.realm.test", "lustre_mds/mds2.realm.test")
MOUNTS = """
[cluster.pocket.mount.scratch]
fsname = "scratch"
nids = ["10.0.0.1@tcp"]
mountpoint = "/scratch"
mdt_flavor = "krb5i"
ost_flavor = "krb5n"

[cluster.pocket.mount.archive]
fsname = "archive"
nids = ["10.0.0.2@o2ib1"]
subdirectory = "/chem"
mountpoint = "/archive"
mdt_flavor = "krb5p"
ost_flavor = "krb5p"
project_id = 41
"""


def limited(extra: str, policies: str = EVERYBODY, **changes: Any) -> Grant:
    """The decision on alice's job where the envelope ``small`` says more, on a cluster with mounts."""
    limits = texts()["limits.toml"].replace("ticket_minutes = 60\n", f"ticket_minutes = 60\n{extra}\n")
    files = {name: text for name, text in texts().items() if not name.startswith("cases/")}
    files |= {"limits.toml": limits, "clusters.toml": texts()["clusters.toml"] + MOUNTS}
    files |= {"people.cedar": policies, "guards.cedar": "", "research.cedar": ""}
    return Engine(parse_bundle(files)).decide(question(**changes))


def test_without_a_choice_a_run_has_all_targets_and_mounts_of_its_cluster() -> None:
    cluster = limited("").cluster
    assert (cluster.login_targets, cluster.node_targets) == (TARGETS, TARGETS)
    assert [(one.name, one.mdt_flavor, one.ost_flavor) for one in cluster.mounts] == [
        ("scratch", Flavor.KRB5I, Flavor.KRB5N),
        ("archive", Flavor.KRB5P, Flavor.KRB5P),
    ]
    assert (cluster.mounts[1].subdirectory, cluster.mounts[1].project_id) == ("/chem", 41)


@pytest.mark.threat("T22")
def test_a_run_never_gets_a_target_or_mount_that_its_limit_leaves_out() -> None:
    cluster = limited(f'targets = ["{TARGETS[1]}"]\nmounts = ["archive"]').cluster
    assert (cluster.login_targets, cluster.node_targets) == (TARGETS[1:], TARGETS[1:])
    assert [one.name for one in cluster.mounts] == ["archive"]
    assert limited("mounts = []").cluster.mounts == ()


@pytest.mark.threat("T22")
@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("targets = []", "limits.empty"),
        ('mdt_flavor = "krb5p"', "limits.flavor"),
        ('ost_flavor = "krb5i"', "limits.flavor"),
        ('mdt_flavor = "krb5i"\nost_flavor = "krb5a"', "limits.flavor"),
    ],
)
def test_a_weaker_mount_or_no_target_at_all_is_refused(extra: str, code: str) -> None:
    with pytest.raises(PolicyRefused) as caught:
        limited(extra)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "extra", ['mdt_flavor = "krb5i"\nost_flavor = "krb5n"', 'mounts = ["archive"]\nost_flavor = "krb5p"']
)
def test_mounts_that_are_strong_enough_are_granted(extra: str) -> None:
    assert limited(extra).policy_ids == ("everybody",)


@pytest.mark.parametrize(
    "extra",
    [
        'targets = ["lustre_mds/mds3.realm.test"]',
        'targets = ["host/login.realm.test"]',
        'targets = ["krbtgt/REALM.TEST"]',
        'mounts = ["home"]',
        'mdt_flavor = "krb5"',
        'ost_flavor = "skpi"',
        'on_excess = "ignore"',
        "on_excess = true",
    ],
)
def test_what_no_cluster_has_and_no_flavor_is_does_not_load(extra: str) -> None:
    with pytest.raises(InvalidBundle) as caught:
        limited(extra)
    assert all(one.file == "limits.toml" for one in caught.value.problems)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"10.0.0.1@tcp"', '"10.0.0.1"'),
        ('"10.0.0.1@tcp"', '"-o x@tcp"'),
        ('"/scratch"', '"/scratch/../etc"'),
        ('"scratch"', '"a-name-too-long"'),
        ('mdt_flavor = "krb5i"', ""),
        ("project_id = 41", "project_id = 0"),
    ],
)
def test_a_mount_that_can_not_be_is_refused(old: str, new: str) -> None:
    assert old in MOUNTS
    with pytest.raises(InvalidBundle):
        parse_bundle(texts() | {"clusters.toml": texts()["clusters.toml"] + MOUNTS.replace(old, new)})


@pytest.mark.threat("T12")
def test_limits_for_jobs_with_an_id_token_never_serve_a_job_token() -> None:
    unsigned: dict[str, Any] = {"evidence": EvidenceLevel.INTROSPECTED, "ref_protected": False}
    assert limited("", **unsigned).limits.evidence is EvidenceLevel.INTROSPECTED
    for names in ("standard", "small standard", "standard small"):
        with pytest.raises(PolicyRefused) as caught:
            limited("", EVERYBODY.replace('"small"', f'"{names}"'), **unsigned)
        assert caught.value.code == "limits.evidence"
        assert "id_tokens:" in caught.value.remedy


def test_an_envelope_needs_an_id_token_unless_it_says_otherwise() -> None:
    limits = engine_of(EVERYBODY).bundle.limits
    assert {name for name, one in limits.items() if one.evidence is EvidenceLevel.INTROSPECTED} == {"small"}


CHOSEN = st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple)
CHOICES = st.lists(
    st.builds(
        lambda **changes: envelope("e", **changes),
        targets=CHOSEN,
        mounts=CHOSEN,
        mdt_flavor=st.sampled_from(Flavor),
        ost_flavor=st.sampled_from(Flavor),
        evidence=st.sampled_from(EvidenceLevel),
        on_excess=st.sampled_from(OnExcess),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.threat("T18")
@settings(max_examples=200, deadline=None)
@given(envelopes=CHOICES, order=st.randoms(use_true_random=False))
def test_the_intersection_of_choices_never_gives_what_one_does_not(envelopes: list[Limits], order: Any) -> None:
    both = intersection(envelopes)
    for one in envelopes:
        for mine, theirs in ((both.targets, one.targets), (both.mounts, one.mounts)):
            assert theirs is None or (mine is not None and set(mine) <= set(theirs))
        assert both.mdt_flavor.strength >= one.mdt_flavor.strength
        assert both.ost_flavor.strength >= one.ost_flavor.strength
        assert one.evidence is EvidenceLevel.INTROSPECTED or both.evidence is EvidenceLevel.SIGNED
        assert one.on_excess is OnExcess.CLAMP or both.on_excess is OnExcess.REFUSE
    shuffled = list(envelopes)
    order.shuffle(shuffled)
    again = intersection(shuffled)
    assert set(again.targets or "-") == set(both.targets or "-")
    assert (again.mdt_flavor, again.ost_flavor, again.evidence, again.on_excess) == (
        both.mdt_flavor,
        both.ost_flavor,
        both.evidence,
        both.on_excess,
    )
