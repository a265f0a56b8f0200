"""docs/security.md says of each threat whether a test is marked with it, and names no test mark that does not exist."""

from __future__ import annotations

import ast
import re

import error_codes

PAGE = (error_codes.CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8")


def marks() -> set[str]:
    """Every number with which a test is marked."""
    found = set()
    for path in sorted((error_codes.CHECKOUT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.threat"):
                found |= {one.value for one in node.args if isinstance(one, ast.Constant)}
    return {str(one) for one in found}


def test_the_table_says_which_threats_have_a_test() -> None:
    rows = dict(re.findall(r"^\| (T\d+) \| .+ \| (yes|not yet) \|$", PAGE, re.MULTILINE))
    assert list(rows) == [f"T{number}" for number in range(1, 51)]
    said = {number for number, tested in rows.items() if tested == "yes"}
    assert sorted(marks() - said) == [], "tested, and the page says not yet"
    assert sorted(said - marks()) == [], "the page says yes, and no test has the mark"


def test_every_mark_that_a_scenario_names_exists() -> None:
    named = {number for line in re.findall(r"^Tests: .+", PAGE, re.MULTILINE) for number in re.findall(r"T\d+", line)}
    assert named
    assert sorted(named - marks()) == []


def test_files_that_the_page_names_exist() -> None:
    paths = re.findall(r"`((?:tests|bridge|runner)/[a-z_/]+\.py)`", PAGE)
    assert [path for path in paths if not (error_codes.CHECKOUT / path).is_file()] == []
