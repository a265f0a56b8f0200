"""Threads on demand: each piece of work at once, none kept for what waits, nothing that was asked for is overlooked."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from bench import LONGEST_WAIT_SECONDS, wait_until

from bridge.crew import Crew, Errand


def named(name: str) -> list[threading.Thread]:
    """The threads of a crew."""
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_work_that_is_stuck_holds_up_no_other() -> None:
    crew, gate, done = Crew("stuck-crew", spare_seconds=0.05), threading.Event(), threading.Semaphore(0)
    for _ in range(20):
        crew.start(lambda: gate.wait(LONGEST_WAIT_SECONDS))
    crew.start(done.release)
    assert done.acquire(timeout=LONGEST_WAIT_SECONDS)
    gate.set()
    wait_until(lambda: not named("stuck-crew"), "the end of the threads")


def test_a_thread_that_is_free_serves_again() -> None:
    crew, free, served = Crew("kept-crew"), threading.Semaphore(0), list[threading.Thread]()
    for _ in range(50):
        crew.start(lambda: served.append(threading.current_thread()), free.release)
        assert free.acquire(timeout=LONGEST_WAIT_SECONDS)
    assert len(set(served)) == 1


def test_work_for_which_no_thread_can_be_had_is_done_by_the_next_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    crew, gate, done = Crew("short-crew", spare_seconds=0.05), threading.Event(), list[int]()
    crew.start(lambda: gate.wait(LONGEST_WAIT_SECONDS))
    wait_until(lambda: named("short-crew"))

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for number in range(3):
        crew.start(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == []
    gate.set()
    wait_until(lambda: done == [0, 1, 2])
    monkeypatch.undo()
    wait_until(lambda: not named("short-crew"))
    crew.start(lambda: done.append(3))
    wait_until(lambda: done == [0, 1, 2, 3])


def test_many_who_begin_work_at_once_have_all_of_it_done() -> None:
    crew, done = Crew("busy-crew", spare_seconds=0.001), threading.Semaphore(0)

    def ask() -> None:
        for _ in range(500):
            crew.start(done.release)

    run_together([ask] * 8)
    for _ in range(8 * 500):
        assert done.acquire(timeout=LONGEST_WAIT_SECONDS)
    wait_until(lambda: not named("busy-crew"))


def test_an_errand_is_never_done_twice_at_once_and_no_call_is_overlooked() -> None:
    box, taken, doing = list[int](), list[int](), threading.Lock()

    def work() -> None:
        assert doing.acquire(blocking=False)
        while box:
            taken.append(box.pop())
        doing.release()

    errand = Errand(Crew("errand-crew", spare_seconds=0.001), work)

    def ask(first: int) -> Callable[[], None]:
        def put() -> None:
            for number in range(500):
                box.append(first + number)
                errand.call()

        return put

    run_together([ask(1000 * who) for who in range(8)])
    wait_until(lambda: len(taken) == 8 * 500, "the last call")
    assert sorted(taken) == sorted(1000 * who + number for who in range(8) for number in range(500))
    wait_until(lambda: not named("errand-crew"))


def test_a_call_while_an_errand_is_being_done_has_it_done_once_more() -> None:
    began, gate, times = threading.Semaphore(0), threading.Event(), list[int]()

    def work() -> None:
        times.append(1)
        began.release()
        gate.wait(LONGEST_WAIT_SECONDS)

    errand = Errand(Crew("again-crew", spare_seconds=0.05), work)
    errand.call()
    assert began.acquire(timeout=LONGEST_WAIT_SECONDS)
    for _ in range(5):
        errand.call()
    gate.set()
    wait_until(lambda: not named("again-crew"))
    assert len(times) == 2


def run_together(work: list[Callable[[], Any]]) -> None:
    """Do each in a thread, and wait for all."""
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST_WAIT_SECONDS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_errand_that_failed_is_done_at_the_next_call() -> None:
    done = list[int]()

    def work() -> None:
        done.append(1)
        if len(done) == 1:
            raise ValueError("a defect")

    errand = Errand(Crew("failing-crew", spare_seconds=0.05), work)
    errand.call()
    wait_until(lambda: done and not named("failing-crew"))
    errand.call()
    wait_until(lambda: len(done) == 2)
    wait_until(lambda: not named("failing-crew"))
