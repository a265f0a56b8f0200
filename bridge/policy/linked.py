"""Which account a GitLab user has: by a team or row of ``accounts.toml``, a link, or a trusted provider's word.

A team's account stands alone. All others that say something must say the same, since a second answer means that one of
them is wrong. The account is looked up afresh each time, and must still be what was pinned.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Final

from bridge.errors import PolicyRefused
from bridge.model import Identity, PosixAccount
from bridge.policy.accounts import AccountRow, AccountRules, Vouched, check, not_mapped
from bridge.policy.calendar import over
from bridge.policy.directory import Directory
from bridge.register import FIRST_REVISION, Link, LinkMethod, Register

NO_LINKS: Final = Register(FIRST_REVISION)
"""Where only the bundle's own rows and teams are asked."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """The account that a person may become, and why."""

    account: PosixAccount
    link_id: str | None
    """Of the register's link; None where a row of ``accounts.toml`` says so, or where it has yet to be pinned."""
    provider: str | None = None
    """The identity provider whose word is to be pinned with this first use."""


def resolve(rules: AccountRules, directory: Directory, register: Register, identity: Identity, today: date) -> Mapped:
    """The account of the identity's person as the directory describes it now, after every check.

    ``today`` is the site's date. Raises PolicyRefused ``account.not_mapped``, ``account.expired``,
    ``account.conflict``, and those of ``accounts.check``; Outage when the directory does not answer.
    """
    vouched = rules.vouched(identity.issuer, identity.user_identities)
    return resolve_vouched(rules, directory, register, identity, vouched, today)


def resolve_vouched(
    rules: AccountRules,
    directory: Directory,
    register: Register,
    identity: Identity,
    vouched: Vouched | None,
    today: date,
) -> Mapped:
    """As ``resolve``, where it is known already what a trusted provider says of the person."""
    team = rules.teams.of(identity)
    if team is not None:
        row = AccountRow(identity.issuer, identity.user_id, team.account, team.uid, team.expires)
        return _pinned(rules, directory, row, today)
    return _own(rules, directory, register, identity, vouched, today)


def counts(rules: AccountRules, link: Link, vouched: Vouched | None) -> bool:
    """Whether policy still takes a link of this kind; one from a provider only while the provider says so still."""
    takes = {
        LinkMethod.SELF_SERVICE: rules.self_service,
        LinkMethod.ADMIN: rules.admin_links,
        LinkMethod.PROVIDER: vouched is not None,
    }
    return takes[link.method]


def _pinned(rules: AccountRules, directory: Directory, row: AccountRow, today: date) -> Mapped:
    """What ``accounts.toml`` says alone: a team's account."""
    _require_time(row, today)
    account = directory.lookup(row.account)
    check(rules, row, account)
    return Mapped(account, None)


def _own(
    rules: AccountRules,
    directory: Directory,
    register: Register,
    identity: Identity,
    vouched: Vouched | None,
    today: date,
) -> Mapped:
    row = rules.rows.get((identity.issuer, identity.user_id))
    if row is not None:
        _require_time(row, today)
    link = register.active_link(identity.issuer, identity.user_id)
    if link is not None and not counts(rules, link, vouched):
        link = None
    names = {one.account for one in (row, link) if one is not None} | ({vouched.account} if vouched else set())
    if not names:
        raise not_mapped(identity.issuer, identity.user_id)
    if len(names) > 1:
        raise _conflict(identity, names)
    account = directory.lookup(names.pop())
    for pinned in (row, link):
        if pinned is not None:
            check(rules, AccountRow(identity.issuer, identity.user_id, pinned.account, pinned.uid), account)
    if row is not None:
        return Mapped(account, None)
    if link is not None:
        return Mapped(account, link.link_id)
    check(rules, AccountRow(identity.issuer, identity.user_id, account.name, account.uid), account)
    return Mapped(account, None, vouched.provider if vouched else None)


def _require_time(row: AccountRow, today: date) -> None:
    if over(row.expires, today):
        raise PolicyRefused(
            "account.expired",
            f"Your link to the account {row.account} ended on {row.expires}.",
            "Ask the cluster's administrators to renew the link.",
            account=row.account,
            user_id=row.user_id,
        )


def _conflict(identity: Identity, names: set[str]) -> PolicyRefused:
    return PolicyRefused(
        "account.conflict",
        "Your GitLab user is linked to more than one account on this cluster.",
        "Ask the cluster's administrators to end the link that is wrong.",
        issuer=identity.issuer,
        user_id=identity.user_id,
        accounts=tuple(sorted(names)),
    )
