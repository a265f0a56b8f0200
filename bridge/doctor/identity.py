"""The identity section: issuers, their clocks, and the rows that link GitLab users to accounts."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.audit.ledger import Ledger
from bridge.doctor.accounts import check_accounts, check_links
from bridge.doctor.finding import Finding, failed
from bridge.doctor.issuers import check_issuer
from bridge.errors import BridgeError
from bridge.policy.accounts import AccountRules
from bridge.policy.bundle import load_bundle
from bridge.policy.directory import NssDirectory
from bridge.settings import Settings


def check_identity(settings: Settings, ledger: Ledger | None = None) -> Iterator[Finding]:
    """All checks of the section, one after the other; none of them raises for what it finds, or changes anything.

    Without a ``ledger`` the links of the register are not looked at.
    """
    for issuer in settings.issuers:
        yield from check_issuer(issuer)
    try:
        rules = load_bundle(settings.policies).accounts
    except BridgeError as error:
        detail = f"{error.title} [{error.code}]"
        yield failed("account-rows", str(settings.policies), detail, error.remedy)
    else:
        directory = NssDirectory()
        yield from check_accounts(rules, directory)
        if ledger is not None:
            yield from _links(ledger, rules, directory)


def _links(ledger: Ledger, rules: AccountRules, directory: NssDirectory) -> Iterator[Finding]:
    try:
        with ledger.read() as view:
            links = view.register().links
    except BridgeError as error:
        yield failed("account-links", "register", f"{error.title} [{error.code}]", error.remedy)
    else:
        yield from check_links(links, rules, directory)
