"""Reads ``limits.toml``: named envelopes of what a run may ask of Slurm and how long its tickets live.

The site's time zone stands here too, since limits by hours and days are read in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator, model_validator

from bridge.model import EvidenceLevel, Flavor, Limits, OnExcess
from bridge.policy.calendar import NO_ZONE, Calendar
from bridge.policy.files import Table, named, parse_toml
from bridge.policy.names import RuleName, ServiceName, SlurmName

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
    on_excess: Annotated[OnExcess, BeforeValidator(named(OnExcess))] = OnExcess.REFUSE
    ticket_minutes: int = Field(ge=5, le=24 * 60)
    targets: list[ServiceName] | None = None
    mounts: list[RuleName] | None = None
    mdt_flavor: Annotated[Flavor, BeforeValidator(named(Flavor))] = Flavor.NULL
    ost_flavor: Annotated[Flavor, BeforeValidator(named(Flavor))] = Flavor.NULL
    evidence: Annotated[EvidenceLevel, BeforeValidator(named(EvidenceLevel))] = EvidenceLevel.SIGNED
    job_token_on_nodes: bool = False

    @model_validator(mode="after")
    def _default_fits(self) -> _LimitsTable:
        if self.default_time_minutes > self.max_time_minutes:
            raise ValueError("default_time_minutes is above max_time_minutes")
        return self


class _TimeTable(Table):
    zone: str = NO_ZONE

    @field_validator("zone")
    @classmethod
    def _known(cls, zone: str) -> str:
        Calendar.of(zone)
        return zone


class _LimitsFile(Table):
    time: _TimeTable = _TimeTable()
    limits: dict[RuleName, _LimitsTable] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Envelopes:
    """What the file says."""

    by_name: Mapping[str, Limits]
    calendar: Calendar


def parse_limits(text: str) -> Envelopes:
    """The envelopes of the file's text, and the site's time zone; raises InvalidBundle."""
    file = parse_toml(FILE, text, _LimitsFile)
    by_name = MappingProxyType({name: _limits(name, table) for name, table in file.limits.items()})
    return Envelopes(by_name, Calendar.of(file.time.zone))


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
        targets=None if table.targets is None else tuple(table.targets),
        mounts=None if table.mounts is None else tuple(table.mounts),
        mdt_flavor=table.mdt_flavor,
        ost_flavor=table.ost_flavor,
        evidence=table.evidence,
        on_excess=table.on_excess,
    )
