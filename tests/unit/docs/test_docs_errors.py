"""Every stable error code stands in docs/errors.md, and nothing stands there that nobody raises."""

from __future__ import annotations

import ast
import re

import error_codes
import pytest

from bridge.cluster.agent import _KINDS
from bridge.errors import Outage

PAGE = error_codes.CHECKOUT / "docs" / "errors.md"
ROW = re.compile(r"^\| `([a-z0-9_.]+)` \| (refused|outage|defect) \| (\S.*) \| (\S.*) \|$")
KINDS = {
    **dict.fromkeys(("TokenRefused", "PolicyRefused", "RequestRefused", "Conflict", "NotFound"), "refused"),
    "Outage": "outage",
    "TooMany": "outage",
    "Defect": "defect",
}

NOT_CODES = {"bridge.cli.main", "limits.toml", "http.rcache"}
"""Look like codes; are a module and files."""


@pytest.fixture(scope="module")
def codes() -> error_codes.Codes:
    return error_codes.collect()


def rows() -> dict[str, tuple[str, str]]:
    """Code to kind and remedy, for each row of the page."""
    found = [match for line in PAGE.read_text(encoding="utf-8").splitlines() if (match := ROW.match(line))]
    assert len({match[1] for match in found}) == len(found), "a code has two rows"
    return {match[1]: (match[2], match[4]) for match in found}


def test_every_code_that_is_raised_is_explained(codes: error_codes.Codes) -> None:
    missing = {code: sorted(places) for code, places in codes.found.items() if code not in rows()}
    assert not missing, missing
    assert rows().keys() >= error_codes.DYNAMIC.keys()


@pytest.mark.parametrize(("code", "place"), error_codes.DYNAMIC.items())
def test_a_code_that_is_made_otherwise_is_still_made(code: str, place: tuple[str, str]) -> None:
    file, needle = place
    assert needle in (error_codes.CHECKOUT / file).read_text(encoding="utf-8"), code


def test_no_code_is_explained_that_nobody_raises(codes: error_codes.Codes) -> None:
    assert sorted(rows().keys() - codes.found.keys() - error_codes.DYNAMIC.keys()) == []


def test_every_row_of_a_table_of_codes_is_read() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert [line for line in lines if not ROW.match(line)] == []


def test_the_page_names_the_kind_of_the_class_that_is_raised(codes: error_codes.Codes) -> None:
    page = rows()
    wrong = {
        code: (kinds, page[code][0])
        for code, kinds in codes.kinds.items()
        if code in page and {KINDS[kind] for kind in kinds if kind in KINDS} - {page[code][0]}
    }
    assert not wrong, wrong


def test_the_page_names_the_kind_that_an_error_of_the_login_agent_becomes(codes: error_codes.Codes) -> None:
    page = rows()
    said_by_agent = [code for code, kinds in codes.kinds.items() if kinds == {"VerbFailed"}]
    assert said_by_agent
    assert {code: page[code][0] for code in said_by_agent} == {
        code: KINDS[_KINDS.get(code, Outage).__name__] for code in said_by_agent
    }


def test_a_code_that_cannot_be_followed_is_a_known_relay(codes: error_codes.Codes) -> None:
    assert {place.partition(":")[0] for place in codes.unfollowed} <= error_codes.RELAYS, codes.unfollowed


def test_no_constant_looks_like_a_code_and_is_none(codes: error_codes.Codes) -> None:
    known = codes.found.keys() | error_codes.DYNAMIC.keys() | NOT_CODES
    prefixes = {code.partition(".")[0] for code in codes.found}
    strange = {
        text: sorted(places)
        for text, places in error_codes.code_like_constants().items()
        if text not in known and text.partition(".")[0] in prefixes
    }
    assert not strange, strange


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("raise Outage('a.direct', '', '')", {"a.direct"}),
        ("raise errors.Outage(code='a.keyword', title='', remedy='')", {"a.keyword"}),
        ("raise CallFailed(OUTAGE, 'a.second', '', '')", {"a.second"}),
        ("def _no(why): return TokenRefused(f'token.{why}', '', '')\nraise _no('late')", {"token.late"}),
        ("def _no(c, why): return Outage(c, why, '')\ndef _no2(c): return _no(c, '')\n_no2('a.deep')", {"a.deep"}),
        ("class A:\n def no(self, c): raise Outage(c, '', '')\n def f(self): self.no('a.method')", {"a.method"}),
        ("def _no(c): return Outage(c + 'x', '', '')\n_no('a.b')", set()),
    ],
)
def test_the_collector_follows(source: str, expected: set[str]) -> None:
    codes = error_codes.Codes([error_codes.Module("made.py", "made", ast.parse(source))])
    assert codes.found.keys() == expected
    assert bool(codes.unfollowed) == (not expected)
