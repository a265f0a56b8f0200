"""Reads Slurm's host list expressions (scontrol(1), "show hostnames"): ``node[1-3,7],gpu01``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bridge.errors import Outage

_ITEM = re.compile(r"([A-Za-z0-9_.-]*)(?:\[([0-9,-]+)\])?([A-Za-z0-9_.-]*)", re.ASCII)


def expand(expressions: Iterable[str], most: int) -> frozenset[str]:
    """Return every host name in the expressions, each ``prefix[ranges]suffix`` with at most one bracket.

    Raises Outage ``slurm.hostlist`` for one that is of another form or names more than ``most`` hosts.
    """
    names: set[str] = set()
    for expression in expressions:
        for name in _expand_one(expression):
            names.add(name)
            if len(names) > most:
                raise _unreadable(expression)
    return frozenset(names)


def _expand_one(expression: str) -> Iterator[str]:
    match = _ITEM.fullmatch(expression)
    if match is None:
        raise _unreadable(expression)
    prefix, ranges, suffix = match.groups()
    if ranges is None:
        yield expression
        return
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise _unreadable(expression)
        for number in range(int(first), int(last or first) + 1):
            yield f"{prefix}{number:0{len(first)}d}{suffix}"


def _unreadable(expression: str) -> Outage:
    return Outage(
        "slurm.hostlist",
        "Slurm names a job's nodes in a form that the bridge can't read.",
        "Report the reference to the bridge's operators.",
        expression=expression[:200],
    )
