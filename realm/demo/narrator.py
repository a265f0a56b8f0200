"""Tells the story in a terminal: a line for each step, its evidence below, and a count at the end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field

Evidence = Iterable[str]


class Unconvincing(Exception):
    """The step ran, and what it showed is not what it should be."""


@dataclass
class StepResult:
    """How one step came out."""

    title: str
    ok: bool
    seconds: float
    evidence: list[str] = field(default_factory=list)
    failure: str | None = None


class Narrator:
    """Runs steps one after the other and tells of them; goes on after a failure, so that all that is wrong shows."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._colour = sys.stdout.isatty()
        self.results: list[StepResult] = []

    def tell(self, title: str, step: Callable[[], Evidence]) -> bool:
        """Run one step; what it returns is its evidence, what it raises its failure."""
        number = len(self.results) + 1
        self._say(f"{number:>2}  {title}", end="", bold=True)
        began = time.monotonic()
        result = StepResult(title, ok=True, seconds=0.0)
        try:
            result.evidence = list(step())
        except Exception as error:  # noqa: BLE001 - whatever went wrong is the story then
            result.ok = False
            result.failure = f"{type(error).__name__}: {error}"
        result.seconds = round(time.monotonic() - began, 2)
        self.results.append(result)
        self._say(f"  [{'ok' if result.ok else 'FAILED'}, {result.seconds:.1f} s]")
        for line in result.evidence:
            self._say(f"      {line}")
        if result.failure:
            self._say(f"      why: {result.failure}")
        return result.ok

    def close(self) -> bool:
        """Tell the count; return whether every step was ok."""
        good = sum(result.ok for result in self.results)
        if self._as_json:
            document = {"ok": good == len(self.results), "steps": [asdict(result) for result in self.results]}
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
        self._say(f"demo: {good} of {len(self.results)} steps ok")
        return good == len(self.results)

    def _say(self, text: str, end: str = "\n", *, bold: bool = False) -> None:
        if not self._as_json:
            sys.stdout.write((f"\x1b[1m{text}\x1b[0m" if bold and self._colour else text) + end)
            sys.stdout.flush()


def require(condition: object, complaint: str) -> None:
    """Raise Unconvincing with the complaint unless the condition holds."""
    if not condition:
        raise Unconvincing(complaint)
