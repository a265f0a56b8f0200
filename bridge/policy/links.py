"""Who may become whom by ``accounts.toml`` alone: each GitLab user with each account that a row or team gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from bridge.errors import BridgeError
from bridge.model import Identity, PosixAccount
from bridge.policy.accounts import AccountRow, AccountRules
from bridge.policy.bundle import Bundle
from bridge.policy.directory import account_unknown
from bridge.policy.linked import resolve
from bridge.policy.question import Question
from bridge.policy.rehearsal import Subject
from bridge.policy.situations import FORK
from bridge.policy.teams import Team
from bridge.policy.timetable import DAY
from bridge.register import FIRST_REVISION, Register

DECIDE: Final = frozenset({"job_project_id", FORK, DAY})
"""Variables that decide which account a user has, and whether the link has ended."""


@dataclass(frozen=True, slots=True)
class Link:
    """A GitLab user and an account."""

    subject: Subject
    expires: date | None
    team: Team | None
    """None: it is the user's own account."""
    plain: bool
    """Whether all jobs of the user run as this account, at all times."""

    def used_by(self, rules: AccountRules, identity: Identity) -> bool:
        """Whether ``identity``, which is of this user, is one that runs as this account."""
        return rules.teams.of(identity) == self.team

    def refused(self, bundle: Bundle, question: Question) -> str | None:
        """The code with which the account itself is refused, before any policy is asked."""
        try:
            resolve(
                bundle.accounts,
                _Directory({question.account.name: question.account}),
                Register(FIRST_REVISION),
                question.identity,
                bundle.calendar.day(question.at),
            )
        except BridgeError as error:
            return error.code
        return None


@dataclass(frozen=True, slots=True)
class _Directory:
    by_name: Mapping[str, PosixAccount]

    def lookup(self, name: str) -> PosixAccount:
        if name not in self.by_name:
            raise account_unknown(name)
        return self.by_name[name]


def people_of(bundle: Bundle, directory: Mapping[str, PosixAccount] | None = None) -> Sequence[Link]:
    """Everybody with every account, by issuer and user id, the own account first.

    Without ``directory`` an account is as its row says, in no group but what a situation says.
    """
    rules = bundle.accounts
    teams = {(issuer, user_id, team): team for (issuer, user_id, _), team in rules.teams.by_member.items()}
    members = {(issuer, user_id) for issuer, user_id, _ in teams}
    own = [_link(row, directory, None, shared=key in members) for key, row in rules.rows.items()]
    shared = [
        _link(AccountRow(issuer, user_id, team.account, team.uid, team.expires), directory, team, shared=True)
        for issuer, user_id, team in teams
    ]
    return sorted(own + shared, key=_order)


def _link(row: AccountRow, directory: Mapping[str, PosixAccount] | None, team: Team | None, *, shared: bool) -> Link:
    account = PosixAccount(row.account, row.uid, row.uid, (), f"/home/{row.account}", "/bin/sh")
    if directory is not None:
        account = directory.get(row.account, account)
    subject = Subject(row.issuer, row.user_id, row.account, account)
    return Link(subject, row.expires, team, plain=not shared and row.expires is None)


def _order(link: Link) -> tuple[str, int, tuple[int, ...], str]:
    projects = tuple(sorted(link.team.projects)) if link.team else ()
    return link.subject.issuer, link.subject.user_id, projects, link.subject.account.name
