"""Calls into libkrb5 are bounded in time and in number, and the way is free again once they come back."""

import threading
import time

import pytest

from bridge.kerberos.deadline import Deadline, Late

NOTHING: dict[str, int] = {}


def test_gives_what_the_call_gives_and_raises_what_it_raises() -> None:
    deadline = Deadline(seconds=5)
    assert deadline.run(lambda: 7) == 7
    assert deadline.run(lambda: None) is None
    with pytest.raises(KeyError):
        deadline.run(lambda: NOTHING["x"])


@pytest.mark.threat("T24")
def test_a_late_call_is_given_up_in_time() -> None:
    release = threading.Event()
    began = time.monotonic()
    with pytest.raises(Late):
        Deadline(seconds=0.1).run(release.wait)
    assert time.monotonic() - began < 2
    release.set()


@pytest.mark.threat("T24")
def test_stuck_calls_take_no_more_than_their_slots_and_give_them_back() -> None:
    deadline, release, running = Deadline(seconds=0.1, slots=3), threading.Event(), threading.Semaphore(0)

    def stuck() -> None:
        running.release()
        release.wait()

    for _ in range(6):
        with pytest.raises(Late):
            deadline.run(stuck)
    assert sum(running.acquire(blocking=False) for _ in range(6)) == 3
    release.set()
    patient = time.monotonic() + 10
    while time.monotonic() < patient:
        try:
            assert deadline.run(lambda: "free") == "free"
        except Late:
            continue
        break
    else:
        pytest.fail("no slot became free")


def test_a_thread_serves_many_calls() -> None:
    deadline = Deadline(seconds=5)
    thread = deadline.run(threading.current_thread)
    assert all(deadline.run(threading.current_thread) is thread for _ in range(50))


def test_many_calls_at_once_all_come_back() -> None:
    deadline, results = Deadline(seconds=20, slots=8), list[int]()

    def work(number: int) -> None:
        for step in range(50):
            results.append(deadline.run(lambda value=number * 100 + step: value))  # type: ignore[misc]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == sorted(number * 100 + step for number in range(16) for step in range(50))


@pytest.mark.threat("T24")
def test_a_spare_call_needs_no_slot_and_takes_none() -> None:
    deadline, release = Deadline(seconds=0.1, slots=1), threading.Event()
    with pytest.raises(Late):
        deadline.run(release.wait)
    assert deadline.run(lambda: "through", spare=True) == "through"
    with pytest.raises(Late, match="slots"):
        deadline.run(lambda: "not through")
    release.set()


@pytest.mark.threat("T24")
def test_what_is_forgiven_holds_no_slot_and_gives_none_back() -> None:
    deadline, release = Deadline(seconds=20, slots=2), threading.Event()
    for _ in range(2):
        with pytest.raises(Late):
            deadline.run(release.wait, seconds=0.1)
    deadline.forgive()
    assert deadline.run(lambda: "through") == "through"
    release.set()
    again = threading.Event()
    for _ in range(4):
        with pytest.raises(Late):
            deadline.run(again.wait, seconds=0.1)
    with pytest.raises(Late, match="slots"):
        deadline.run(lambda: "not through", seconds=0.1)
    again.set()


def test_a_caller_may_wait_for_less_and_never_for_more() -> None:
    deadline, release = Deadline(seconds=0.2), threading.Event()
    for asked in (0.0, 0.1, 60.0):
        began = time.monotonic()
        with pytest.raises(Late):
            deadline.run(release.wait, seconds=asked)
        assert time.monotonic() - began < 5
    release.set()


@pytest.mark.threat("T24")
def test_no_time_is_too_short_to_be_a_bound() -> None:
    """A wait whose time is over between two of its own steps must not become one without end."""
    deadline, over = Deadline(seconds=20, slots=10_000), threading.Semaphore(0)

    def ask() -> None:
        for _ in range(20):
            release = threading.Event()
            for microseconds in range(100):
                with pytest.raises(Late):
                    deadline.run(release.wait, seconds=microseconds / 1e6)
            release.set()
        over.release()

    for _ in range(6):
        threading.Thread(target=ask, daemon=True).start()
    for _ in range(6):
        assert over.acquire(timeout=60)
