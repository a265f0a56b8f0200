"""Every attribute, limit and key of a policy bundle stands in docs/policy.md, and nothing that is none."""

from __future__ import annotations

import json
import re

import error_codes
import pytest
from pydantic import BaseModel

from bridge.policy import accounts, cases, clusters, envelopes, roles, teams

PAGE = error_codes.CHECKOUT / "docs" / "policy.md"
SCHEMA = error_codes.CHECKOUT / "policies" / "schema.cedarschema"
ROW = re.compile(r"^\| `([a-z_.?]+)` \| (.*?) \|", re.MULTILINE)


def section(heading: str) -> str:
    text = PAGE.read_text(encoding="utf-8").partition(f"# {heading}\n")[2]
    return text.partition("\n## ")[0]


def keys(heading: str) -> set[str]:
    return {name for name, _ in ROW.findall(section(heading))}


def test_every_attribute_of_the_schema_is_explained_with_its_type() -> None:
    schema = re.sub(r"//[^\n]*", "", SCHEMA.read_text(encoding="utf-8"))
    parts = {"principal": "entity User", "resource": "entity Account", "context": "context:"}
    expected = {
        (f"{prefix}.{name}", kind)
        for prefix, start in parts.items()
        for name, kind in re.findall(r"(\w+\??): (\w+)", schema.partition(start)[2].partition("{")[2].partition("}")[0])
    }
    assert expected
    assert set(ROW.findall(section("What a policy can ask about"))) == expected


def test_every_limit_is_explained_with_its_default() -> None:
    fields = envelopes._LimitsTable.model_fields
    expected = {
        name: "required" if field.is_required() else f"`{json.dumps(field.default)}`" for name, field in fields.items()
    }
    assert dict(ROW.findall(section("limits.toml"))) == expected


def test_every_key_of_a_cluster_is_explained() -> None:
    assert keys("clusters.toml") == {"default", *clusters._ClusterTable.model_fields}


def test_every_key_of_a_mount_is_named() -> None:
    assert [key for key in clusters._MountTable.model_fields if f"`{key}`" not in section("clusters.toml")] == []


def test_every_key_of_the_accounts_is_explained() -> None:
    tables: dict[str, type[BaseModel]]
    tables = {"floor": accounts._FloorTable, "denied": accounts._DeniedTable, "account": accounts._RowTable}
    tables |= {"links": accounts._LinksTable, "provider": accounts._ProviderTable, "consent": accounts._ConsentTable}
    tables["team"] = teams.TeamTable
    assert keys("accounts.toml") == {f"{name}.{key}" for name, table in tables.items() for key in table.model_fields}


def test_every_role_and_key_of_the_roles_is_explained() -> None:
    assert keys("roles.toml") == {f"member.{key}" for key in roles._MemberTable.model_fields}
    assert [role.value for role in roles.Role if f"`{role.value}`" not in section("roles.toml")] == []


@pytest.mark.parametrize("table", [cases.Posix, cases.Asked, cases.Expected])
def test_every_key_of_a_case_is_named(table: type[BaseModel]) -> None:
    assert [name for name in table.model_fields if f"`{name}`" not in section("Cases")] == []
