"""The access matrix in words: what every person may do, as which account, and who may run as a given account."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from bridge.policy.analysis import Matrix, Person
from bridge.policy.grid import Outcome
from bridge.policy.words import phrase

_CLOSED_BY_LIMITS: Final = frozenset({"limits.not_allowed", "limits.empty", "limits.evidence", "limits.flavor"})
"""Refusals that are as good as having no permit; too big a number only asks for less."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one person gets under some conditions."""

    conditions: tuple[str, ...]
    """In words; any one of them is enough. What forbids rule out anyway is not repeated."""
    limits: tuple[str, ...]
    """Names of the envelopes that apply together."""
    policies: tuple[str, ...]
    """``@id`` of all permits that decide in one of these situations."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One person and one account."""

    issuer: str
    user_id: int
    account: str
    uid: int
    projects: tuple[int, ...]
    """Of a team's account: where it is used; empty for the user's own."""
    expires: str | None
    """Last day of the link, as 2027-01-31."""
    access: tuple[Access, ...]
    """Empty: never allowed."""
    refused: Mapping[str, tuple[str, ...]]
    """Every code of a refusal that occurs, with the forbids."""


def summaries(matrix: Matrix) -> list[Summary]:
    """All rows of the matrix; people who may do the same are summed up once."""
    known: dict[int, tuple[Access, ...]] = {}
    found = []
    for person in matrix.people:
        key = id(person.cells)
        if key not in known:
            known[key] = tuple(_access(matrix, person))
        found.append(_summary(person, known[key]))
    return found


def who_can(matrix: Matrix, account: str) -> list[Summary]:
    """Everybody who may ever run as ``account``."""
    return [one for one in summaries(matrix) if one.account == account and one.access]


def what_can(matrix: Matrix, user_id: int, issuer: str | None = None) -> list[Summary]:
    """All that a GitLab user may do; of every issuer where none is given."""
    return [one for one in summaries(matrix) if one.user_id == user_id and issuer in (None, one.issuer)]


def guards(matrix: Matrix) -> dict[str, str]:
    """``@id`` -> reason of every forbid, which stand above all that is summed up."""
    infos = matrix.bundle.policies.infos
    return {name: infos[name].reason or "" for name in sorted(infos) if infos[name].effect == "forbid"}


def lines(found: Sequence[Summary], clusters: Iterable[str]) -> list[str]:
    """For people: ``alice: as alice on pocket; protected refs: standard; other refs: small``."""
    where = ", ".join(clusters)
    written = []
    for one in found:
        head = f"{one.user_id} at {one.issuer}: as {one.account} ({one.uid}) on {where}"
        head += f", in project {' and '.join(map(str, one.projects))}" if one.projects else ""
        head += f" until {one.expires}" if one.expires else ""
        if not one.access:
            written.append(f"{head}: never ({', '.join(sorted(one.refused))})")
            continue
        written.append(head)
        for access in one.access:
            written += [f"    {condition}: {' and '.join(access.limits)}" for condition in access.conditions]
    return written


def _summary(person: Person, access: tuple[Access, ...]) -> Summary:
    subject, pairing = person.subject, person.pairing
    refused: dict[str, set[str]] = {}
    for outcome in person.cells:
        if not outcome.allowed:
            refused.setdefault(outcome.code, set()).update(outcome.policies)
    return Summary(
        issuer=subject.issuer,
        user_id=subject.user_id,
        account=subject.account.name,
        uid=subject.account.uid,
        projects=tuple(sorted(pairing.team.projects)) if pairing.team else (),
        expires=None if pairing.expires is None else pairing.expires.isoformat(),
        access=access,
        refused={code: tuple(sorted(names)) for code, names in sorted(refused.items())},
    )


def _access(matrix: Matrix, person: Person) -> Iterable[Access]:
    by_limits: dict[tuple[str, ...], list[tuple[Outcome, int]]] = {}
    for outcome, cells in person.cells.items():
        if outcome.limits is not None:
            by_limits.setdefault(tuple(sorted(outcome.limits.names)), []).append((outcome, cells))
    among = open_cells(person.cells)
    masks = {names: sum(cells for _, cells in some) for names, some in by_limits.items()}
    # The usual job, which is the first situation, comes first, then what is wide.
    for names, cells in sorted(masks.items(), key=lambda item: (not item[1] & 1, -item[1].bit_count())):
        yield Access(
            conditions=tuple(phrase(matrix.space, cube) for cube in matrix.board.cover(cells, among)),
            limits=names,
            policies=tuple(sorted({name for outcome, _ in by_limits[names] for name in outcome.policies})),
        )


def open_cells(cells: Mapping[Outcome, int], changed: AbstractSet[str] = frozenset()) -> int:
    """All situations but those in which a forbid hits, the account is not the person's, or a number is too big.

    A forbid of ``changed`` does not count: what it does is to be said.
    """
    return sum(some for outcome, some in cells.items() if _open(outcome, changed))


def _open(outcome: Outcome, changed: AbstractSet[str]) -> bool:
    if outcome.code == "policy.forbidden":
        return set(outcome.policies) <= changed
    return outcome.allowed or outcome.code == "policy.no_permit" or outcome.code in _CLOSED_BY_LIMITS
