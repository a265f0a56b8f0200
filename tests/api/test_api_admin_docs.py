"""docs/api.md names every address of the admin API, with who may, and none that does not exist."""

from __future__ import annotations

import re

from tests.api.test_api_admin_roles import ANY, EVERYBODY, TABLE
from tests.unit.core.bench import CHECKOUT

PAGE = (CHECKOUT / "docs" / "api.md").read_text(encoding="utf-8")
CALL = re.compile(r"`(GET|POST|PUT|DELETE) /v1/admin(/[^`?]*)`")


def test_every_address_is_there_and_no_other() -> None:
    assert set(CALL.findall(PAGE)) == set(TABLE)


def test_each_says_who_may() -> None:
    for line in PAGE.splitlines():
        for row in CALL.findall(line):
            allowed, said = TABLE[row][0], line.split("|")[2].strip()
            if allowed in (ANY, EVERYBODY):
                assert said.partition(",")[0] in ("any role", "everybody", "its owner", "a person"), line
            else:
                roles = {role for role in ANY if role in said} | ({"author"} if "its author" in said else set())
                assert "a person" in said or "everybody" in said or allowed <= roles | {"author"}, line
