"""Who may become whom: each GitLab user with each account that a row, a team or a link of the register gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from bridge.errors import BridgeError
from bridge.model import Identity, PosixAccount
from bridge.policy.accounts import AccountRow, AccountRules, Vouched
from bridge.policy.bundle import Bundle
from bridge.policy.directory import account_unknown
from bridge.policy.linked import NO_LINKS, counts, resolve_vouched
from bridge.policy.question import Question
from bridge.policy.rehearsal import Subject
from bridge.policy.situations import FORK
from bridge.policy.teams import Team
from bridge.policy.timetable import DAY
from bridge.register import Link, LinkMethod, LinkState, Register

DECIDE: Final = frozenset({"job_project_id", FORK, DAY})
"""Variables that decide which account a user has, and whether the link has ended."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """A GitLab user and an account."""

    subject: Subject
    expires: date | None
    team: Team | None
    """None: it is the user's own account."""
    plain: bool
    """Whether all jobs of the user run as this account, at all times."""
    link: Link | None = None
    """Of the register, where that alone says so."""

    def used_by(self, rules: AccountRules, identity: Identity) -> bool:
        """Whether ``identity``, which is of this user, is one that runs as this account."""
        return rules.teams.of(identity) == self.team

    def refused(self, bundle: Bundle, register: Register, question: Question) -> str | None:
        """The code with which the account itself is refused, before any policy is asked.

        Of a person whom a provider vouched for, it is taken that the provider does so still.
        """
        vouched = _vouched(bundle.accounts, self.link) if self.link else None
        try:
            resolve_vouched(
                bundle.accounts,
                _Directory({question.account.name: question.account}),
                register,
                question.identity,
                vouched or bundle.accounts.vouched(question.identity.issuer, question.identity.user_identities),
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


def people_of(
    bundle: Bundle, directory: Mapping[str, PosixAccount] | None = None, register: Register = NO_LINKS
) -> Sequence[Pairing]:
    """Everybody with every account, by issuer and user id, the own account first.

    Without ``directory`` an account is as its row or link says, in no group but what a situation says. A link that
    says the same as a row is not named again.
    """
    rules = bundle.accounts
    teams = {(issuer, user_id, team): team for (issuer, user_id, _), team in rules.teams.by_member.items()}
    members = {(issuer, user_id) for issuer, user_id, _ in teams}
    own = [_pairing(row, directory, shared=key in members) for key, row in rules.rows.items()]
    linked = [
        _pairing(
            AccountRow(link.issuer, link.user_id, link.account, link.uid),
            directory,
            shared=(link.issuer, link.user_id) in members,
            link=link,
        )
        for link in _counting(rules, register)
    ]
    shared = [
        _pairing(AccountRow(issuer, user_id, team.account, team.uid, team.expires), directory, team=team, shared=True)
        for issuer, user_id, team in teams
    ]
    return sorted(own + linked + shared, key=_order)


def _counting(rules: AccountRules, register: Register) -> Iterator[Link]:
    """The links that count and say something that no row says."""
    for link in register.links:
        row = rules.rows.get((link.issuer, link.user_id))
        said = row is not None and row.account == link.account
        if link.state is LinkState.ACTIVE and not said and counts(rules, link, _vouched(rules, link)):
            yield link


def _vouched(rules: AccountRules, link: Link) -> Vouched | None:
    """What the provider that a link came from says, if policy trusts one of that GitLab still."""
    if link.method is not LinkMethod.PROVIDER:
        return None
    trusted = (one.name for one in rules.providers if one.issuer == link.issuer)
    return next((Vouched(link.account, name) for name in trusted), None)


def _pairing(
    row: AccountRow,
    directory: Mapping[str, PosixAccount] | None,
    *,
    shared: bool,
    team: Team | None = None,
    link: Link | None = None,
) -> Pairing:
    account = PosixAccount(row.account, row.uid, row.uid, (), f"/home/{row.account}", "/bin/sh")
    if directory is not None:
        account = directory.get(row.account, account)
    subject = Subject(row.issuer, row.user_id, row.account, account)
    return Pairing(subject, row.expires, team, plain=not shared and row.expires is None, link=link)


def _order(pairing: Pairing) -> tuple[str, int, tuple[int, ...], str]:
    projects = tuple(sorted(pairing.team.projects)) if pairing.team else ()
    return pairing.subject.issuer, pairing.subject.user_id, projects, pairing.subject.account.name
