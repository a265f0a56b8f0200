"""Holds what a job asks of Slurm against the envelopes of its permits: asked too much is refused, with the number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from bridge.errors import PolicyRefused
from bridge.model import Limits, SlurmPlan, SlurmRequest


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


def settle(request: SlurmRequest, envelopes: Sequence[Limits]) -> SlurmPlan:
    """What the job gets: what it asked for where every envelope allows it, the envelopes' defaults otherwise.

    Raises PolicyRefused ``limits.exceeded`` or ``limits.not_allowed`` with the number and the envelope's name.
    """
    limits = intersection(envelopes)
    _check_choice("partition", request.partition, envelopes, lambda one: one.partitions)
    _check_choice("qos", request.qos, envelopes, lambda one: one.qos)
    _check_choice("Slurm account", request.slurm_account, envelopes, lambda one: one.slurm_accounts)
    plan = SlurmPlan(
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
    _check_numbers(plan, envelopes)
    return plan


def _check_numbers(plan: SlurmPlan, envelopes: Sequence[Limits]) -> None:
    per_node = 1 if plan.tasks_per_node is None else plan.tasks_per_node
    tasks = plan.nodes * per_node if plan.tasks is None else max(plan.tasks, plan.nodes * per_node)
    _check_number("nodes", plan.nodes, 1, envelopes, lambda one: one.max_nodes)
    _check_number("tasks per node", per_node, 1, envelopes, lambda one: one.max_tasks)
    _check_number("tasks", plan.tasks, 1, envelopes, lambda one: one.max_tasks)
    _check_number("tasks", tasks, 1, envelopes, lambda one: one.max_tasks)
    _check_number("cpus per task", plan.cpus_per_task, 1, envelopes, lambda one: one.max_cpus_per_task)
    _check_number("gpus", plan.gpus, 0, envelopes, lambda one: one.max_gpus)
    # 0 asks Slurm for all of a node's memory (sbatch(1), --mem), which no number here bounds.
    _check_number("MiB of memory per node", plan.memory_mib, 1, envelopes, lambda one: one.max_memory_mib)
    _check_number("minutes", plan.time_minutes, 1, envelopes, lambda one: one.max_time_minutes)


def _check_number(
    what: str, asked: int | None, least: int, envelopes: Sequence[Limits], most: Callable[[Limits], int]
) -> None:
    if asked is None:
        return
    tightest = min(envelopes, key=most)
    if least <= asked <= most(tightest):
        return
    name = tightest.names[0]
    bound = f"allows at most {most(tightest)}" if asked >= least else f"starts at {least}"
    raise PolicyRefused(
        "limits.exceeded",
        f"The job asks for {asked} {what}; the limit '{name}' {bound}.",
        "Ask for less in SCHEDULER_PARAMETERS, or ask the policy's authors for a wider limit.",
        what=what,
        asked=asked,
        allowed=most(tightest),
        limit=name,
    )


def _check_choice(
    what: str, asked: str | None, envelopes: Sequence[Limits], allowed: Callable[[Limits], tuple[str, ...]]
) -> None:
    if asked is None:
        return
    for envelope in envelopes:
        if asked not in allowed(envelope):
            choices = ", ".join(allowed(envelope)) or "none to be chosen"
            raise PolicyRefused(
                "limits.not_allowed",
                f"The job asks for {what} '{asked}'; the limit '{envelope.names[0]}' allows {choices}.",
                "Ask for another one in SCHEDULER_PARAMETERS, or ask the policy's authors for a wider limit.",
                what=what,
                asked=asked,
                allowed=allowed(envelope),
                limit=envelope.names[0],
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
    )


def _common(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in left if name in right)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
