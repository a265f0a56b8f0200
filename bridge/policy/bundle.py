"""Loads a directory of policy files into one frozen, hashed and validated bundle, or says all that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bridge.model import Limits
from bridge.policy import accounts, cases, clusters, envelopes, roles
from bridge.policy.accounts import AccountRules
from bridge.policy.calendar import Calendar
from bridge.policy.cases import Case
from bridge.policy.cedar import CedarPolicies, parse_policies
from bridge.policy.clusters import Clusters
from bridge.policy.files import REQUIRED, content_hash, read_files
from bridge.policy.probe import schema_problems
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
    calendar: Calendar
    """Of the site's time zone."""
    cases: tuple[Case, ...]
    warnings: tuple[Problem, ...]
    """Strange, but no reason to refuse the bundle."""


def load_bundle(directory: Path) -> Bundle:
    """The bundle in ``directory``; raises RequestRefused ``policy.invalid``, problems with file and line in context."""
    try:
        return parse_bundle(read_files(directory))
    except InvalidBundle as error:
        raise refusal(error.problems) from error


def checked_bundle(texts: Mapping[str, str]) -> Bundle:
    """The bundle of these file texts; raises RequestRefused ``policy.invalid``, as ``load_bundle`` does."""
    try:
        if missing := [Problem(name, None, "is not there") for name in REQUIRED if name not in texts]:
            raise InvalidBundle(missing)
        return parse_bundle(texts)
    except InvalidBundle as error:
        raise refusal(error.problems) from error
    except RecursionError as error:
        raise refusal([Problem("bundle", None, "it is nested too deeply")]) from error


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
    names = frozenset(limits.by_name if limits else ())
    rules = collect(lambda: accounts.parse_accounts(texts[accounts.FILE]))
    found = collect(lambda: clusters.parse_clusters(texts[clusters.FILE]))
    # Without the envelopes every permit would look wrong as well.
    policies = None if limits is None else collect(lambda: parse_policies(texts, names))
    members = collect(lambda: roles.parse_roles(texts.get(roles.FILE, "")))
    examples = collect(lambda: cases.parse_cases(texts))
    if limits is None or rules is None or found is None or policies is None or members is None or examples is None:
        raise InvalidBundle(problems)
    if wrong := [*_unknown_names(limits.by_name, found), *schema_problems(policies.schema, limits.calendar)]:
        raise InvalidBundle(wrong)
    return Bundle(
        content_hash=content_hash(texts),
        files=texts,
        policies=policies,
        limits=limits.by_name,
        accounts=rules,
        clusters=found,
        roles=members,
        calendar=limits.calendar,
        cases=examples,
        warnings=tuple(accounts.warnings(rules)),
    )


def _unknown_names(limits: Mapping[str, Limits], found: Clusters) -> list[Problem]:
    """Targets and mounts of an envelope that no cluster has: an envelope only chooses among them."""
    every = found.by_name.values()
    targets = {target for one in every for target in (*one.login_targets, *one.node_targets)}
    mounts = {mount.name for one in every for mount in one.mounts}
    return [
        Problem(envelopes.FILE, None, f"limits.{name}: no cluster has the {what} {value!r}")
        for name, one in limits.items()
        for what, known, chosen in (("target", targets, one.targets), ("mount", mounts, one.mounts))
        for value in chosen or ()
        if value not in known
    ]
