"""Loads a directory of policy files into one frozen, hashed and validated bundle, or says all that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bridge.model import Limits
from bridge.policy import accounts, cases, clusters, envelopes, roles
from bridge.policy.accounts import AccountRules
from bridge.policy.cases import Case
from bridge.policy.cedar import CedarPolicies, parse_policies
from bridge.policy.clusters import Clusters
from bridge.policy.files import content_hash, read_files
from bridge.policy.problems import InvalidBundle, Problem, refusal
from bridge.policy.roles import Roles

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Mapping, authorisation and limits together; every decision and audit record carries ``content_hash``."""

    content_hash: str
    """Hex SHA-256 over the files, see ``files.content_hash``."""
    files: Mapping[str, str]
    """The text of each file by relative path."""
    policies: CedarPolicies
    limits: Mapping[str, Limits]
    accounts: AccountRules
    clusters: Clusters
    roles: Roles
    cases: tuple[Case, ...]
    warnings: tuple[Problem, ...]
    """Strange, but no reason to refuse the bundle."""


def load_bundle(directory: Path) -> Bundle:
    """The bundle in ``directory``; raises RequestRefused ``policy.invalid``, problems with file and line in context."""
    try:
        return parse_bundle(read_files(directory))
    except InvalidBundle as error:
        raise refusal(error.problems) from error


def parse_bundle(texts: Mapping[str, str]) -> Bundle:
    """The bundle of these file texts; raises InvalidBundle with the problems of all files."""
    problems: list[Problem] = []

    def collect(parse: Callable[[], T]) -> T | None:
        try:
            return parse()
        except InvalidBundle as error:
            problems.extend(error.problems)
            return None

    limits = collect(lambda: envelopes.parse_limits(texts[envelopes.FILE]))
    names = frozenset(limits or ())
    rules = collect(lambda: accounts.parse_accounts(texts[accounts.FILE]))
    found = collect(lambda: clusters.parse_clusters(texts[clusters.FILE]))
    # Without the envelopes every permit would look wrong as well.
    policies = None if limits is None else collect(lambda: parse_policies(texts, names))
    members = collect(lambda: roles.parse_roles(texts.get(roles.FILE, "")))
    examples = collect(lambda: cases.parse_cases(texts))
    if limits is None or rules is None or found is None or policies is None or members is None or examples is None:
        raise InvalidBundle(problems)
    return Bundle(
        content_hash=content_hash(texts),
        files=texts,
        policies=policies,
        limits=limits,
        accounts=rules,
        clusters=found,
        roles=members,
        cases=examples,
        warnings=tuple(accounts.warnings(rules)),
    )
