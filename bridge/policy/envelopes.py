"""Reads ``limits.toml``: named envelopes of what a run may ask of Slurm and how long its tickets live."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field, model_validator

from bridge.model import Limits
from bridge.policy.files import Table, parse_toml
from bridge.policy.names import RuleName, SlurmName

FILE = "limits.toml"


class _LimitsTable(Table):
    partitions: list[SlurmName] = Field(min_length=1)
    qos: list[SlurmName] = Field(default=[])
    slurm_accounts: list[SlurmName] = Field(default=[])
    max_nodes: int = Field(ge=1)
    max_tasks: int = Field(ge=1)
    max_cpus_per_task: int = Field(ge=1)
    max_gpus: int = Field(ge=0)
    max_memory_mib: int = Field(ge=1)
    max_time_minutes: int = Field(ge=1)
    default_time_minutes: int = Field(ge=1)
    ticket_minutes: int = Field(ge=5, le=24 * 60)
    job_token_on_nodes: bool = False

    @model_validator(mode="after")
    def _default_fits(self) -> _LimitsTable:
        if self.default_time_minutes > self.max_time_minutes:
            raise ValueError("default_time_minutes is above max_time_minutes")
        return self


class _LimitsFile(Table):
    limits: dict[RuleName, _LimitsTable] = Field(min_length=1)


def parse_limits(text: str) -> Mapping[str, Limits]:
    """The envelopes of the file's text by name; raises InvalidBundle."""
    file = parse_toml(FILE, text, _LimitsFile)
    return MappingProxyType({name: _limits(name, table) for name, table in file.limits.items()})


def _limits(name: str, table: _LimitsTable) -> Limits:
    return Limits(
        names=(name,),
        partitions=tuple(table.partitions),
        qos=tuple(table.qos),
        slurm_accounts=tuple(table.slurm_accounts),
        max_nodes=table.max_nodes,
        max_tasks=table.max_tasks,
        max_cpus_per_task=table.max_cpus_per_task,
        max_gpus=table.max_gpus,
        max_memory_mib=table.max_memory_mib,
        max_time_minutes=table.max_time_minutes,
        default_time_minutes=table.default_time_minutes,
        ticket_minutes=table.ticket_minutes,
        job_token_on_nodes=table.job_token_on_nodes,
    )
