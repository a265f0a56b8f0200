"""Which account a GitLab user has: by a row of ``accounts.toml``, a link of the register, or a trusted provider's word.

All that say something must say the same, since a second answer means that one of them is wrong. The account is looked
up afresh each time, and must still be what was pinned.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import PolicyRefused
from bridge.model import Identity, PosixAccount
from bridge.policy.accounts import AccountRow, AccountRules, Vouched, check, not_mapped
from bridge.policy.directory import Directory
from bridge.register import Link, LinkMethod, Register


@dataclass(frozen=True, slots=True)
class Mapped:
    """The account that a person may become, and why."""

    account: PosixAccount
    link_id: str | None
    """Of the register's link; None where a row of ``accounts.toml`` says so, or where it has yet to be pinned."""
    provider: str | None = None
    """The identity provider whose word is to be pinned with this first use."""


def resolve(rules: AccountRules, directory: Directory, register: Register, identity: Identity) -> Mapped:
    """The account of the identity's person as the directory describes it now, after every check.

    Raises PolicyRefused ``account.not_mapped``, ``account.conflict``, and those of ``accounts.check``; Outage when the
    directory does not answer.
    """
    row = rules.rows.get((identity.issuer, identity.user_id))
    vouched = rules.vouched(identity.issuer, identity.user_identities)
    link = _counting(rules, register.active_link(identity.issuer, identity.user_id), vouched)
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


def _counting(rules: AccountRules, link: Link | None, vouched: Vouched | None) -> Link | None:
    """The link, where policy still takes its kind; one from a provider only while the provider says so still."""
    if link is None:
        return None
    takes = {
        LinkMethod.SELF_SERVICE: rules.self_service,
        LinkMethod.ADMIN: rules.admin_links,
        LinkMethod.PROVIDER: vouched is not None,
    }
    return link if takes[link.method] else None


def _conflict(identity: Identity, names: set[str]) -> PolicyRefused:
    return PolicyRefused(
        "account.conflict",
        "Your GitLab user is linked to more than one account on this cluster.",
        "Ask the cluster's administrators to end the link that is wrong.",
        issuer=identity.issuer,
        user_id=identity.user_id,
        accounts=tuple(sorted(names)),
    )
