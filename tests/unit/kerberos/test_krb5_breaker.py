"""The breaker opens on silence only, lets one caller try, and closes at any answer."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.kerberos.breaker import Breaker, Open


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def opened(clock: Clock, silences: int = 3, pause: float = 2.0) -> Breaker:
    """A breaker that has just opened."""
    breaker = Breaker(silences, pause, clock)
    for _ in range(silences):
        assert breaker.enter() is False
        breaker.silent(probe=False)
    return breaker


@pytest.mark.threat("T24")
def test_silences_in_a_row_open_it_and_an_answer_between_does_not() -> None:
    breaker = Breaker(3, 2.0, Clock())
    for _ in range(5):
        for _ in range(2):
            breaker.enter()
            breaker.silent(probe=False)
        breaker.enter()
        breaker.answered()
    assert breaker.enter() is False


@pytest.mark.threat("T24")
def test_while_it_is_open_nobody_passes_before_the_pause_is_over() -> None:
    clock = Clock()
    breaker = opened(clock)
    assert breaker.is_open
    for clock.now in (0.0, 1.0, 1.9):
        with pytest.raises(Open):
            breaker.enter()
    clock.now = 2.0
    assert breaker.enter() is True
    with pytest.raises(Open):
        breaker.enter()


def test_a_probe_without_an_answer_starts_the_pause_anew() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 2.0
    assert breaker.enter() is True
    clock.now = 6.0
    breaker.silent(probe=True)
    clock.now = 7.9
    with pytest.raises(Open):
        breaker.enter()
    clock.now = 8.0
    assert breaker.enter() is True


@pytest.mark.parametrize("by_the_probe", [True, False])
def test_any_answer_closes_it_for_all(*, by_the_probe: bool) -> None:
    clock = Clock()
    breaker = opened(clock)
    if by_the_probe:
        clock.now = 2.0
        assert breaker.enter() is True
    breaker.answered()
    assert not breaker.is_open
    assert [breaker.enter() for _ in range(10)] == [False] * 10


def test_a_late_silence_of_an_older_caller_does_not_free_the_probes_place() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 2.0
    assert breaker.enter() is True
    breaker.silent(probe=False)
    clock.now = 100.0
    with pytest.raises(Open):
        breaker.enter()


def test_of_many_threads_one_is_the_probe() -> None:
    clock = Clock()
    breaker, passed, start = opened(clock), list[bool](), threading.Barrier(32)
    clock.now = 2.0

    def enter() -> None:
        start.wait(30)
        try:
            passed.append(breaker.enter())
        except Open:
            return

    threads = [threading.Thread(target=enter) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert passed == [True]


@given(st.lists(st.sampled_from(["enter", "silent", "answered", "wait"]), max_size=60))
def test_there_is_never_more_than_one_probe_and_never_none_for_ever(steps: list[str]) -> None:
    clock, callers = Clock(), list[bool]()
    breaker = Breaker(2, 1.0, clock)
    for step in steps:
        if step == "wait":
            clock.now += 1.0
        elif step == "enter":
            try:
                callers.append(breaker.enter())
            except Open:
                assert breaker.is_open
        elif callers and step == "silent":
            breaker.silent(probe=callers.pop())
        elif callers:
            callers.pop()
            breaker.answered()
    for probe in callers:
        breaker.silent(probe=probe)
    clock.now += 1.0
    breaker.enter()
