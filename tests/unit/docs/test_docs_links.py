"""Every relative link and every path of the checkout that README.md and docs/ name exists."""

from __future__ import annotations

import re
from pathlib import Path

import error_codes
import pytest

CHECKOUT = error_codes.CHECKOUT
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:deploy|policies|realm|scripts|tests|migrations)/[A-Za-z0-9_./-]*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_of_the_checkout_that_is_named_exists(page: Path) -> None:
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (CHECKOUT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_page_says_whom_it_is_for(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert lines[2].startswith("*For "), lines[2]


def test_every_page_is_reached_from_the_readme() -> None:
    seen, waiting = set(), [CHECKOUT / "README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        links = [link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8"))]
        waiting += [to for link in links if link.endswith(".md") and (to := (page.parent / link).resolve()) not in seen]
    assert sorted(page.name for page in set(PAGES) - seen) == []
