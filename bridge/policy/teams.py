"""Accounts that several people share for named projects: a team's service account, in place of each one's own.

A team says (issuer, members, projects) -> account and uid. It counts only for the project's own pipelines: what a fork
brings runs as the person. Who the person is stays in the identity, the decision and the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field

from bridge.model import Identity
from bridge.policy.files import Table
from bridge.policy.names import AccountName

_Ids = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]


class TeamTable(Table):
    """``[[team]]`` of ``accounts.toml``."""

    issuer: str = Field(pattern=r"^https://[a-z0-9.:/_-]+$")
    account: AccountName
    uid: int = Field(ge=0, le=2**32 - 2)
    members: _Ids
    projects: _Ids
    expires: date | None = None
    note: str = Field(default="", max_length=200)


@dataclass(frozen=True, slots=True)
class Team:
    """People who run as one account in some projects."""

    issuer: str
    account: str
    uid: int
    members: frozenset[int]
    """GitLab's ids of users."""
    projects: frozenset[int]
    expires: date | None
    """The last day on which it counts."""


@dataclass(frozen=True, slots=True)
class Teams:
    """All teams, by what an identity says."""

    by_member: Mapping[tuple[str, int, int], Team]
    """(issuer, user id, project id)"""

    def of(self, identity: Identity) -> Team | None:
        """The team as whose account the job runs, past its last day too; None: as the person's own account."""
        if identity.project_id != identity.job_project_id:
            return None
        return self.by_member.get((identity.issuer, identity.user_id, identity.project_id))


NO_TEAMS: Final = Teams(MappingProxyType({}))


def teams_of(tables: Sequence[TeamTable]) -> Teams:
    """The teams of the tables; raises ValueError where somebody has two accounts in one project."""
    found: dict[tuple[str, int, int], Team] = {}
    for table in tables:
        team = Team(
            table.issuer, table.account, table.uid, frozenset(table.members), frozenset(table.projects), table.expires
        )
        for member in sorted(team.members):
            for project in sorted(team.projects):
                if (team.issuer, member, project) in found:
                    raise ValueError(f"user {member} of {team.issuer} is in two teams of project {project}")
                found[team.issuer, member, project] = team
    return Teams(MappingProxyType(found))
