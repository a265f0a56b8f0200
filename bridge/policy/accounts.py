"""From a GitLab user to the posix account that they may become: a pinned row, and the account as it is right now.

The row says (issuer, user_id) -> account and uid. It is never "the same login": logins can be renamed and squatted, ids
can not. The account is looked up afresh at each admission, and must still be what the row pinned and what a person's
account may be; a row that maps to root loads, and is refused here. What else may say which account a person has, links
of the register and identity providers, is allowed here too; ``linked`` puts all of it together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Final

from pydantic import Field, field_validator

from bridge.errors import PolicyRefused
from bridge.model import ExternalIdentity, PosixAccount
from bridge.policy.directory import account_unknown
from bridge.policy.files import Table, parse_toml
from bridge.policy.names import ACCOUNT_PATTERN, AccountName
from bridge.policy.problems import InvalidBundle, Problem
from bridge.policy.teams import NO_TEAMS, Teams, TeamTable, teams_of

FILE: Final = "accounts.toml"

SHELLS_THAT_REFUSE: Final = frozenset({"nologin", "false", "true", "sync", "halt", "shutdown"})
"""Last parts of login shells with which an account can not run anything (nologin(8), passwd(5))."""

_NAME: Final = re.compile(ACCOUNT_PATTERN, re.ASCII)


class _RowTable(Table):
    issuer: str = Field(pattern=r"^https://[a-z0-9.:/_-]+$")
    user_id: int = Field(ge=1)
    account: AccountName
    uid: int = Field(ge=0, le=2**32 - 2)
    expires: date | None = None
    note: str = Field(default="", max_length=200)


class _FloorTable(Table):
    uid: int = Field(ge=1)


class _DeniedTable(Table):
    users: list[AccountName] = Field(default=[])
    groups: list[AccountName] = Field(default=[])


class _LinksTable(Table):
    self_service: bool = False
    admin: bool = False


class _ConsentTable(Table):
    ask_first: bool = False


class _ProviderTable(Table):
    issuer: str = Field(pattern=r"^https://[a-z0-9.:/_-]+$")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    account: str = Field(max_length=500)

    @field_validator("account")
    @classmethod
    def _one_group(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern, re.ASCII).groups
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if groups != 1:
            raise ValueError("must have one group, which is the account's name")
        return pattern


class _AccountsFile(Table):
    floor: _FloorTable
    denied: _DeniedTable
    links: _LinksTable = _LinksTable()
    consent: _ConsentTable = _ConsentTable()
    provider: list[_ProviderTable] = Field(default=[])
    account: list[_RowTable] = Field(default=[])
    team: list[TeamTable] = Field(default=[])


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One GitLab user's account, as an administrator pinned it."""

    issuer: str
    user_id: int
    account: str
    uid: int
    expires: date | None = None
    """The last day on which it counts, in the bundle's time zone."""


@dataclass(frozen=True, slots=True)
class Vouched:
    """An account by the word of an identity provider."""

    account: str
    provider: str


@dataclass(frozen=True, slots=True)
class TrustedProvider:
    """An identity provider whose logins name accounts of the cluster."""

    issuer: str
    name: str
    """As in the token's ``user_identities``, e.g. ``ldapmain``."""
    account: re.Pattern[str]
    """Matches the whole ``extern_uid``; its one group is the account."""


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The rows of ``accounts.toml``, what else may say so, and what no row can lift."""

    rows: Mapping[tuple[str, int], AccountRow]
    floor_uid: int
    """Accounts below are system accounts, and never become anybody's."""
    denied_users: frozenset[str]
    denied_groups: frozenset[str]
    self_service: bool = False
    """Whether people link themselves, by authenticating with Kerberos and with GitLab."""
    admin_links: bool = False
    """Whether links count that one administrator proposed and another approved."""
    providers: tuple[TrustedProvider, ...] = ()
    ask_first: bool = False
    """Whether a project runs as nobody who has not allowed it."""
    teams: Teams = NO_TEAMS

    def vouched(self, issuer: str, identities: Sequence[ExternalIdentity] | None) -> Vouched | None:
        """What a trusted provider says, as GitLab signed it; None also where two of them disagree."""
        found = {
            Vouched(match[1], provider.name)
            for provider in self.providers
            for one in identities or ()
            if (provider.issuer, provider.name) == (issuer, one.provider)
            and (match := provider.account.fullmatch(one.extern_uid)) is not None
            and _NAME.fullmatch(match[1] or "") is not None
        }
        return found.pop() if len({one.account for one in found}) == 1 else None


def not_mapped(issuer: str, user_id: int) -> PolicyRefused:
    """The refusal for a GitLab user whom nothing links to an account."""
    return PolicyRefused(
        "account.not_mapped",
        "Your GitLab user is not linked to an account on this cluster.",
        "Link it on the bridge's page /link where the site offers that, or ask the cluster's administrators to do it.",
        issuer=issuer,
        user_id=user_id,
    )


def parse_accounts(text: str) -> AccountRules:
    """The rules of the file's text; raises InvalidBundle, also when one GitLab user has two rows."""
    file = parse_toml(FILE, text, _AccountsFile)
    rows: dict[tuple[str, int], AccountRow] = {}
    for table in file.account:
        key = (table.issuer, table.user_id)
        if key in rows:
            raise InvalidBundle([Problem(FILE, None, f"user {table.user_id} of {table.issuer} has two rows")])
        rows[key] = AccountRow(table.issuer, table.user_id, table.account, table.uid, table.expires)
    try:
        teams = teams_of(file.team)
    except ValueError as error:
        raise InvalidBundle([Problem(FILE, None, str(error))]) from error
    return AccountRules(
        rows=MappingProxyType(rows),
        floor_uid=file.floor.uid,
        denied_users=frozenset(file.denied.users),
        denied_groups=frozenset(file.denied.groups),
        self_service=file.links.self_service,
        admin_links=file.links.admin,
        providers=tuple(
            TrustedProvider(one.issuer, one.name, re.compile(one.account, re.ASCII)) for one in file.provider
        ),
        ask_first=file.consent.ask_first,
        teams=teams,
    )


def warnings(rules: AccountRules) -> list[Problem]:
    """Rows that load and will be refused at run time: most likely a mistake."""
    privileged = [
        Problem(FILE, None, f"user {row.user_id} of {row.issuer} is linked to {row.account} ({row.uid}), never allowed")
        for row in rules.rows.values()
        if _never(rules, row.account, row.uid)
    ]
    privileged += [
        Problem(FILE, None, f"a team runs as {account} ({uid}), never allowed")
        for account, uid in sorted({(team.account, team.uid) for team in rules.teams.by_member.values()})
        if _never(rules, account, uid)
    ]
    return privileged


def _never(rules: AccountRules, account: str, uid: int) -> bool:
    return uid < rules.floor_uid or account in rules.denied_users


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
