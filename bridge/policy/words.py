"""Says a description of situations in words: "protected refs, partition production, from 19:00"."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import Any, Final

from bridge.model import EvidenceLevel
from bridge.policy.board import Cube
from bridge.policy.situations import ABSENT, FORK, GROUP, OTHER, UNNAMED, Space
from bridge.policy.timetable import DAY, TIME, day_of

_FLAGS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "ref_protected": ("protected refs", "other refs"),
        FORK: ("forks", "not from forks"),
        "evidence": ("jobs with an id_token", "jobs with a job token only"),
        "environment_protected": ("protected environments", "environments that are not protected"),
    }
)
_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "job_project_id": "project",
        "namespace_id": "namespace",
        "runner_id": "runner",
        "groups": "GitLab groups",
        "user_identities": "logins elsewhere",
        "qos": "QOS",
        "slurm_account": "Slurm account",
        "gpus": "GPUs",
        "time_minutes": "minutes asked for",
        "nodes": "nodes asked for",
        "ref_type": "type of ref",
    }
)
_FIRST: Final = ("true", json.dumps(EvidenceLevel.SIGNED.value))
_ASKED: Final = frozenset({"partition", "qos", "slurm_account", "nodes", "gpus", "time_minutes"})
_MOST_DAYS: Final = 3


def phrase(space: Space, cube: Cube) -> str:
    """One description; "always" where it leaves everything open."""
    return ", ".join(_part(space, name, values) for name, values in _ordered(cube)) or "always"


def _ordered(cube: Cube) -> list[tuple[str, tuple[str, ...]]]:
    """Who first, then the job, then what it asks for, then when."""

    def rank(item: tuple[str, object]) -> tuple[int, str]:
        name = item[0]
        place = 0 if name.startswith(GROUP) else 2 if name in _ASKED else 3 if name in (DAY, TIME) else 1
        return place, name

    return sorted(cube.items(), key=rank)


def _part(space: Space, name: str, values: Sequence[str]) -> str:
    meant = [one for value in values for one in space.meaning.get(name, {}).get(value, (value,))]
    if name.startswith(GROUP):
        return f"{'' if meant == ['true'] else 'not '}in group {name.removeprefix(GROUP)}"
    if name in _FLAGS:
        said = [_FLAGS[name][one not in _FIRST] for one in meant if one != ABSENT]
        return _either([*said, *(["not known whether protected"] if ABSENT in meant else [])])
    every = [one for value in space.meaning.get(name, {}).values() for one in value]
    if name == DAY:
        return _days(meant, every)
    if name == TIME:
        return _times([int(one) for one in meant], [int(one) for one in every])
    return f"{_NAMES.get(name, name.replace('_', ' '))} {_either(_values(name, meant, every))}"


def _values(name: str, meant: Sequence[str], every: Sequence[str]) -> list[str]:
    numbers = [json.loads(one) for one in every if one != ABSENT]
    here = [json.loads(one) for one in meant if one != ABSENT]
    said = []
    if numbers and all(isinstance(one, int) for one in numbers):
        if UNNAMED in here:
            return ["that is not named in policies"]
        said = [str(one) for one in here] if UNNAMED in numbers else _runs(here, numbers, str)
    else:
        said = [_said(one) for one in here]
    return said + ([_absent(name)] if ABSENT in meant else [])


def _said(value: Any) -> str:
    if value == OTHER:
        return "that is not named in policies"
    if isinstance(value, list):
        return " and ".join(map(_said, value)) or "none"
    if isinstance(value, dict):
        return "/".join(str(one) for one in value.values())
    return str(value)


def _absent(name: str) -> str:
    return "none named" if name in _ASKED else "none known"


def _runs(here: Iterable[int], every: Iterable[int], write: Callable[[int], str]) -> list[str]:
    """Numbers as ranges: what was tried without a gap belongs together, and the ends are open."""
    tried, chosen = sorted(set(every)), set(here)
    said = []
    for inside, run in itertools.groupby(tried, key=lambda one: one in chosen):
        numbers = list(run)
        if not inside:
            continue
        low, high = numbers[0], numbers[-1]
        if low == tried[0] and high == tried[-1]:
            said.append("any")
        elif low == tried[0]:
            said.append(f"up to {write(high)}")
        elif high == tried[-1]:
            said.append(f"{write(low)} or more")
        else:
            said.append(write(low) if low == high else f"{write(low)} to {write(high)}")
    return said


def _times(here: Sequence[int], every: Sequence[int]) -> str:
    said = _runs(here, every, lambda minute: f"{minute // 60:02}:{minute % 60:02}")
    return _either(f"from {one.removesuffix(' or more')}" if one.endswith(" or more") else one for one in said).replace(
        "up to", "until"
    )


def _days(meant: Sequence[str], every: Sequence[str]) -> str:
    days = sorted(map(day_of, meant))
    ordinals = [day.toordinal() for day in days]
    runs = _runs(ordinals, [day_of(one).toordinal() for one in every], lambda one: date.fromordinal(one).isoformat())
    if len(runs) == 1 and runs[0].startswith("up to "):
        return runs[0].replace("up to", "until")
    if len(runs) == 1 and runs[0].endswith(" or more"):
        return f"from {runs[0].removesuffix(' or more')}"
    some = ", ".join(f"{day:%a} {day.isoformat()}" for day in days[:_MOST_DAYS])
    return f"on days like {some}{', ...' if len(days) > _MOST_DAYS else ''}"


def _either(said: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(said))
