"""Holds what a job asks of Slurm against the envelopes of its permits.

Asked too much is refused with the number, or cut down to it where every envelope that it exceeds says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from bridge.errors import PolicyRefused
from bridge.model import EvidenceLevel, Limits, OnExcess, SlurmPlan, SlurmRequest


def intersection(envelopes: Sequence[Limits]) -> Limits:
    """The one envelope that allows what all of ``envelopes`` (at least one) allow.

    Raises PolicyRefused ``limits.empty`` when no partition is left.
    """
    limits = reduce(_intersect, envelopes)
    if not limits.partitions:
        raise PolicyRefused(
            "limits.empty",
            f"The limits {_quoted(limits.names)} apply together, and allow no common partition.",
            "Ask the policy's authors to make one of the permits narrower.",
            limits=limits.names,
        )
    return limits


@dataclass(frozen=True, slots=True)
class Settled:
    """What the job gets."""

    plan: SlurmPlan
    notes: tuple[str, ...]
    """A line for each number that was cut down."""


@dataclass(frozen=True, slots=True)
class Excess:
    """One thing that a job asks for beyond an envelope."""

    what: str
    """``nodes``, ``partition``, ..."""
    asked: int | str
    allowed: int | tuple[str, ...]
    """The largest number, the smallest where too little is asked for, or all choices."""
    limit: str
    """The envelope's name."""
    clamped: bool
    """Whether the job runs with the number allowed."""
    sentence: str


_PER_NODE: Final = "tasks per node"
_NUMBERS: Final[tuple[tuple[str, str, int, Callable[[Limits], int]], ...]] = (
    ("nodes", "nodes", 1, lambda one: one.max_nodes),
    ("tasks_per_node", _PER_NODE, 1, lambda one: one.max_tasks),
    ("tasks", "tasks", 1, lambda one: one.max_tasks),
    ("cpus_per_task", "cpus per task", 1, lambda one: one.max_cpus_per_task),
    ("gpus", "gpus", 0, lambda one: one.max_gpus),
    # 0 asks Slurm for all of a node's memory (sbatch(1), --mem), which no number here bounds.
    ("memory_mib", "MiB of memory per node", 1, lambda one: one.max_memory_mib),
    ("time_minutes", "minutes", 1, lambda one: one.max_time_minutes),
)
"""Field of the plan, its name for people, the least that makes sense, and the most that an envelope allows."""
_CHOICES: Final[tuple[tuple[str, str, Callable[[Limits], tuple[str, ...]]], ...]] = (
    ("partition", "partition", lambda one: one.partitions),
    ("qos", "qos", lambda one: one.qos),
    ("slurm_account", "Slurm account", lambda one: one.slurm_accounts),
)


def settle(request: SlurmRequest, envelopes: Sequence[Limits]) -> Settled:
    """What the job gets: what it asked for where every envelope allows it, the envelopes' defaults otherwise.

    Raises PolicyRefused ``limits.exceeded`` or ``limits.not_allowed`` with the number and the envelope's name.
    """
    found = excesses(request, envelopes)
    for one in found:
        if not one.clamped:
            raise _refusal(one)
    cut = {one.what for one in found}
    less: dict[str, Any] = {
        field: min(most(one) for one in envelopes) for field, what, _, most in _NUMBERS if what in cut
    }
    plan = replace(_planned(request, intersection(envelopes)), **less)
    return Settled(plan, tuple(one.sentence for one in found))


def excesses(request: SlurmRequest, envelopes: Sequence[Limits]) -> tuple[Excess, ...]:
    """All that ``request`` asks for beyond ``envelopes``; raises PolicyRefused ``limits.empty``."""
    plan = _planned(request, intersection(envelopes))
    choices = [
        found
        for field, what, allowed in _CHOICES
        if (found := _choice(what, getattr(request, field), envelopes, allowed)) is not None
    ]
    numbers: list[Excess] = []
    less: dict[str, Any] = {}
    for field, what, least, most in _NUMBERS:
        number = _number(what, getattr(plan, field), least, envelopes, most)
        if number is not None:
            numbers.append(number)
            less |= {field: number.allowed} if number.clamped else {}
    return (*choices, *numbers, *_product(replace(plan, **less), envelopes, numbers))


def _planned(request: SlurmRequest, limits: Limits) -> SlurmPlan:
    return SlurmPlan(
        partition=request.partition or limits.partitions[0],
        nodes=1 if request.nodes is None else request.nodes,
        time_minutes=limits.default_time_minutes if request.time_minutes is None else request.time_minutes,
        qos=request.qos,
        slurm_account=request.slurm_account,
        tasks=request.tasks,
        tasks_per_node=request.tasks_per_node,
        cpus_per_task=request.cpus_per_task,
        gpus=request.gpus,
        memory_mib=request.memory_mib,
        constraint=request.constraint,
        exclusive=request.exclusive,
    )


def _product(plan: SlurmPlan, envelopes: Sequence[Limits], others: Sequence[Excess]) -> Iterator[Excess]:
    """Nodes times tasks on each; refused, for which of the two should be cut down nobody has said."""
    if any(one.what in ("tasks", _PER_NODE, "nodes") and not one.clamped for one in others):
        return
    tasks = plan.nodes * (1 if plan.tasks_per_node is None else plan.tasks_per_node)
    found = _number("tasks", tasks, 1, envelopes, lambda one: one.max_tasks)
    if found is not None:
        yield replace(found, clamped=False, sentence=_too_much("tasks", tasks, found.limit, found.allowed))


def _number(
    what: str, asked: int | None, least: int, envelopes: Sequence[Limits], most: Callable[[Limits], int]
) -> Excess | None:
    if asked is None:
        return None
    exceeded = sorted((one for one in envelopes if asked > most(one)), key=most)
    if asked < least:
        name = min(envelopes, key=most).names[0]
        sentence = f"The job asks for {asked} {what}; the limit '{name}' starts at {least}."
        return Excess(what, asked, least, name, clamped=False, sentence=sentence)
    if not exceeded:
        return None
    refusing = [one for one in exceeded if one.on_excess is OnExcess.REFUSE]
    tightest = (refusing or exceeded)[0]
    name, allowed = tightest.names[0], most(tightest)
    if refusing:
        return Excess(what, asked, allowed, name, clamped=False, sentence=_too_much(what, asked, name, allowed))
    sentence = f"The job asked for {asked} {what} and gets {allowed}, the most that the limit '{name}' allows."
    return Excess(what, asked, allowed, name, clamped=True, sentence=sentence)


def _too_much(what: str, asked: int, name: str, allowed: object) -> str:
    return f"The job asks for {asked} {what}; the limit '{name}' allows at most {allowed}."


def _choice(
    what: str, asked: str | None, envelopes: Sequence[Limits], allowed: Callable[[Limits], tuple[str, ...]]
) -> Excess | None:
    for envelope in envelopes:
        if asked is not None and asked not in allowed(envelope):
            name, choices = envelope.names[0], ", ".join(allowed(envelope)) or "none to be chosen"
            sentence = f"The job asks for {what} '{asked}'; the limit '{name}' allows {choices}."
            return Excess(what, asked, allowed(envelope), name, clamped=False, sentence=sentence)
    return None


def _refusal(excess: Excess) -> PolicyRefused:
    context = {"what": excess.what, "asked": excess.asked, "allowed": excess.allowed, "limit": excess.limit}
    if isinstance(excess.asked, int):
        return PolicyRefused(
            "limits.exceeded",
            excess.sentence,
            "Ask for less in SCHEDULER_PARAMETERS, or ask the policy's authors for a wider limit.",
            **context,
        )
    return PolicyRefused(
        "limits.not_allowed",
        excess.sentence,
        "Ask for another one in SCHEDULER_PARAMETERS, or ask the policy's authors for a wider limit.",
        **context,
    )


def _intersect(left: Limits, right: Limits) -> Limits:
    most = min(left.max_time_minutes, right.max_time_minutes)
    return Limits(
        names=left.names + right.names,
        partitions=_common(left.partitions, right.partitions),
        qos=_common(left.qos, right.qos),
        slurm_accounts=_common(left.slurm_accounts, right.slurm_accounts),
        max_nodes=min(left.max_nodes, right.max_nodes),
        max_tasks=min(left.max_tasks, right.max_tasks),
        max_cpus_per_task=min(left.max_cpus_per_task, right.max_cpus_per_task),
        max_gpus=min(left.max_gpus, right.max_gpus),
        max_memory_mib=min(left.max_memory_mib, right.max_memory_mib),
        max_time_minutes=most,
        default_time_minutes=min(left.default_time_minutes, right.default_time_minutes, most),
        ticket_minutes=min(left.ticket_minutes, right.ticket_minutes),
        job_token_on_nodes=left.job_token_on_nodes and right.job_token_on_nodes,
        targets=_chosen(left.targets, right.targets),
        mounts=_chosen(left.mounts, right.mounts),
        mdt_flavor=max(left.mdt_flavor, right.mdt_flavor, key=lambda one: one.strength),
        ost_flavor=max(left.ost_flavor, right.ost_flavor, key=lambda one: one.strength),
        evidence=EvidenceLevel.SIGNED
        if EvidenceLevel.SIGNED in (left.evidence, right.evidence)
        else EvidenceLevel.INTROSPECTED,
        on_excess=OnExcess.REFUSE if OnExcess.REFUSE in (left.on_excess, right.on_excess) else OnExcess.CLAMP,
    )


def _chosen(left: tuple[str, ...] | None, right: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if left is None or right is None:
        return left if right is None else right
    return _common(left, right)


def _common(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in left if name in right)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
