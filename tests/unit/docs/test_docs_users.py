"""docs/users.md names exactly the Slurm options that are allowed, and codes that exist."""

from __future__ import annotations

import re

import error_codes

from bridge.cluster import options
from runner.executor import redact, settings

PAGE = (error_codes.CHECKOUT / "docs" / "users.md").read_text(encoding="utf-8")


def test_the_allowed_options_are_listed_with_their_short_forms() -> None:
    rows = re.findall(r"^\| `--([a-z-]+)` \| (?:`-(\w)`)? *\| ", PAGE, re.MULTILINE)
    assert {name for name, _ in rows} == set(options.ALLOWED_OPTIONS)
    assert {short: name for name, short in rows if short} == dict(options._SHORT)


def test_the_example_is_accepted() -> None:
    found = re.search(r'SCHEDULER_PARAMETERS: "([^"]+)"', PAGE)
    assert found
    assert options.parse_options(found[1]).partition == "ci"


def test_every_code_on_the_page_exists() -> None:
    codes = error_codes.collect().found.keys()
    rows = [line for line in PAGE.splitlines() if line.startswith("| `") and "." in line.partition(" | ")[0]]
    named = {code for line in rows for code in re.findall(r"`([a-z_]+\.[a-z_]+)`", line.partition(" | ")[0])}
    assert named
    assert named <= codes


def test_names_that_a_project_meets_are_the_code_s() -> None:
    assert f"`{redact.REMOVED.decode()}`" in PAGE
    assert f"{settings.Settings({'bridge_url': 'unix:/x'}).id_token}:" in PAGE
