"""A flood of refusals: ten records, then one a minute that counts the rest."""

from __future__ import annotations

import pytest

from bridge.folding import FIRST, Folding


class Log:
    """What was recorded, by a clock that stands still until it is moved."""

    def __init__(self, most_kinds: int = 100) -> None:
        self.now = 0.0
        self.records: list[tuple[str, int]] = []
        self.folding = Folding(clock=lambda: self.now, most_kinds=most_kinds)

    def note(self, kind: str, times: int = 1) -> list[str]:
        return [self.folding.note(kind, lambda *record: self.records.append(record)) for _ in range(times)]


@pytest.mark.threat("T43")
def test_a_flood_is_counted_and_not_recorded_one_by_one() -> None:
    log = Log()
    references = log.note("node.too_many host/node1", 500)
    assert [folded for _, folded in log.records] == [0] * FIRST
    assert references[:FIRST] == [reference for reference, _ in log.records]
    assert set(references[FIRST:]) == {log.records[-1][0]}, "a reference that nobody can look up"

    log.now += 61
    last = log.note("node.too_many host/node1", 100)
    assert log.records[FIRST:] == [(last[0], 500 - FIRST)]
    assert set(last) == {last[0]}


def test_each_kind_has_its_own_records() -> None:
    log = Log()
    log.note("node.too_many host/node1", 50)
    log.note("node.wrong_node host/node1")
    log.note("node.too_many host/node2")
    assert len(log.records) == FIRST + 2


def test_a_kind_that_was_forgotten_is_recorded_again() -> None:
    log = Log(most_kinds=2)
    log.note("a", FIRST + 5)
    log.note("b")
    log.note("c")
    log.note("a")
    assert len(log.records) == FIRST + 3


def test_what_can_not_be_recorded_is_said() -> None:
    def full(reference: str, folded: int) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Folding(clock=lambda: 0.0).note("a", full)
