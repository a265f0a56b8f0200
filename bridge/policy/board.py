"""Sets of situations as numbers: bit n stands for situation n, so that a hundred thousand are combined at once.

``cover`` sums such a set up: few descriptions of the form "these values of this, those of that" which fit it exactly.
It is a greedy cover by implicants of variables with several values, as in two-level logic minimisation: take a
situation, widen each variable as far as the set allows, and go on with what is not covered.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bridge.policy.situations import Choice, Variable
from bridge.policy.worktime import tick

Cube = Mapping[str, tuple[str, ...]]
"""The values that a variable may have; a variable that is not named may have any."""


@dataclass(frozen=True, slots=True)
class Board:
    """All situations, or a selection of them."""

    variables: tuple[Variable, ...]
    size: int
    masks: Mapping[str, Mapping[str, int]] = field(repr=False)
    """The situations with each value of each variable."""
    selection: tuple[Choice, ...] | None
    """None where the situations are all combinations, the last variable changing fastest."""

    @classmethod
    def full(cls, variables: Sequence[Variable]) -> Board:
        """All combinations."""
        size = 1
        for variable in variables:
            size *= len(variable.values)
        masks, stride = {}, size
        for variable in variables:
            period, stride = stride, stride // len(variable.values)
            # A block of ones at the value's place, repeated in every period.
            block = ((1 << size) - 1) // ((1 << period) - 1) * ((1 << stride) - 1)
            masks[variable.name] = {value: block << place * stride for place, value in enumerate(variable.values)}
        return cls(tuple(variables), size, masks, None)

    @classmethod
    def of(cls, variables: Sequence[Variable], selection: Sequence[Choice]) -> Board:
        """Only these situations."""
        masks = {variable.name: dict.fromkeys(variable.values, 0) for variable in variables}
        for number, situation in enumerate(selection):
            tick()
            for name, cells in masks.items():
                cells[situation[name]] |= 1 << number
        return cls(tuple(variables), len(selection), masks, tuple(selection))

    @property
    def all(self) -> int:
        """Every situation."""
        return (1 << self.size) - 1

    def at(self, number: int) -> Choice:
        """Situation ``number``."""
        if self.selection is not None:
            return self.selection[number]
        choice = {}
        for variable in reversed(self.variables):
            number, place = divmod(number, len(variable.values))
            choice[variable.name] = variable.values[place]
        return choice

    def first(self, cells: int) -> Choice:
        """The first situation of ``cells``, which has one."""
        return self.at((cells & -cells).bit_length() - 1)

    def apart(self, names: Iterable[str]) -> Mapping[tuple[str, ...], int]:
        """The situations by their values of these variables, which exist."""
        parts: dict[tuple[str, ...], int] = {(): self.all}
        for name in names:
            tick()
            parts = {
                (*part, value): cells & mask
                for part, cells in parts.items()
                for value, mask in self.masks[name].items()
                if cells & mask
            }
        return parts

    def span(self, cells: int) -> dict[str, tuple[str, ...]]:
        """The values that occur in ``cells``, of each variable."""
        return {
            name: tuple(value for value, mask in values.items() if mask & cells) for name, values in self.masks.items()
        }

    def within(self, cube: Cube) -> int:
        """All situations that ``cube`` describes."""
        cells = self.all
        for name, values in cube.items():
            cells &= self._union(name, values)
        return cells

    def cover(self, cells: int, among: int) -> list[Cube]:
        """Descriptions that together fit exactly ``cells`` of the situations ``among``; the others are left open."""
        offered = {name: values for name, values in self.span(among).items() if len(values) > 1}
        found: list[tuple[Cube, int]] = []
        rest = cells
        while rest:
            tick()
            cube, covered = self._widened(self.first(rest), cells, among, offered)
            found.append((cube, covered))
            rest &= ~covered
        return _needed(found)

    def _widened(self, seed: Choice, cells: int, among: int, offered: Cube) -> tuple[Cube, int]:
        chosen: dict[str, tuple[str, ...]] = {}
        names = list(offered)
        narrow = (self.masks[name][seed[name]] for name in reversed(names))
        after = list(itertools.accumulate(narrow, int.__and__, initial=among))
        before = among
        for place, name in enumerate(names):
            others = before & after[len(names) - place - 1]
            masks = {value: others & self.masks[name][value] for value in offered[name]}
            fitting = tuple(value for value, mask in masks.items() if not mask & ~cells)
            if len(fitting) < len(masks):
                # To name a value that adds nothing but what is left open would only mislead.
                fitting = tuple(value for value in fitting if masks[value])
            chosen[name] = fitting
            before &= self._union(name, fitting)
        return {name: some for name, some in chosen.items() if len(some) < len(offered[name])}, before

    def _union(self, name: str, values: Iterable[str]) -> int:
        cells = 0
        for value in values:
            cells |= self.masks[name][value]
        return cells


def _needed(found: list[tuple[Cube, int]]) -> list[Cube]:
    """Without descriptions whose situations the others cover."""
    kept = list(found)
    for one in found:
        tick()
        others = 0
        for other in kept:
            others |= 0 if other is one else other[1]
        if not one[1] & ~others:
            kept.remove(one)
    return [cube for cube, _ in kept]
