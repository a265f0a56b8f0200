"""What would change between two bundles, in words: for people first, then the numbers, rows and clusters behind it.

Both bundles decide the same situations, so that a change of policies shows as what it means for somebody. ``loud``
marks what opens something: more access, wider limits, more services for tickets, a lower floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from datetime import date
from types import MappingProxyType
from typing import Any

from bridge.model import PosixAccount
from bridge.policy.analysis import Matrix, Person, matrices
from bridge.policy.bundle import Bundle
from bridge.policy.changes import Change, changes
from bridge.policy.grid import Outcome
from bridge.policy.linked import NO_LINKS
from bridge.policy.summary import open_cells
from bridge.policy.words import phrase
from bridge.register import Register

_MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class Shift:
    """A change in what some people may do, the same for each of them."""

    kind: str
    """``gained``, ``lost`` or ``limits``"""
    people: tuple[tuple[str, int, str], ...]
    """Issuer, user id and account."""
    conditions: tuple[str, ...]
    """In words; any one of them is enough."""
    before: tuple[str, ...]
    """Names of the limits that applied together; empty where nothing was allowed."""
    after: tuple[str, ...]

    @property
    def loud(self) -> bool:
        """Whether somebody may do more, or other things than before."""
        return self.kind != "lost"

    def lines(self, *, one_issuer: bool) -> Iterator[str]:
        """A sentence for each condition; the issuer is left out where there is only one."""
        who = _people(self.people, one_issuer=one_issuer)
        before, after = " and ".join(self.before), " and ".join(self.after)
        for condition in self.conditions:
            if self.kind == "gained":
                yield f"{who} may now also run: {condition} (limits {after})"
            elif self.kind == "lost":
                yield f"{who} may no longer run: {condition} (limits {before})"
            else:
                yield f"{who} get limits {after} instead of {before}: {condition}"


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs."""

    old: str
    new: str
    """Content hashes."""
    complete: bool
    """Whether all combinations of the values tried were compared, or a selection."""
    shifts: tuple[Shift, ...]
    changes: tuple[Change, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing changes but comments, notes and cases."""
        return not self.shifts and not self.changes

    def to_json(self) -> dict[str, Any]:
        """For programs; the same order as ``lines``."""
        return {
            "old": self.old,
            "new": self.new,
            "empty": self.empty,
            "complete": self.complete,
            "shifts": [asdict(shift) | {"loud": shift.loud} for shift in self.shifts],
            "changes": [asdict(change) for change in self.changes],
        }

    def lines(self) -> list[str]:
        """For people; what is loud has a ``!`` before it."""
        if self.empty:
            same = "the bundles are the same" if self.old == self.new else "nothing changes for anybody"
            return [f"no difference: {same}"]
        alone = len({issuer for shift in self.shifts for issuer, _, _ in shift.people}) == 1
        said = [
            f"{'!' if shift.loud else ' '} {line}" for shift in self.shifts for line in shift.lines(one_issuer=alone)
        ]
        said += [f"{'!' if change.loud else ' '} {change}" for change in self.changes]
        if not self.complete:
            said.append("  (not every combination of conditions was compared: there are too many)")
        return said


def difference(
    old: Bundle,
    new: Bundle,
    today: date,
    directory: Mapping[str, PosixAccount] | None = None,
    register: Register = NO_LINKS,
) -> Difference:
    """What ``new`` changes; ``today``, ``directory`` and ``register`` as for ``analysis.matrix``."""
    before, after = matrices([old, new], today, directory=directory, register=register)
    found = changes(old, new)
    return Difference(
        old=old.content_hash,
        new=new.content_hash,
        complete=before.complete,
        shifts=tuple(_shifts(before, after, frozenset(one.name for one in found if one.what == "policy"))),
        changes=tuple(found),
    )


def _shifts(before: Matrix, after: Matrix, changed: AbstractSet[str]) -> list[Shift]:
    pairs = _paired(before.people, after.people)
    known: dict[tuple[int, int], list[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {}
    grouped: dict[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], list[tuple[str, int, str]]] = {}
    for key, (old, new) in pairs.items():
        looks = (id(old), id(new))
        if looks not in known:
            known[looks] = list(_moves((before, after), old, new, changed))
        for move in known[looks]:
            grouped.setdefault(move, []).append(key)
    order = {"gained": 0, "limits": 1, "lost": 2}
    found = [Shift(kind, tuple(people), *rest) for (kind, *rest), people in grouped.items()]
    return sorted(found, key=lambda one: (order[one.kind], one.people, one.before, one.after, one.conditions))


_Cells = Mapping[Outcome, int]
_NONE: _Cells = MappingProxyType({})


def _paired(before: Iterable[Person], after: Iterable[Person]) -> dict[tuple[str, int, str], tuple[_Cells, _Cells]]:
    """Each user and account with its cells on both sides; an account with another uid is another account."""
    sides: tuple[dict[tuple[str, int, str], _Cells], ...] = tuple(
        {_key(person): person.cells for person in people} for people in (before, after)
    )
    return {
        key: (sides[0].get(key, _NONE), sides[1].get(key, _NONE)) for key in sorted(sides[0].keys() | sides[1].keys())
    }


def _key(person: Person) -> tuple[str, int, str]:
    account = person.subject.account
    return person.subject.issuer, person.subject.user_id, f"{account.name} ({account.uid})"


def _moves(
    matrix: tuple[Matrix, Matrix], old: _Cells, new: _Cells, changed: AbstractSet[str]
) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    """(kind, conditions, limits before, limits after)"""
    was, now = _by_limits(old), _by_limits(new)
    for names, cells in now.items():
        gained = cells & ~_union(was.values()) & ~_too_much(matrix[0], old, names)
        if gained:
            yield "gained", _said(matrix[1], gained, open_cells(new, changed)), (), names
    for names, cells in was.items():
        lost = cells & ~_union(now.values()) & ~_too_much(matrix[1], new, names)
        if lost:
            yield "lost", _said(matrix[0], lost, open_cells(old, changed)), names, ()
    for before, earlier in was.items():
        for after, later in now.items():
            if before != after and earlier & later:
                yield "limits", _said(matrix[1], earlier & later, open_cells(new, changed)), before, after


def _too_much(matrix: Matrix, cells: _Cells, names: tuple[str, ...]) -> int:
    """Where the same limits apply, and more is asked for than they allow: a change of theirs says so by itself."""
    infos = matrix.bundle.policies.infos
    found = 0
    for outcome, some in cells.items():
        if outcome.code in ("limits.exceeded", "limits.not_allowed"):
            applied = {name for policy_id in outcome.policies for name in infos[policy_id].limits}
            found |= some if tuple(sorted(applied)) == names else 0
    return found


def _said(matrix: Matrix, cells: int, among: int) -> tuple[str, ...]:
    return tuple(phrase(matrix.space, cube) for cube in matrix.board.cover(cells, among))


def _by_limits(cells: _Cells) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = {}
    for outcome, some in cells.items():
        if outcome.limits is not None:
            names = tuple(sorted(outcome.limits.names))
            found[names] = found.get(names, 0) | some
    return dict(sorted(found.items()))


def _union(masks: Iterable[int]) -> int:
    cells = 0
    for mask in masks:
        cells |= mask
    return cells


def _people(people: tuple[tuple[str, int, str], ...], *, one_issuer: bool) -> str:
    said = [
        f"{user_id}{'' if one_issuer else f' at {issuer}'} as {account}"
        for issuer, user_id, account in people[:_MOST_NAMED]
    ]
    more = [f"{len(people) - _MOST_NAMED} more"] if len(people) > _MOST_NAMED else []
    return ", ".join(said + more)
