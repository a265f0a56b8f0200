"""Representative situations of jobs, made from what a bundle's policies mention: the columns of the access matrix.

For each attribute that policies read there are the values that they compare it with, the neighbours of numbers, one
value that nobody mentions, and "not there" for what may be missing. Everything else is as in an ordinary push to a
protected branch. A policy that holds for some job holds in some situation, except where it calculates or matches
patterns in ways that these values do not reach; findings say so by naming what was tried, not what is true.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from bridge.model import EvidenceLevel, Identity, Limits, SlurmRequest
from bridge.policy import timetable
from bridge.policy.bundle import Bundle
from bridge.policy.cases import PROVEN_BY_JOB_TOKEN, Job
from bridge.policy.reading import WHOLE, Path, Rule

ABSENT: Final = ""
"""In place of a value: the context has no such attribute."""
FORK: Final = "fork"
"""A variable of its own: whether ``project_id`` names another project than ``job_project_id``."""
GROUP: Final = "group:"
"""Begins variables of their own: whether the account is in this group, where the directory was not asked."""

UNNAMED: Final = 999_000_000
"""An id that no policy names."""
OTHER: Final = "something-else"
"""A text that no policy names."""
_MOST_VALUES: Final = 16
_FEW_MEMBERS: Final = 4
_ANY_NUMBERS: Final = ["1", "2"]
"""Where numbers of a job are compared with each other only."""
_KINDS: Final[Mapping[object, str]] = MappingProxyType({bool: "Bool", int: "Long", str: "String"})
UNPROVEN: Final = frozenset(Job.model_fields) - PROVEN_BY_JOB_TOKEN
"""What of a job its job token alone does not show."""

USUAL: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "evidence": EvidenceLevel.SIGNED.value,
        "project_id": UNNAMED,
        "job_project_id": UNNAMED,
        "project_path": "group/project",
        "namespace_id": UNNAMED,
        "job_name": "build",
        "pipeline_source": "push",
        "ref": "main",
        "ref_type": "branch",
        "ref_protected": True,
        "runner_id": UNNAMED,
        "runner_environment": "self-hosted",
    }
)
"""An ordinary push to a protected branch, of a project and from a runner that no policy names."""

_ALSO: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "evidence": tuple(level.value for level in EvidenceLevel),
        "pipeline_source": ("push", "trigger"),
        "ref_type": ("branch", "tag"),
        "runner_environment": ("self-hosted", "gitlab-hosted"),
    }
)
"""All that GitLab or the bridge ever says, or enough of it, instead of a made-up other value."""

Choice = Mapping[str, str]
"""A value in JSON, or ABSENT, for each variable."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One attribute, and the values of it that are tried."""

    name: str
    values: tuple[str, ...]
    """As JSON; the usual one first."""


@dataclass(frozen=True, slots=True)
class Space:
    """All variables of a bundle, or of two that are compared."""

    variables: tuple[Variable, ...]
    meaning: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Where values were merged: for which each value stands, by variable."""

    def of(self, rule: Rule) -> tuple[Variable, ...]:
        """The variables on which a policy depends."""
        names = _depends(rule)
        if Path("context", WHOLE) in rule.reads:
            return self.variables
        return tuple(variable for variable in self.variables if variable.name in names)

    def combinations(self) -> int:
        """How many situations all values together make."""
        count = 1
        for variable in self.variables:
            count *= len(variable.values)
        return count


def shown(where: Space, variable: Variable) -> str | None:
    """The one value that a job token alone can show of ``variable``; None where it shows all of them."""
    if variable.name not in UNPROVEN:
        return None
    if variable.name == "ref_protected":
        return "false"
    meaning = where.meaning.get(variable.name, {})
    absent = (value for value in variable.values if ABSENT in meaning.get(value, (value,)))
    return next(absent, variable.values[0])


def space(bundles: Sequence[Bundle], rules: Iterable[Rule], today: date, *, ask_groups: bool) -> Space:
    """The variables that ``rules`` of ``bundles`` mention; with ``ask_groups`` also the account's groups.

    ``today`` is the day of the usual job.
    """
    rules = tuple(rules)
    kinds = _kinds()
    compared = _compared(rules)
    wanted = {"evidence"} | {name for rule in rules for name in _depends(rule)}
    if len({name for bundle in bundles for name in bundle.clusters.by_name}) > 1:
        wanted.add("cluster")
    if projects := _team_projects(bundles):
        compared["job_project_id"] = compared.get("job_project_id", frozenset()) | projects
        wanted |= {"job_project_id", FORK}
    variables = []
    for name in sorted(wanted):
        constants = compared.get(name, frozenset())
        if name == FORK:
            values: tuple[str, ...] = ("false", "true")
        elif name.startswith(GROUP):
            values = ("false", "true") if ask_groups else ()
        elif name == timetable.DAY:
            values = timetable.days(today, compared)
        elif name == timetable.TIME:
            values = timetable.times(compared)
        elif name == "cluster" or name in kinds:
            values = _values(name, kinds.get(name, "String"), constants, bundles)
        else:
            values = ()
        variables.append(Variable(name, values))
    return Space(tuple(variable for variable in variables if len(variable.values) > 1))


def _depends(rule: Rule) -> set[str]:
    """Names of the variables on which a policy depends, whether or not they have a choice of values."""
    names = {name for path in rule.reads for name in _names(path)}
    if Path("resource", WHOLE) in rule.reads:
        names |= {f"{GROUP}{name}" for kind, name in rule.entities if kind == "PosixGroup"}
    return names


def _names(path: Path) -> tuple[str, ...]:
    """The variables on which what a path reads depends."""
    if path.root != "context" or path.attribute == "issuer":
        return ()
    if path.attribute in timetable.READS:
        return timetable.READS[path.attribute]
    if path.attribute in ("project_id", "job_project_id"):
        return ("job_project_id", FORK)
    return (path.attribute, "evidence") if path.attribute in UNPROVEN else (path.attribute,)


def _kinds() -> Mapping[str, str]:
    """Attributes of a job and their types in Cedar: Bool, Long, String or Set; with ``?`` where they may be absent."""
    found = {}
    for name, hint in (get_type_hints(Identity) | get_type_hints(SlurmRequest)).items():
        parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        plain = next(part for part in parts if part is not NoneType)
        kind = "Set" if get_origin(plain) is tuple else _KINDS.get(plain, "String")
        found[name] = kind + ("?" if NoneType in parts else "")
    return found


def _team_projects(bundles: Sequence[Bundle]) -> frozenset[str]:
    """The projects in which somebody runs as a team; the first of them, where there are many."""
    found = {project for bundle in bundles for _, _, project in bundle.accounts.teams.by_member}
    return frozenset(map(str, sorted(found)[:_MOST_VALUES]))


def _compared(rules: Sequence[Rule]) -> dict[str, frozenset[str]]:
    """The constants with which each attribute of the context is compared, also by way of another attribute."""
    found: dict[str, set[str]] = {}
    for rule in rules:
        for path, constants in rule.compared.items():
            if path.root == "context":
                name = "job_project_id" if path.attribute == "project_id" else path.attribute
                found.setdefault(name, set()).update(constants)
    for names in [{path.attribute for path in paths} for rule in rules for paths in rule.together]:
        shared = set().union(*(found.get(name, set()) for name in names))
        for name in names:
            found.setdefault(name, set()).update(shared)
    return {name: frozenset(values) for name, values in found.items()}


def _values(name: str, kind: str, constants: frozenset[str], bundles: Sequence[Bundle]) -> tuple[str, ...]:
    """The values of an attribute of the context; ``kind`` is of ``_kinds``."""
    values = [json.dumps(USUAL[name])] if name in USUAL else [ABSENT] if kind.endswith("?") else []
    if name == "cluster":
        names = [one for bundle in bundles for one in (bundle.clusters.default, *sorted(bundle.clusters.by_name))]
        return tuple(dict.fromkeys(map(json.dumps, names)))
    kind = kind.removesuffix("?")
    if kind == "Bool":
        values += ["true", "false"]
    elif kind == "Long":
        values += _numbers(constants)
    elif kind == "String":
        values += sorted(constants) + [json.dumps(one) for one in _others(name, constants, bundles)]
    elif kind == "Set":
        members = sorted(constants)
        sizes = range(len(members) + 1) if len(members) <= _FEW_MEMBERS else (0, 1, len(members))
        values += [f"[{', '.join(some)}]" for size in sizes for some in itertools.combinations(members, size)]
    return tuple(dict.fromkeys(values))


def _numbers(constants: frozenset[str]) -> list[str]:
    numbers = sorted({value for value in map(json.loads, constants) if isinstance(value, int)})
    if not numbers:
        return _ANY_NUMBERS
    near = {near for number in numbers for near in (number - 1, number, number + 1)}
    if len(near) > _MOST_VALUES:
        near = {numbers[0] - 1, *numbers, numbers[-1] + 1}
    return [str(number) for number in sorted(near) if number >= 0 or numbers[0] < 0]


def _others(name: str, constants: frozenset[str], bundles: Sequence[Bundle]) -> tuple[str, ...]:
    """Values that policies do not mention."""
    if name in _ALSO:
        return _ALSO[name]
    if name in ("partition", "qos", "slurm_account"):
        limits = [one for bundle in bundles for one in bundle.limits.values()]
        offered = sorted({value for one in limits for value in _offered(one, name)} - set(map(json.loads, constants)))
        return tuple(offered[:1])
    return (OTHER,)


def _offered(limits: Limits, name: str) -> tuple[str, ...]:
    return {"partition": limits.partitions, "qos": limits.qos, "slurm_account": limits.slurm_accounts}[name]
