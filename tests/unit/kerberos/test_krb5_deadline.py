"""Calls into libkrb5 are bounded in time and in number, and the way is free again once they come back."""

import threading

import pytest

from bridge.kerberos.deadline import DEFAULT_SECONDS, Deadline, Late

NOTHING: dict[str, int] = {}
PATIENT_SECONDS = 30.0
"""For what must come back: a machine under load may begin a thread late."""
BRIEF_SECONDS = 0.1
"""For what must not come back in time, however soon its thread begins."""
STUCK_SECONDS = 20.0
"""A call that is stuck comes back after this long, so that nobody who waits for it waits for ever."""


def test_gives_what_the_call_gives_and_raises_what_it_raises() -> None:
    deadline = Deadline(seconds=PATIENT_SECONDS)
    assert deadline.run(lambda: 7) == 7
    assert deadline.run(lambda: None) is None
    with pytest.raises(KeyError):
        deadline.run(lambda: NOTHING["x"])


@pytest.mark.threat("T24")
def test_a_late_call_is_given_up_in_time() -> None:
    assert DEFAULT_SECONDS < 5
    release = threading.Event()
    with pytest.raises(Late):
        Deadline(seconds=BRIEF_SECONDS).run(lambda: release.wait(STUCK_SECONDS))
    release.set()


@pytest.mark.threat("T24")
def test_stuck_calls_take_no_more_than_their_slots_and_give_them_back() -> None:
    deadline, release = Deadline(seconds=PATIENT_SECONDS, slots=3), threading.Event()
    running = threading.Semaphore(0)

    def stuck() -> None:
        running.release()
        release.wait(STUCK_SECONDS)

    for _ in range(6):
        with pytest.raises(Late):
            deadline.run(stuck, seconds=BRIEF_SECONDS)
    assert all(running.acquire(timeout=PATIENT_SECONDS) for _ in range(3))
    assert not running.acquire(timeout=BRIEF_SECONDS)
    release.set()
    assert deadline.run(lambda: "free") == "free"


def test_a_thread_serves_many_calls() -> None:
    deadline = Deadline(seconds=PATIENT_SECONDS)
    thread = deadline.run(threading.current_thread)
    assert all(deadline.run(threading.current_thread) is thread for _ in range(50))


def test_many_calls_at_once_all_come_back() -> None:
    deadline, results = Deadline(seconds=PATIENT_SECONDS, slots=8), list[int]()

    def work(number: int) -> None:
        for step in range(50):
            results.append(deadline.run(lambda value=number * 100 + step: value))  # type: ignore[misc]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENT_SECONDS)
    assert sorted(results) == sorted(number * 100 + step for number in range(16) for step in range(50))


@pytest.mark.threat("T24")
def test_a_spare_call_needs_no_slot_and_takes_none() -> None:
    deadline, release = Deadline(seconds=PATIENT_SECONDS, slots=1), threading.Event()
    with pytest.raises(Late, match="no answer"):
        deadline.run(release.wait, seconds=BRIEF_SECONDS)
    assert deadline.run(lambda: "through", spare=True) == "through"
    with pytest.raises(Late, match="slots"):
        deadline.run(lambda: "not through", seconds=BRIEF_SECONDS)
    release.set()


@pytest.mark.threat("T24")
def test_what_is_forgiven_holds_no_slot_and_gives_none_back() -> None:
    deadline, release = Deadline(seconds=PATIENT_SECONDS, slots=2), threading.Event()
    for _ in range(2):
        with pytest.raises(Late):
            deadline.run(release.wait, seconds=BRIEF_SECONDS)
    deadline.forgive()
    assert deadline.run(lambda: "through") == "through"
    release.set()
    again = threading.Event()
    for _ in range(4):
        with pytest.raises(Late):
            deadline.run(again.wait, seconds=BRIEF_SECONDS)
    with pytest.raises(Late, match="slots"):
        deadline.run(lambda: "not through", seconds=BRIEF_SECONDS)
    again.set()


def test_a_caller_may_wait_for_less_and_never_for_more() -> None:
    release, patient, brief = threading.Event(), Deadline(seconds=PATIENT_SECONDS), Deadline(seconds=BRIEF_SECONDS)
    for deadline, asked in ((patient, 0.0), (patient, BRIEF_SECONDS), (brief, PATIENT_SECONDS)):
        with pytest.raises(Late):
            deadline.run(lambda: release.wait(STUCK_SECONDS), seconds=asked)
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
