"""The access matrix with the links that people made: they are in it, and it says of them what a real job would get."""

import itertools
import random
from datetime import date
from typing import Any

import pytest
from policy_bundles import ACCOUNTS, OTHER, PROTECTED, bundle_of

from bridge.errors import PolicyRefused
from bridge.model import Limits, PosixAccount
from bridge.policy.analysis import matrix
from bridge.policy.bundle import Bundle
from bridge.policy.cases import ALLOWED
from bridge.policy.difference import difference
from bridge.policy.engine import Engine
from bridge.policy.linked import resolve_vouched
from bridge.policy.question import Question
from bridge.policy.summary import who_can
from bridge.register import FIRST_REVISION, Link, LinkMethod, LinkState, Register
from tests.register_example import admin_link, link

TODAY = date(2026, 11, 18)
TAKEN = """
[links]
self_service = true
admin = true
[[provider]]
issuer = "https://gitlab.realm.test"
name = "saml"
account = "([a-z]+)"
"""
CAROL: dict[str, Any] = {"user_login": "carol", "account": "carol", "uid": 20003}


def bundle(taken: str = TAKEN) -> Bundle:
    return bundle_of(PROTECTED, OTHER, accounts_toml=ACCOUNTS + taken)


def register(*links: Link) -> Register:
    return Register(FIRST_REVISION, links=links)


def rows(found: Bundle, *links: Link, user_id: int) -> dict[str, tuple[bool, set[str]]]:
    """A user's accounts in the matrix: whether it is ever theirs, and the codes with which it is refused."""
    return {
        one.subject.account.name: (
            one.allowed() > 0,
            {outcome.code for outcome in one.cells if outcome.code.startswith("account.")},
        )
        for one in matrix(found, TODAY, register=register(*links)).people
        if one.subject.user_id == user_id
    }


@pytest.mark.parametrize(
    ("made", "taken", "expected"),
    [
        (link(user_id=103, **CAROL), TAKEN, {"carol": (True, set())}),
        (admin_link(user_id=103, **CAROL), TAKEN, {"carol": (True, set())}),
        (link(user_id=103, method=LinkMethod.PROVIDER, **CAROL), TAKEN, {"carol": (True, set())}),
        (link(user_id=103, **CAROL), "", {}),
        (admin_link(user_id=103, **CAROL), "[links]\nself_service = true\n", {}),
        (link(user_id=103, method=LinkMethod.PROVIDER, **CAROL), "[links]\nself_service = true\n", {}),
        (link(user_id=103, state=LinkState.REVOKED, **CAROL), TAKEN, {}),
        (admin_link(user_id=103, state=LinkState.PROPOSED, **CAROL), TAKEN, {}),
        (
            link(user_id=103, **CAROL | {"uid": 999}),
            TAKEN,
            {"carol": (False, {"account.privileged"})},
        ),
        (link(user_id=101), TAKEN, {"alice": (True, set())}),
        (link(user_id=101, uid=20009), TAKEN, {"alice": (False, {"account.uid_changed"})}),
        (
            link(user_id=101, **CAROL),
            TAKEN,
            {"alice": (False, {"account.conflict"}), "carol": (False, {"account.conflict"})},
        ),
    ],
    ids=map(str, itertools.count()),
)
def test_nobody_whom_a_link_lets_in_is_missing_and_nobody_else_is_in_it(
    made: Link, taken: str, expected: dict[str, tuple[bool, set[str]]]
) -> None:
    assert rows(bundle(taken), made, user_id=made.user_id) == expected


@pytest.mark.parametrize("made", [link(user_id=103, **CAROL), link(user_id=101, **CAROL), link(user_id=101)])
def test_each_cell_of_a_linked_person_is_the_engines_decision(made: Link) -> None:
    found, links, dice = matrix(bundle(), TODAY, register=register(made)), register(made), random.Random(7)
    for person in (one for one in found.people if one.subject.user_id == made.user_id):
        possible = [number for number in range(found.board.size) if found.possible >> number & 1]
        for number in dice.sample(possible, min(40, len(possible))):
            question = found.stage.question(person.subject, found.board.at(number))
            cell = person.outcome(number)
            assert cell is not None
            assert (cell.code, cell.limits) == _decided(found.bundle, links, question)


def _decided(bundle: Bundle, links: Register, question: Question) -> tuple[str, Limits | None]:
    rules, identity = bundle.accounts, question.identity
    vouched = rules.vouched(identity.issuer, identity.user_identities)
    try:
        resolve_vouched(rules, _One(question.account), links, identity, vouched, TODAY)
        return ALLOWED, Engine(bundle).decide(question).limits
    except PolicyRefused as error:
        return error.code, None


class _One:
    """A directory with one account."""

    def __init__(self, account: PosixAccount) -> None:
        self._account = account

    def lookup(self, name: str) -> PosixAccount:
        assert name == self._account.name
        return self._account


def test_who_can_run_as_an_account_names_who_linked_it() -> None:
    found = matrix(bundle(), TODAY, register=register(link(user_id=103, **CAROL)))
    assert [(one.user_id, one.uid) for one in who_can(found, "carol")] == [(103, 20003)]


def test_what_a_provider_said_counts_while_policy_trusts_it() -> None:
    linked = register(link(user_id=103, method=LinkMethod.PROVIDER, **CAROL))
    lost = difference(bundle(), bundle("[links]\nself_service = true\nadmin = true\n"), TODAY, register=linked)
    assert [(one.kind, one.people) for one in lost.shifts] == [
        ("lost", (("https://gitlab.realm.test", 103, "carol (20003)"),)),
    ] * len(lost.shifts)
    assert lost.shifts


def test_a_change_that_lets_linked_people_in_is_not_silent() -> None:
    links = register(link(user_id=103, **CAROL))
    shown = difference(bundle(""), bundle(), TODAY, register=links)
    assert any(shift.loud and shift.people[0][2] == "carol (20003)" for shift in shown.shifts)
    assert not any(shift.people[0][2] == "carol (20003)" for shift in difference(bundle(""), bundle(), TODAY).shifts)
