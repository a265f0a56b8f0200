"""Made-up people and accounts that show what policies make of anybody: named ones, others, and privileged ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bridge.errors import PolicyRefused
from bridge.model import PosixAccount
from bridge.policy.accounts import AccountRow, check
from bridge.policy.bundle import Bundle
from bridge.policy.facts import user_entity_id
from bridge.policy.reading import Path, Rule
from bridge.policy.rehearsal import Subject
from bridge.policy.situations import OTHER, UNNAMED

_SOMEBODY: Final = "somebody-else"
_MOST: Final = 400
_NO_ISSUER: Final = "https://gitlab.invalid"


def standins(bundle: Bundle, rules: Sequence[Rule]) -> tuple[Subject, ...]:
    """Every kind of user with every kind of account that ``rules`` can tell apart, at most a few hundred."""
    users, accounts = list(_users(bundle, rules)), list(_accounts(bundle, rules))
    if len(users) * len(accounts) > _MOST:
        pairs = [*((user, accounts[0]) for user in users), *((users[0], account) for account in accounts)]
    else:
        pairs = list(itertools.product(users, accounts))
    return tuple(Subject(*user, account) for user, account in pairs)


def admitted(bundle: Bundle, subjects: Iterable[Subject]) -> tuple[Subject, ...]:
    """Those whose account may be used at all, whatever policies say."""
    return tuple(subject for subject in subjects if _fit(bundle, subject))


def privileged(bundle: Bundle) -> dict[str, tuple[Subject, ...]]:
    """Accounts that no job may ever have, by what is wrong with them, in words."""
    floor = bundle.accounts.floor_uid
    usual = max(floor, UNNAMED)
    uids = (PosixAccount("below-the-floor", uid, usual, (), "/", "/bin/sh") for uid in (0, floor - 1))
    group = PosixAccount("in-roots-group", usual, 0, (), "/", "/bin/sh")
    return {
        f"an account whose uid is below {floor}": tuple(_anybody(bundle, one) for one in uids),
        "an account whose primary group is root's": (_anybody(bundle, group),),
    }


def _anybody(bundle: Bundle, account: PosixAccount) -> Subject:
    return Subject(_issuers(bundle, ())[0], UNNAMED, OTHER, account)


def _users(bundle: Bundle, rules: Sequence[Rule]) -> Iterator[tuple[str, int, str]]:
    issuers = _issuers(bundle, rules)
    yield issuers[0], UNNAMED, OTHER
    ids = _numbers(rules, Path("principal", "id"))
    logins = _texts(rules, Path("principal", "login"))
    named = {name for rule in rules for kind, name in rule.entities if kind == "User"}
    for issuer in issuers:
        yield from ((issuer, number, OTHER) for number in (UNNAMED, *ids))
        yield from ((issuer, UNNAMED, login) for login in logins)
    for name in sorted(named):
        issuer, _, number = name.rpartition("/")
        if number.isdecimal() and user_entity_id(issuer, int(number)) == name:
            yield issuer, int(number), OTHER


def _accounts(bundle: Bundle, rules: Sequence[Rule]) -> Iterator[PosixAccount]:
    usual = max(bundle.accounts.floor_uid, UNNAMED)
    names = sorted({name for rule in rules for kind, name in rule.entities if kind == "Account"})
    uids, gids = (_numbers(rules, Path("resource", one)) for one in ("uid", "gid"))
    yield PosixAccount(_SOMEBODY, usual, usual, (), "/", "/bin/sh")
    for name in (_SOMEBODY, *names):
        for uid, gid in itertools.product((usual, *uids), (usual, *gids)):
            yield PosixAccount(name, uid, gid, (), "/", "/bin/sh")


def _fit(bundle: Bundle, subject: Subject) -> bool:
    account = subject.account
    try:
        check(bundle.accounts, AccountRow(subject.issuer, subject.user_id, account.name, account.uid), account)
    except PolicyRefused:
        return False
    return True


def _issuers(bundle: Bundle, rules: Sequence[Rule]) -> list[str]:
    found = {issuer for issuer, _ in bundle.accounts.rows}
    for path in (Path("principal", "issuer"), Path("context", "issuer")):
        found.update(_texts(rules, path))
    return [*sorted(found), _NO_ISSUER]


def _numbers(rules: Sequence[Rule], path: Path) -> list[int]:
    constants = {json.loads(one) for rule in rules for one in rule.compared.get(path, ()) if not one.startswith("{")}
    near = {near for one in constants if isinstance(one, int) for near in (one - 1, one, one + 1)}
    return sorted(number for number in near if number >= 0)


def _texts(rules: Sequence[Rule], path: Path) -> list[str]:
    constants = {json.loads(one) for rule in rules for one in rule.compared.get(path, ()) if one.startswith('"')}
    return sorted(constants)
