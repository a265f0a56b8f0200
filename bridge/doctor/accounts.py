"""Checks that every row and every link still leads to the account that it pinned, as an admission would see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridge.doctor.finding import Finding, failed, ok
from bridge.errors import BridgeError, Outage
from bridge.policy.accounts import AccountRow, AccountRules, check
from bridge.policy.directory import Directory
from bridge.register import Link, LinkState

CHECK = "account-row"

_RESOLVE = "Correct the row in accounts.toml, or remove it if the person has left; find out who owns the account now."
_LATER = "Check getent passwd and getent group on this host, then ask again."


def check_accounts(rules: AccountRules, directory: Directory) -> Iterator[Finding]:
    """One finding for each row that no job can use now, and one for all that can be used."""
    good = 0
    for row in rules.rows.values():
        try:
            check(rules, row, directory.lookup(row.account))
        except BridgeError as error:
            yield _finding(row, error)
        else:
            good += 1
    yield ok("account-rows", "accounts.toml", f"{good} of {len(rules.rows)} rows resolve")


def check_links(links: Iterable[Link], rules: AccountRules, directory: Directory) -> Iterator[Finding]:
    """The same for the links that are in force."""
    active = [one for one in links if one.state is LinkState.ACTIVE]
    good = 0
    for link in active:
        row = AccountRow(link.issuer, link.user_id, link.account, link.uid)
        try:
            check(rules, row, directory.lookup(link.account))
        except BridgeError as error:
            remedy = _LATER if isinstance(error, Outage) else f"End it with 'ci-bridge account end {link.link_id}'."
            yield failed("account-link", f"{link.link_id}: {_whose(row)}", f"{error.title} [{error.code}]", remedy)
        else:
            good += 1
    yield ok("account-links", "register", f"{good} of {len(active)} links resolve")


def _finding(row: AccountRow, error: BridgeError) -> Finding:
    remedy = _LATER if isinstance(error, Outage) else _RESOLVE
    return failed(CHECK, _whose(row), f"{error.title} [{error.code}]", remedy)


def _whose(row: AccountRow) -> str:
    return f"user {row.user_id} of {row.issuer} -> {row.account} ({row.uid})"
