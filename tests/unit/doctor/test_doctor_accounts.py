"""Rows of accounts.toml that no job can use any more are named, each with its reason (T11, T18)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bridge.doctor.accounts import check_accounts, check_links
from bridge.doctor.finding import Finding, State
from bridge.errors import Outage
from bridge.model import PosixAccount
from bridge.policy.accounts import parse_accounts
from bridge.policy.directory import account_unknown
from bridge.register import Link, LinkMethod, LinkState

ROWS = """
[floor]
uid = 1000
[denied]
users = ["shared"]
groups = ["wheel"]
""" + "".join(
    f'[[account]]\nissuer = "https://gitlab.realm.test"\nuser_id = {number}\naccount = "{name}"\nuid = {uid}\n'
    for number, name, uid in [
        (1, "alice", 2001),
        (2, "gone", 2002),
        (3, "reused", 2003),
        (4, "root", 0),
        (5, "closed", 2005),
        (6, "shared", 2006),
        (7, "sudoer", 2007),
        (8, "unsure", 2008),
    ]
)

ALICE = PosixAccount("alice", 2001, 3000, ("chem",), "/home/alice", "/bin/bash")
ACCOUNTS = {
    "alice": ALICE,
    "reused": replace(ALICE, name="reused", uid=2999),
    "root": replace(ALICE, name="root", uid=0, gid=0),
    "closed": PosixAccount("closed", 2005, 3000, (), "/home/closed", "/usr/sbin/nologin"),
    "shared": replace(ALICE, name="shared", uid=2006),
    "sudoer": replace(ALICE, name="sudoer", uid=2007, groups=("wheel",)),
}


class Table:
    """A directory with these accounts, which does not answer for one name."""

    def lookup(self, name: str) -> PosixAccount:
        if name == "unsure":
            raise Outage("directory.unreachable", "The directory could not be asked.", "Later.")
        if name not in ACCOUNTS:
            raise account_unknown(name)
        return ACCOUNTS[name]


@pytest.fixture
def findings() -> list[Finding]:
    return list(check_accounts(parse_accounts(ROWS), Table()))


@pytest.mark.threat("T11")
@pytest.mark.threat("T18")
@pytest.mark.parametrize(
    ("user_id", "code"),
    [
        (2, "account.unknown"),
        (3, "account.uid_changed"),
        (4, "account.privileged"),
        (5, "account.no_shell"),
        (6, "account.privileged"),
        (7, "account.privileged"),
        (8, "directory.unreachable"),
    ],
)
def test_each_row_that_no_longer_resolves_is_named(findings: list[Finding], user_id: int, code: str) -> None:
    (found,) = [one for one in findings if one.subject.startswith(f"user {user_id} ")]
    assert found.state is State.FAILED
    assert f"[{code}]" in found.detail
    assert found.remedy


def test_rows_that_resolve_are_counted_and_not_listed(findings: list[Finding]) -> None:
    assert findings[-1].detail == "1 of 8 rows resolve"
    assert not any("user 1 " in one.subject for one in findings)


def test_a_finding_that_is_not_good_needs_a_remedy() -> None:
    with pytest.raises(ValueError, match="remedy"):
        Finding("issuer-tls", "x", State.FAILED, "broken")


def test_links_in_force_that_no_job_can_use_are_named() -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    links = [
        Link(f"L{number}", "https://gitlab.realm.test", number, "", name, uid, LinkMethod.ADMIN, state, "ada", now)
        for number, name, uid, state in [
            (1, "alice", 2001, LinkState.ACTIVE),
            (2, "gone", 2002, LinkState.ACTIVE),
            (3, "reused", 2003, LinkState.REVOKED),
            (4, "alice", 2099, LinkState.ACTIVE),
        ]
    ]
    *bad, last = check_links(links, parse_accounts(ROWS), Table())
    assert [(one.state, one.subject.partition(":")[0]) for one in bad] == [(State.FAILED, "L2"), (State.FAILED, "L4")]
    assert "account.unknown" in bad[0].detail
    assert "account.uid_changed" in bad[1].detail
    assert "ci-bridge account end L4" in bad[1].remedy
    assert (last.state, last.detail) == (State.OK, "1 of 3 links resolve")
