"""What is wrong with a policy bundle, where, and the one error that tells of all of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from bridge.errors import RequestRefused


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or only strange, in a bundle's file."""

    file: str
    """Path relative to the bundle's directory."""
    line: int | None
    """Counted from 1; None where only the file is known."""
    message: str

    def __str__(self) -> str:
        """``file:line: message``, as compilers write it."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


class InvalidBundle(Exception):
    """Raised within this room while a bundle is read; ``load_bundle`` turns it into a RequestRefused."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


def refusal(problems: Sequence[Problem]) -> RequestRefused:
    """The error ``policy.invalid`` that names the first problem, and carries all in ``context["problems"]``."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return RequestRefused(
        "policy.invalid",
        f"The policy bundle can not be used: {problems[0]}{more}.",
        "Correct the named file; the bundle that is active stays active.",
        problems=tuple(map(str, problems)),
    )


def from_validation(file: str, text: str, error: ValidationError) -> list[Problem]:
    """One problem for each complaint of pydantic about the TOML ``text``, with its line where that can be found."""
    return [
        Problem(file, _line_of(text, item["loc"]), f"{'.'.join(map(str, item['loc']))}: {item['msg']}")
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def _line_of(text: str, location: Sequence[int | str]) -> int | None:
    """The line of the table, then of the key in it, that a pydantic location such as ("account", 2, "uid") names."""
    lines = text.splitlines()
    table, found = "", None
    start = 0
    for part in location:
        if isinstance(part, int):
            row = _nth(lines, f"[[{table}]]", part)
            if row is not None:
                start, found = row, row + 1
            continue
        table = f"{table}.{part}" if table else part
        header = next((n for n, line in enumerate(lines) if re.fullmatch(rf"\[\[?{re.escape(table)}\]\]?", line)), None)
        key = _key(lines, part, start)
        if header is not None and found is None:
            start, found = header, header + 1
        elif key is not None:
            found = key + 1
    return found


def _nth(lines: Sequence[str], header: str, index: int) -> int | None:
    places = [n for n, line in enumerate(lines) if line.strip() == header]
    return places[index] if index < len(places) else None


def _key(lines: Sequence[str], name: str, start: int) -> int | None:
    """The line of ``name = ...`` in the table that begins at line index ``start``."""
    for number in range(start, len(lines)):
        if number > start and lines[number].lstrip().startswith("["):
            return None
        if re.match(rf"\s*{re.escape(name)}\s*=", lines[number]):
            return number
    return None
