"""What a job's log may say of a refusal: the job's own values, and no word of anybody else or of other rules.

The project can read its log, and so can whoever reads the project. So no text of a policy is shown, no id of a permit,
and nothing about the person and the account but that a condition is about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bridge.policy.reading import Path

_MOST: Final = 80

OF_THE_JOB: Final[Mapping[str, str]] = {
    "cluster": "the cluster",
    "evidence": "how the job was shown",
    "project_id": "the project",
    "job_project_id": "the project that runs the job",
    "job_name": "the job's name",
    "pipeline_source": "how the pipeline was started",
    "ref": "the branch or tag",
    "ref_type": "whether it is a branch or a tag",
    "ref_path": "the branch or tag",
    "ref_protected": "whether the branch or tag is protected",
    "runner_environment": "the kind of runner",
    "environment": "the environment",
    "environment_protected": "whether the environment is protected",
    "deployment_tier": "the environment's tier",
    "partition": "the partition",
    "qos": "the QOS",
    "slurm_account": "the Slurm account",
    "nodes": "the number of nodes",
    "gpus": "the number of GPUs",
    "time_minutes": "the time limit in minutes",
    "date": "the date",
    "weekday": "the day of the week, 1 is Monday",
    "hour": "the hour of the day",
    "minute_of_day": "the minute of the day",
}
"""Attributes of the context that a job's log may tell, since everybody who sees the log sees the job."""


def safe_lines(
    forbids: Sequence[tuple[str, str]],
    lacking: Sequence[tuple[Sequence[Path], Mapping[str, Any]]],
    limits: Sequence[str],
) -> tuple[str, ...]:
    """The lines, each once.

    ``forbids`` are ids and reasons; ``lacking`` is what the nearest permit's open conditions read, with the question's
    values by name; ``limits`` are sentences about numbers.
    """
    lines = [f"The policy '{policy_id}' forbids this job: {reason}" for policy_id, reason in forbids]
    return tuple(dict.fromkeys([*lines, *_nearest(lacking), *limits]))


def _nearest(lacking: Sequence[tuple[Sequence[Path], Mapping[str, Any]]]) -> Iterator[str]:
    hidden = False
    for paths, values in lacking:
        if paths and all(path.root == "context" and path.attribute in OF_THE_JOB for path in paths):
            told = (f"{OF_THE_JOB[path.attribute]} ({_shown(values[f'context.{path.attribute}'])})" for path in paths)
            yield f"The nearest rule does not accept {', '.join(told)}."
        else:
            hidden = True
    if hidden:
        yield "The nearest rule also asks for something about who may use it."


def _shown(value: Any) -> str:
    """A value in brackets, on one line and short; what a project chose may hold anything."""
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = "".join(one if one.isascii() and one.isprintable() else "?" for one in str(value))
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
