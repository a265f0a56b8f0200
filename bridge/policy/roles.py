"""Who may do what with the bridge itself: Kerberos principals and their roles, from ``roles.toml``.

Without the file nobody has a role. A person without a role still has a say about their own account.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, StringConstraints

from bridge.policy.files import Table, parse_toml
from bridge.policy.problems import InvalidBundle, Problem

FILE: Final = "roles.toml"


class Role(enum.StrEnum):
    """What a person may do."""

    VIEWER = "viewer"
    """See policies, links, runs and decisions."""
    AUTHOR = "author"
    """Write policies, and propose them and links."""
    APPROVER = "approver"
    """Approve or reject what somebody else proposed."""
    OPERATOR = "operator"
    """Throw and lift kill switches, cancel runs, end links."""
    AUDITOR = "auditor"
    """Read the audit log."""


def _role(value: object) -> object:
    """A name as a role: strict models take no text for an enumeration."""
    return Role(value) if isinstance(value, str) else value


class _MemberTable(Table):
    principal: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}(/[A-Za-z0-9_.-]{1,64})?@[A-Z0-9][A-Z0-9.-]{0,126}$")
    ]
    roles: list[Annotated[Role, BeforeValidator(_role)]] = Field(min_length=1)
    note: str = Field(default="", max_length=200)


class _RolesFile(Table):
    member: list[_MemberTable] = Field(default=[])


@dataclass(frozen=True, slots=True)
class Roles:
    """Who has which roles."""

    by_principal: Mapping[str, frozenset[Role]]

    def of(self, principal: str) -> frozenset[Role]:
        """The roles of a principal, as ``name@REALM`` or ``name/instance@REALM``; exact, and none for all others."""
        return self.by_principal.get(principal, frozenset())


NOBODY: Final = Roles(MappingProxyType({}))


def parse_roles(text: str) -> Roles:
    """The roles of the file's text; raises InvalidBundle, also for a principal that is there twice."""
    members: dict[str, frozenset[Role]] = {}
    for table in parse_toml(FILE, text, _RolesFile).member:
        if table.principal in members:
            raise InvalidBundle([Problem(FILE, None, f"{table.principal} is there twice")])
        members[table.principal] = frozenset(table.roles)
    return Roles(MappingProxyType(members))
