"""The access matrix: it says what the engine decides, for every person in every situation, and sums it up exactly."""

import itertools
import random
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_bundles import FORKS, OTHER, PROTECTED, bundle_of, forbid, permit
from policy_examples import ISSUER, texts

from bridge.errors import Defect, PolicyRefused
from bridge.model import PosixAccount
from bridge.policy.analysis import Matrix, Person, matrix
from bridge.policy.board import Board
from bridge.policy.bundle import Bundle
from bridge.policy.cases import ALLOWED
from bridge.policy.directory import account_unknown
from bridge.policy.engine import Engine
from bridge.policy.grid import Outcome
from bridge.policy.linked import resolve
from bridge.policy.question import Question
from bridge.policy.situations import Variable
from bridge.policy.summary import guards, lines, summaries, what_can, who_can
from bridge.policy.words import phrase
from bridge.register import FIRST_REVISION, Register

TODAY = date(2026, 11, 18)


class OneAccount:
    """A directory with the account of a question."""

    def __init__(self, account: PosixAccount) -> None:
        self.account = account

    def lookup(self, name: str) -> PosixAccount:
        if name != self.account.name:
            raise account_unknown(name)
        return self.account


def decided(bundle: Bundle, question: Question) -> tuple[str, object, Any]:
    """The engine's own decision, from the row on: code, policies, limits."""
    try:
        today = bundle.calendar.day(question.at)
        resolve(bundle.accounts, OneAccount(question.account), Register(FIRST_REVISION), question.identity, today)
        grant = Engine(bundle).decide(question)
    except PolicyRefused as error:
        return error.code, error.context.get("policy_ids", ()), None
    return ALLOWED, grant.policy_ids, grant.limits


def agrees(found: Matrix, person: Person, number: int) -> None:
    """That one cell says what the engine decides."""
    cell = person.outcome(number)
    if not found.possible >> number & 1:
        assert cell is None
        return
    question = found.stage.question(person.subject, found.board.at(number))
    team = found.bundle.accounts.teams.of(question.identity)
    assert (cell is not None) is (team == person.pairing.team)
    if cell is not None:
        code, policies, limits = decided(found.bundle, question)
        assert (cell.code, cell.limits) == (code, limits)
        assert cell.policies == policies or code.startswith("limits.")


@pytest.fixture(scope="module")
def shipped(bundle: Bundle) -> Matrix:
    return matrix(bundle, TODAY)


@pytest.fixture(scope="module")
def small() -> Matrix:
    return matrix(bundle_of(PROTECTED, OTHER, FORKS), TODAY)


def test_no_cell_of_the_matrix_differs_from_the_decision_of_a_real_job(shipped: Matrix) -> None:
    dice = random.Random(4)
    for person in shipped.people:
        for number in dice.sample(range(shipped.board.size), 60):
            agrees(shipped, person, number)
        for cells in person.cells.values():
            agrees(shipped, person, cells.bit_length() - 1)


def test_every_situation_of_a_person_has_one_outcome(shipped: Matrix) -> None:
    assert shipped.complete
    for person in shipped.people:
        union = 0
        for cells in person.cells.values():
            assert cells
            assert not union & cells
            union |= cells
        if person.pairing.plain:
            assert union == shipped.possible


def test_merged_values_are_decided_alike(shipped: Matrix) -> None:
    """A value that stands for others stands for no other decision."""
    dice = random.Random(5)
    person = shipped.people[0]
    for name, values in shipped.space.meaning.items():
        for meant in (some for some in values.values() if len(some) > 1):
            for number in dice.sample(range(shipped.board.size), 12):
                situation = shipped.board.at(number)
                said = {
                    decided(shipped.bundle, shipped.stage.question(person.subject, {**situation, name: value}))
                    for value in meant
                }
                assert len(said) == 1, (name, meant, situation)


def test_a_selection_of_situations_is_decided_alike(bundle: Bundle) -> None:
    found = matrix(bundle, TODAY, most=300)
    assert not found.complete
    assert found.board.size == 300
    permits = {name for name, info in bundle.policies.infos.items() if info.effect == "permit"}
    deciding = {name for person in found.people for one in person.cells if one.allowed for name in one.policies}
    assert deciding == permits, "each permit decides somewhere in a selection"
    for person in found.people:
        for number in range(0, found.board.size, 7):
            agrees(found, person, number)


def test_the_matrix_is_said_in_words(small: Matrix) -> None:
    assert lines(summaries(small), small.bundle.clusters.by_name) == [
        "101 at https://gitlab.realm.test: as alice (20001) on pocket",
        "    protected refs: standard",
        "    other refs: small",
        "102 at https://gitlab.realm.test: as bob (20002) on pocket until 2026-12-31",
        "    protected refs: standard",
        "    other refs: small",
        "105 at https://gitlab.realm.test: as root (0) on pocket: never (account.privileged)",
    ]
    assert guards(small) == {"forks": "no."}


@pytest.mark.threat("T18")
def test_nobody_is_said_to_run_as_root(shipped: Matrix) -> None:
    assert who_can(shipped, "root") == []
    assert [one.access for one in what_can(shipped, 105)] == [()]


def test_who_can_and_what_can_name_people_accounts_and_rules(shipped: Matrix) -> None:
    assert [(one.user_id, one.projects) for one in who_can(shipped, "svc-chem")] == [(101, (90041,)), (102, (90041,))]
    assert [one.account for one in what_can(shipped, 102)] == ["bob", "svc-chem"]
    assert what_can(shipped, 102, "https://gitlab.example") == []
    assert what_can(shipped, 102, ISSUER) == what_can(shipped, 102)
    (alice,) = who_can(shipped, "alice")
    standard = next(one for one in alice.access if one.limits == ("standard",))
    assert standard.policies == ("people-on-protected-refs",)


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ([permit("a")], ["always: small"]),
        ([permit("a", head='principal == User::"https://gitlab.realm.test/102"')], []),
        ([permit("a", head='principal == User::"https://gitlab.realm.test/101"')], ["always: small"]),
        ([permit("a", "when { principal.id < 102 };")], ["always: small"]),
        ([permit("a", 'when { context.issuer == "https://gitlab.realm.test" };')], ["always: small"]),
        ([permit("a", resource='resource in PosixGroup::"chem"')], ["in group chem: small"]),
        ([permit("a", resource='resource == Account::"alice"')], ["always: small"]),
        ([permit("a", resource='resource == Account::"bob"')], []),
        ([permit("a", "when { resource.uid == 20001 };")], ["always: small"]),
        ([permit("a", "when { context.job_project_id == 42 };")], ["project 42: small"]),
        ([permit("a", 'when { context.evidence == "id_token" };')], ["jobs with an id_token: small"]),
        (
            [permit("a", 'when { context.pipeline_source == "push" };', "small")],
            ["pipeline source push: small"],
        ),
        (
            [permit("a", 'when { ["push", "schedule"].contains(context.pipeline_source) };', "small")],
            ["pipeline source push or schedule: small"],
        ),
        (
            [permit("a", 'when { context has environment && context.environment == "prod" };')],
            ["environment prod: small"],
        ),
        (
            [permit("a", 'when { context has groups && context.groups.contains("g/h") };')],
            ["GitLab groups g/h: small"],
        ),
        ([permit("a", 'when { context.ref like "release-*" };')], ["ref release-: small"]),
        ([permit("a", "when { context.hour >= 8 && context.hour < 18 };")], ["08:00 to 17:59: small"]),
        ([permit("a", "when { context.hour >= 20 };")], ["from 20:00: small"]),
        ([permit("a", "when { context.minute_of_day < 450 };")], ["until 07:29: small"]),
        ([permit("a", "when { context.date < 20270101 };")], ["until 2026-12-31: small"]),
        ([permit("a", "when { context.weekday > 5 };")], ["on days like Sat 2026-11-21, Sun 2026-11-22: small"]),
        (
            [permit("a").replace("@limits", '@expires("2026-11-30") @limits')],
            ["until 2026-11-30: small"],
        ),
        ([permit("a", "when { context has nodes && context.nodes <= 1 };")], ["nodes asked for 1: small"]),
        ([permit("a"), forbid("b", "when { context.ref_protected };")], ["always: small"]),
        ([permit("a"), forbid("b")], []),
        (
            [permit("a"), permit("b", "when { context.ref_protected };", "standard")],
            ["protected refs: small and standard", "other refs: small"],
        ),
        ([forbid("b")], []),
    ],
    ids=str,
)  # fmt: skip
def test_conditions_are_said_in_words(policies: list[str], said: list[str]) -> None:
    found = matrix(bundle_of(*policies), TODAY)
    (alice,) = what_can(found, 101)
    got = [f"{condition}: {' and '.join(one.limits)}" for one in alice.access for condition in one.conditions]
    assert sorted(got) == sorted(said)


def test_a_link_ends_with_its_last_day() -> None:
    rule = permit("a", "when { context.date < 20270115 };", "small")
    found = matrix(bundle_of(rule), TODAY)
    bob = next(person for person in found.people if person.subject.user_id == 102)
    codes = {
        found.stage.question(bob.subject, found.board.at(n)).at.date(): bob.outcome(n) for n in range(found.board.size)
    }
    assert {day: one.code for day, one in codes.items() if one and one.code != "limits.evidence"} == {
        TODAY: ALLOWED,
        date(2027, 1, 14): "account.expired",
        date(2027, 1, 15): "account.expired",
    }  # fmt: skip


def test_groups_of_the_directory_take_the_place_of_conditions() -> None:
    bundle = bundle_of(permit("chem", resource='resource in PosixGroup::"chem"'))
    directory = {"alice": PosixAccount("alice", 20001, 20001, ("chem",), "/home/alice", "/bin/sh")}
    found = matrix(bundle, TODAY, directory=directory)
    assert [(one.user_id, bool(one.access)) for one in summaries(found)] == [(101, True), (102, False), (105, False)]
    gone = {"alice": PosixAccount("alice", 29999, 20001, ("chem",), "/home/alice", "/bin/sh")}
    (alice,) = what_can(matrix(bundle, TODAY, directory=gone), 101)
    assert set(alice.refused) == {"account.uid_changed"}


def test_two_clusters_are_part_of_the_situations() -> None:
    clusters = texts()["clusters.toml"]
    second = clusters.partition("[cluster.pocket]")[2].replace("login.realm.test", "login2.realm.test")
    rule = permit("a", 'when { context.cluster == "purse" };')
    found = bundle_of(rule, clusters_toml=f"{clusters}\n[cluster.purse]{second}")
    (alice,) = what_can(matrix(found, TODAY), 101)
    assert [one.conditions for one in alice.access] == [("cluster purse",)]


def test_where_a_policy_can_not_be_evaluated_nobody_is_said_to_run() -> None:
    big = forbid("big", "when { context has nodes && context.nodes * 9223372036854775807 > 5 };")
    found = matrix(bundle_of(permit("a"), big), TODAY)
    (alice, *_) = found.people
    assert {one.code for one in alice.cells} == {ALLOWED, "policy.evaluation_failed"}
    for number in range(found.board.size):
        question = found.stage.question(alice.subject, found.board.at(number))
        try:
            code = decided(found.bundle, question)[0]
        except Defect as error:
            code = error.code
        cell = alice.outcome(number)
        assert cell is None or cell.code == code


def test_the_size_of_the_answer_is_bounded_whatever_the_bundle_says() -> None:
    rules = [permit(f"p{number}", f"when {{ context.runner_id == {number * 10} }};") for number in range(1, 14)]
    rules += [
        forbid(f"f{number}", f'when {{ context.{name} == "x" }};') for number, name in enumerate(("ref", "job_name"))
    ]
    found = matrix(bundle_of(*rules), TODAY, most=40)
    assert (found.complete, found.board.size) == (False, 40)


VARIABLES = (Variable("a", ("1", "2", "3")), Variable("b", ("true", "false")), Variable("c", ("", "x", "y", "z")))


def test_a_full_board_is_the_selection_of_all_combinations() -> None:
    names = [variable.name for variable in VARIABLES]
    every = [dict(zip(names, values, strict=True)) for values in itertools.product(*(one.values for one in VARIABLES))]
    full, listed = Board.full(VARIABLES), Board.of(VARIABLES, every)
    assert full.size == listed.size == 24
    assert full.masks == listed.masks
    assert [full.at(number) for number in range(24)] == [listed.at(number) for number in range(24)]
    assert full.apart(["c", "a"]) == listed.apart(["c", "a"])


@settings(max_examples=200, deadline=None)
@given(cells=st.integers(0, 2**24 - 1), ignored=st.integers(0, 2**24 - 1))
def test_descriptions_fit_exactly_what_they_describe(cells: int, ignored: int) -> None:
    board = Board.full(VARIABLES)
    among = cells | (board.all & ~ignored)
    union = 0
    for cube in board.cover(cells, among):
        assert board.within(cube) & cells
        union |= board.within(cube)
    assert union & among == cells


def test_an_outcome_without_limits_allows_nothing() -> None:
    assert not Outcome("policy.no_permit").allowed
    assert phrase(matrix(bundle_of(PROTECTED), TODAY).space, {}) == "always"
