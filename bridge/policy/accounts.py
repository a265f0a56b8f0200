"""From a GitLab user to the posix account that they may become: a pinned row, and the account as it is right now.

The row says (issuer, user_id) -> account and uid. It is never "the same login": logins can be renamed and squatted, ids
can not. The account is looked up afresh at each admission, and must still be what the row pinned and what a person's
account may be; a row that maps to root loads, and is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pydantic import Field

from bridge.errors import PolicyRefused
from bridge.model import PosixAccount
from bridge.policy.directory import Directory, account_unknown
from bridge.policy.files import Table, parse_toml
from bridge.policy.names import ACCOUNT_PATTERN, AccountName
from bridge.policy.problems import InvalidBundle, Problem

FILE: Final = "accounts.toml"

SHELLS_THAT_REFUSE: Final = frozenset({"nologin", "false", "true", "sync", "halt", "shutdown"})
"""Last parts of login shells with which an account can not run anything (nologin(8), passwd(5))."""

_NAME: Final = re.compile(ACCOUNT_PATTERN, re.ASCII)


class _RowTable(Table):
    issuer: str = Field(pattern=r"^https://[a-z0-9.:/_-]+$")
    user_id: int = Field(ge=1)
    account: AccountName
    uid: int = Field(ge=0, le=2**32 - 2)
    note: str = Field(default="", max_length=200)


class _FloorTable(Table):
    uid: int = Field(ge=1)


class _DeniedTable(Table):
    users: list[AccountName] = Field(default=[])
    groups: list[AccountName] = Field(default=[])


class _AccountsFile(Table):
    floor: _FloorTable
    denied: _DeniedTable
    account: list[_RowTable] = Field(default=[])


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One GitLab user's account, as an administrator pinned it."""

    issuer: str
    user_id: int
    account: str
    uid: int


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The rows of ``accounts.toml``, and what no row can lift."""

    rows: Mapping[tuple[str, int], AccountRow]
    floor_uid: int
    """Accounts below are system accounts, and never become anybody's."""
    denied_users: frozenset[str]
    denied_groups: frozenset[str]

    def row(self, issuer: str, user_id: int) -> AccountRow:
        """The row of a GitLab user; raises PolicyRefused ``account.not_mapped``."""
        found = self.rows.get((issuer, user_id))
        if found is None:
            raise PolicyRefused(
                "account.not_mapped",
                "Your GitLab user is not linked to an account on this cluster.",
                "Ask the cluster's administrators to link your GitLab user to your account.",
                issuer=issuer,
                user_id=user_id,
            )
        return found


def parse_accounts(text: str) -> AccountRules:
    """The rules of the file's text; raises InvalidBundle, also when one GitLab user has two rows."""
    file = parse_toml(FILE, text, _AccountsFile)
    rows: dict[tuple[str, int], AccountRow] = {}
    for table in file.account:
        key = (table.issuer, table.user_id)
        if key in rows:
            raise InvalidBundle([Problem(FILE, None, f"user {table.user_id} of {table.issuer} has two rows")])
        rows[key] = AccountRow(table.issuer, table.user_id, table.account, table.uid)
    return AccountRules(
        rows=MappingProxyType(rows),
        floor_uid=file.floor.uid,
        denied_users=frozenset(file.denied.users),
        denied_groups=frozenset(file.denied.groups),
    )


def warnings(rules: AccountRules) -> list[Problem]:
    """Rows that load and will be refused at run time: most likely a mistake."""
    return [
        Problem(FILE, None, f"user {row.user_id} of {row.issuer} is linked to {row.account} ({row.uid}), never allowed")
        for row in rules.rows.values()
        if row.uid < rules.floor_uid or row.account in rules.denied_users
    ]


def resolve(rules: AccountRules, directory: Directory, issuer: str, user_id: int) -> PosixAccount:
    """The account of a GitLab user as the directory describes it now, after every check.

    Raises PolicyRefused ``account.not_mapped`` and those of ``check``; Outage when the directory does not answer.
    """
    row = rules.row(issuer, user_id)
    account = directory.lookup(row.account)
    check(rules, row, account)
    return account


def check(rules: AccountRules, row: AccountRow, account: PosixAccount) -> None:
    """That ``account`` is what ``row`` pinned and what a person's account may be.

    Raises PolicyRefused ``account.unknown``, ``account.uid_changed``, ``account.privileged`` or ``account.no_shell``.
    """
    if account.name != row.account or _NAME.fullmatch(account.name) is None:
        raise account_unknown(row.account)
    if account.uid != row.uid:
        raise _uid_changed(row, account)
    _check_privileges(rules, account)
    if account.shell.rpartition("/")[2] in SHELLS_THAT_REFUSE:
        raise PolicyRefused(
            "account.no_shell",
            f"The account {account.name} is closed: its login shell lets nobody in.",
            "Ask the cluster's administrators to open the account, or to link another one.",
            account=account.name,
            shell=account.shell,
        )


def _uid_changed(row: AccountRow, account: PosixAccount) -> PolicyRefused:
    return PolicyRefused(
        "account.uid_changed",
        f"The account {account.name} is not the one that your GitLab user was linked to: its uid has changed.",
        "Ask the cluster's administrators to check who owns the account, and to link it again.",
        account=account.name,
        pinned_uid=row.uid,
        uid=account.uid,
    )


def _check_privileges(rules: AccountRules, account: PosixAccount) -> None:
    why = None
    if account.uid < rules.floor_uid:
        why = f"its uid is below {rules.floor_uid}"
    elif account.name in rules.denied_users:
        why = "it is on the list of denied accounts"
    elif denied := sorted(rules.denied_groups.intersection(account.groups)):
        why = f"it is in the denied group {denied[0]}"
    elif account.gid == 0:
        why = "its group is root's"
    if why is not None:
        raise PolicyRefused(
            "account.privileged",
            f"CI jobs never run as {account.name}: {why}.",
            "Ask the cluster's administrators to link your GitLab user to your personal account.",
            account=account.name,
            uid=account.uid,
        )
