"""Checks that every row of accounts.toml still leads to the account that it pinned, as an admission would see it."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.doctor.finding import Finding, failed, ok
from bridge.errors import BridgeError, Outage
from bridge.policy.accounts import AccountRow, AccountRules, check
from bridge.policy.directory import Directory

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


def _finding(row: AccountRow, error: BridgeError) -> Finding:
    subject = f"user {row.user_id} of {row.issuer} -> {row.account} ({row.uid})"
    remedy = _LATER if isinstance(error, Outage) else _RESOLVE
    return failed(CHECK, subject, f"{error.title} [{error.code}]", remedy)
