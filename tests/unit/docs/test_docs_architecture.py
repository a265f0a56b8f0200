"""The contracts in docs/architecture.md are those of the code: routes, verbs, operations, states and files."""

from __future__ import annotations

import ast
import re

import error_codes
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from bridge.api import consent, executor, health, kills, links, node, people
from bridge.lifecycle import LOGIN_TRANSITIONS, RUN_TRANSITIONS, SLURM_TRANSITIONS
from bridge.web import account, linking, style
from runner.login import agent

PAGE = (error_codes.CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def routes(*routers: APIRouter) -> set[str]:
    return {
        f"{method} {re.sub('{run_id}', '{run}', route.path)}"
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }


def listed(heading: str) -> set[str]:
    first = [line.split(" | ")[0] for line in section(heading).splitlines() if line.startswith("| `")]
    return {call.partition("?")[0] for line in first for call in re.findall(r"`([A-Z]+ [^`]+)`", line)}


def test_the_calls_of_executor_and_node_are_the_routes() -> None:
    assert listed("The HTTP contract, executor to web") == routes(executor.router, health.router)
    assert listed("The HTTP contract, node to web") == routes(node.router)


def test_the_calls_and_pages_of_people_are_the_routes() -> None:
    api = routes(people.router, links.router, consent.router, kills.router)
    assert listed("The HTTP contract, people to web") == api
    assert listed("The pages") == routes(account.router, linking.router, style.router)


def test_the_fields_of_an_admission_are_listed() -> None:
    text = section("The HTTP contract, executor to web")
    names = [*executor.AdmissionRequest.model_fields, *executor.Facts.model_fields]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_verbs_are_the_login_agents() -> None:
    lines = section("The login agent's contract").splitlines()
    rows = [line.split(" | ")[0] for line in lines if line.startswith("| `")]
    assert {verb for row in rows for verb in re.findall(r"`(\w+)`", row)} == {*agent._SHORT, *agent._LONG}


def test_the_operations_are_the_brokers() -> None:
    tree = ast.parse((error_codes.CHECKOUT / "bridge" / "broker" / "desk.py").read_text(encoding="utf-8"))
    handlers = next(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == "handlers")
    table = next(one for one in ast.walk(handlers) if isinstance(one, ast.Dict))
    operations = {str(key.value) for key in table.keys if isinstance(key, ast.Constant)}
    assert operations
    assert set(re.findall(r"`(\w+)`", section("The broker's contract"))) == operations


@pytest.mark.parametrize("table", [RUN_TRANSITIONS, SLURM_TRANSITIONS, LOGIN_TRANSITIONS])
def test_every_state_is_drawn(table: dict[str, object]) -> None:
    assert [state for state in table if str(state).upper() not in section("States")] == []


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?:\.py|/)?)`", PAGE))
    homes = [error_codes.CHECKOUT, error_codes.CHECKOUT / "bridge"]
    missing = [name for name in sorted(named) if not any((h / n).exists() for h in homes for n in (name, f"{name}.py"))]
    assert named
    assert missing == []
