"""SCHEDULER_PARAMETERS, text from a project, as a SlurmRequest; and a SlurmPlan as sbatch's command line. Pure.

What is understood is an allow-list; every other option is refused by its name (T30). Options go on the command line,
which beats sbatch's environment variables, which beat ``#SBATCH`` lines (sbatch(1), "INPUT ENVIRONMENT VARIABLES").
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from bridge.cluster.quantities import count, memory_mib, time_minutes
from bridge.errors import RequestRefused
from bridge.model import SlurmPlan, SlurmRequest

MAX_TEXT: Final = 4096
MAX_NODES: Final = 100_000
MAX_TASKS: Final = 10_000_000
MAX_CPUS: Final = 100_000
MAX_GPUS: Final = 1_000_000

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_JOB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", re.ASCII)
_CONSTRAINT: Final = re.compile(r"[A-Za-z0-9_\[(][A-Za-z0-9_.:=&|()\[\]*-]{0,127}", re.ASCII)
_GRES: Final = re.compile(r"gpu(?::([0-9]{1,7}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Option:
    field: str
    """Field of SlurmRequest that it sets."""
    read: Callable[[str], Any]
    """Raises ValueError with what is expected."""


def _named(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("one name of letters, digits, '_', '.' and '-'")
    return text


def job_name_of(text: str) -> str:
    """Give a job name back if the bridge may use it, with Slurm and with the login agent; raises ValueError."""
    if not _JOB_NAME.fullmatch(text):
        raise ValueError("letters, digits, '_' and '-', at most 128")
    return text


def _constraint(text: str) -> str:
    if not _CONSTRAINT.fullmatch(text):
        raise ValueError("features joined by & and |, as in sbatch(1)")
    return text


def _nodes(text: str) -> int:
    least, dash, most = text.partition("-")
    if dash and least != most:
        raise ValueError("one number of nodes, not a range")
    return count(least, MAX_NODES)


def _exclusive(text: str) -> bool:
    if text:
        raise ValueError("no value")
    return True


def _gres(text: str) -> int:
    match = _GRES.fullmatch(text)
    if match is None:
        raise ValueError("gpu or gpu:N, GPUs for each node")
    return count(match[1] or "1", MAX_GPUS)


_OPTIONS: Final[Mapping[str, _Option]] = MappingProxyType(
    {
        "partition": _Option("partition", _named),
        "qos": _Option("qos", _named),
        "account": _Option("slurm_account", _named),
        "nodes": _Option("nodes", _nodes),
        "ntasks": _Option("tasks", lambda text: count(text, MAX_TASKS)),
        "ntasks-per-node": _Option("tasks_per_node", lambda text: count(text, MAX_TASKS)),
        "cpus-per-task": _Option("cpus_per_task", lambda text: count(text, MAX_CPUS)),
        "gpus": _Option("gpus", lambda text: count(text, MAX_GPUS)),
        "gres": _Option("gpus_per_node", _gres),
        "mem": _Option("memory_mib", memory_mib),
        "time": _Option("time_minutes", time_minutes),
        "constraint": _Option("constraint", _constraint),
        "exclusive": _Option("exclusive", _exclusive),
    }
)

_SHORT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "p": "partition",
        "q": "qos",
        "A": "account",
        "N": "nodes",
        "n": "ntasks",
        "c": "cpus-per-task",
        "G": "gpus",
        "t": "time",
        "C": "constraint",
    }
)
_WITHOUT_VALUE: Final = frozenset({"exclusive"})

ALLOWED_OPTIONS: Final = tuple(sorted(_OPTIONS))


def parse_options(text: str) -> SlurmRequest:
    """Read SCHEDULER_PARAMETERS, e.g. ``-N 2 --time=1:30:00 --gres=gpu:4``; empty asks for nothing.

    ``--gres=gpu:N`` counts for each node and is multiplied by ``--nodes`` (1 where that is not given), since
    SlurmRequest.gpus is for the whole job. Raises RequestRefused ``slurm.options_malformed``, ``slurm.option_refused``,
    ``slurm.option_value``, ``slurm.option_repeated``.
    """
    found: dict[str, Any] = {}
    for name, value in _pairs(_words(text)):
        option = _OPTIONS[name]
        if option.field in found:
            raise _repeated(name)
        try:
            found[option.field] = option.read(value)
        except ValueError as error:
            raise _bad_value(name, value, str(error)) from None
    per_node = found.pop("gpus_per_node", None)
    if per_node is not None:
        if "gpus" in found:
            raise _repeated("gres")
        found["gpus"] = per_node * found.get("nodes", 1)
    return SlurmRequest(**found)


def to_argv(
    plan: SlurmPlan,
    *,
    job_name: str,
    comment: str,
    private_dir: str,
    output: str,
    command: Sequence[str],
    ccache: str | None = None,
) -> list[str]:
    """Give sbatch's arguments for a held job that runs ``command`` (wrapper and script, absolute) as planned.

    ``ccache`` is where the job's tools find its tickets; the wrapper makes it their KRB5CCNAME.

    ``--parsable`` is the agent's to add. ``--export=ALL`` takes the agent's own environment, which is clean and holds
    no secret: with 22.05 both NONE and a list make slurmd run ``su -`` for the user's login environment, and NIL does
    not exist yet. Every value is checked once more; raises RequestRefused.
    """
    return [
        "--hold",
        f"--job-name={_checked('job-name', job_name_of, job_name)}",
        "--dependency=singleton",
        "--export=ALL",
        "--no-requeue",
        "--input=none",
        "--open-mode=append",
        f"--output={_path('output', output)}",
        f"--chdir={_path('chdir', private_dir)}",
        f"--comment={_checked('comment', _comment, comment)}",
        *_plan_options(plan),
        *(_path("command", word) for word in command),
        *([] if ccache is None else [_checked("ccache", _ccache, ccache)]),
    ]


def _plan_options(plan: SlurmPlan) -> Iterator[str]:
    values: dict[str, Any] = {
        "partition": plan.partition,
        "qos": plan.qos,
        "account": plan.slurm_account,
        "nodes": plan.nodes,
        "ntasks": plan.tasks,
        "ntasks-per-node": plan.tasks_per_node,
        "cpus-per-task": plan.cpus_per_task,
        "gpus": plan.gpus or None,
        "mem": None if plan.memory_mib is None else f"{plan.memory_mib}M",
        "time": plan.time_minutes,
        "constraint": plan.constraint,
    }
    for name, value in values.items():
        if value is not None:
            _checked(name, _OPTIONS[name].read, str(value))
            yield f"--{name}={value}"
    if plan.exclusive:
        yield "--exclusive"


def _words(text: str) -> list[str]:
    if len(text) > MAX_TEXT or not text.isprintable():
        raise _malformed("it is too long or holds control characters")
    try:
        return shlex.split(text, comments=False, posix=True)
    except ValueError as error:
        raise _malformed(str(error)) from None


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give (long name, value) of each option as getopt_long(3) would, without its abbreviations."""
    rest = iter(words)
    for word in rest:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            shown = f"--{name}"
        elif word.startswith("-") and len(word) > 1 and word != "--":
            name, value, shown = _SHORT.get(word[1], ""), word[2:], word[:2]
            equals = value
        else:
            raise _malformed(f"{_shown(word)} is no option")
        if name not in _OPTIONS:
            raise _refused(shown)
        if not equals and name not in _WITHOUT_VALUE:
            value = next(rest, "")
        yield name, value


def _checked(name: str, read: Callable[[str], Any], value: str) -> str:
    try:
        read(value)
    except ValueError as error:
        raise _bad_value(name, value, str(error)) from None
    return value


def _path(name: str, value: str) -> str:
    # Slurm replaces %x patterns in file names (sbatch(1), "filename pattern"), and reads '\\' as "no replacing at all".
    if not re.fullmatch(r"/[A-Za-z0-9_./+=@-]{1,1000}", value, re.ASCII) or "/../" in f"{value}/":
        raise _bad_value(name, value, "an absolute path of plain characters")
    return value


def _comment(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:=,+/@ -]{0,512}", text, re.ASCII):
        raise ValueError("plain characters")
    return text


def _ccache(text: str) -> str:
    if not re.fullmatch(r"(FILE|DIR):/[A-Za-z0-9_./-]{1,200}|KEYRING:persistent:[0-9]{1,10}|KCM:", text, re.ASCII):
        raise ValueError("the name of a ticket cache")
    return text


def _shown(word: str) -> str:
    return "'" + "".join(c if c.isprintable() else "?" for c in word[:40]) + "'"


def _malformed(why: str) -> RequestRefused:
    return RequestRefused(
        "slurm.options_malformed",
        f"SCHEDULER_PARAMETERS can't be read: {why}.",
        "Write options as for sbatch, for example: --nodes=2 --time=1:00:00.",
    )


def _refused(shown: str) -> RequestRefused:
    return RequestRefused(
        "slurm.option_refused",
        f"The option {_shown(shown)} is not allowed in SCHEDULER_PARAMETERS.",
        "Allowed are: " + ", ".join(f"--{name}" for name in ALLOWED_OPTIONS) + ".",
        option=shown[:100],
    )


def _bad_value(name: str, value: str, expected: str) -> RequestRefused:
    return RequestRefused(
        "slurm.option_value",
        f"The Slurm option --{name} has the value {_shown(value)}; expected is {expected}.",
        "Correct SCHEDULER_PARAMETERS; sbatch(1) describes the values.",
        option=name,
    )


def _repeated(name: str) -> RequestRefused:
    return RequestRefused(
        "slurm.option_repeated",
        f"SCHEDULER_PARAMETERS gives --{name}, or what it stands for, twice.",
        "Give each option once.",
        option=name,
    )
