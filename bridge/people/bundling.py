"""What a bundle that somebody proposes must be before it is kept, and before anybody can put it in force."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bridge.errors import RequestRefused
from bridge.policy.accounts import AccountRules
from bridge.policy.bundle import Bundle
from bridge.policy.files import OPTIONAL, REQUIRED
from bridge.policy.roles import Role, Roles
from bridge.policy.trial import run_cases
from bridge.proposals import person_of

MAX_BUNDLE_BYTES: Final = 4 * 1024 * 1024
MAX_FILES: Final = 200

LOWEST_FLOOR: Final = 500
"""No system gives people lower uids (login.defs(5): UID_MIN is 1000, and was 500)."""

Files = Mapping[str, str]

_FREE: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\.cedar|cases/[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\.toml", re.ASCII
)


def accepted(files: Files) -> Files:
    """The files as they are kept, with lines that end in one way; they need not make a good bundle yet.

    Raises RequestRefused ``policy.file_name``, ``policy.characters`` or ``policy.too_large``. A character that does not
    show could make an approver read something else than the engine does.
    """
    for name in files:
        if name not in (*REQUIRED, *OPTIONAL) and _FREE.fullmatch(name) is None:
            raise RequestRefused(
                "policy.file_name",
                f"No policy bundle has a file {name[:80]!a}.",
                f"Send {', '.join((*REQUIRED, *OPTIONAL))}, *.cedar and cases/*.toml only.",
            )
    texts = {name: text.replace("\r\n", "\n") for name, text in files.items()}
    for name, text in texts.items():
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.replace("\t", " ").isprintable():
                raise RequestRefused(
                    "policy.characters",
                    f"{name}:{number} has characters that can not be seen.",
                    "Write what people can read: no control characters, no direction marks, no unusual spaces.",
                )
    size = sum(len(name.encode()) + len(text.encode()) for name, text in texts.items())
    if size > MAX_BUNDLE_BYTES or len(texts) > MAX_FILES:
        raise RequestRefused(
            "policy.too_large",
            f"The bundle has {len(texts)} files with {size} bytes; {MAX_FILES} with {MAX_BUNDLE_BYTES} are the most.",
            "Take rows out; an identity provider or links of the register can stand for many of accounts.toml.",
        )
    return texts


def require_good(bundle: Bundle) -> None:
    """Pass where its own cases come out as written, and system accounts stay out of reach.

    A row for root is refused at each admission by the floor and the lists; so these are what counts here. Raises
    RequestRefused ``policy.cases_failed`` or ``policy.privileged``.
    """
    failed = tuple(one.name for one in run_cases(bundle) if not one.passed)
    if failed:
        raise RequestRefused(
            "policy.cases_failed",
            f"{len(failed)} of the bundle's own cases come out otherwise than written, first: {failed[0]}.",
            "Run 'ci-bridge policy test', then correct the policy or the case.",
            failed=failed,
        )
    if bundle.accounts.floor_uid < LOWEST_FLOOR:
        raise _privileged(f"Keep floor.uid in accounts.toml at {LOWEST_FLOOR} or more.", bundle.accounts)


def require_no_more_reach(rules: AccountRules, base: AccountRules) -> None:
    """Pass where no account is in reach that ``base`` keeps out: nobody reviews an emergency's bundle.

    Raises RequestRefused ``policy.privileged``.
    """
    kept_out = (
        rules.floor_uid >= base.floor_uid
        and rules.denied_users >= base.denied_users
        and rules.denied_groups >= base.denied_groups
    )
    if not kept_out:
        raise _privileged("Keep the floor and the denied users and groups of the bundle in force.", rules)


def require_governable(roles: Roles) -> None:
    """Pass where two people can change policy still; raises RequestRefused ``policy.lock_out``."""
    authors = _people(roles, Role.AUTHOR)
    approvers = _people(roles, Role.APPROVER)
    if not authors or not approvers or len(authors | approvers) < 2:
        raise RequestRefused(
            "policy.lock_out",
            "By this bundle there would not be an author and another person who approves: nobody could change it.",
            "Give the roles author and approver in roles.toml to different people.",
        )


def _privileged(remedy: str, rules: AccountRules) -> RequestRefused:
    return RequestRefused(
        "policy.privileged",
        "By this bundle jobs could run as accounts that are no ordinary person's.",
        remedy,
        floor=rules.floor_uid,
    )


def _people(roles: Roles, role: Role) -> frozenset[str]:
    return frozenset(person_of(principal) for principal, has in roles.by_principal.items() if role in has)
