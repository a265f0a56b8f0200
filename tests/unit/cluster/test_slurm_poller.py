"""One question for each connection and tick; callbacks on change only; a slow connection holds up nobody else."""

import threading
import time
from collections.abc import Callable, Iterator
from queue import Queue

import pytest

from bridge.cluster.poller import Poller
from bridge.cluster.slurm import BaseState, JobState
from bridge.errors import BridgeError, Outage


def _job(job_id: int, base: BaseState, exit_code: int | None = None) -> JobState:
    return JobState(job_id, base, frozenset(), exit_code, None, (), "")


class Source:
    """States that a test sets, and the questions that were asked."""

    def __init__(self) -> None:
        self.now: dict[int, JobState] = {}
        self.asked: list[list[int]] = []
        self.trouble: BridgeError | None = None
        self.open = threading.Event()
        self.open.set()

    def states(self, job_ids: list[int]) -> dict[int, JobState]:
        self.asked.append(job_ids)
        self.open.wait(10)
        if self.trouble is not None:
            raise self.trouble
        return {job_id: self.now[job_id] for job_id in job_ids if job_id in self.now}


@pytest.fixture
def poller() -> Iterator[Poller]:
    running = Poller(fast_seconds=0.01, slow_seconds=0.05, hint_seconds=0.1)
    running.start()
    yield running
    running.stop()


def test_tells_each_change_once_and_ends_with_the_job(poller: Poller) -> None:
    source, seen, trouble = Source(), Queue[JobState](), Queue[BridgeError]()
    for state in (_job(7, BaseState.PENDING), _job(7, BaseState.RUNNING), _job(7, BaseState.FAILED, 3)):
        source.now[7] = state
        if state.base is BaseState.PENDING:
            poller.watch(7, source, seen.put, trouble.put)
        asked = len(source.asked)
        assert seen.get(timeout=10) == state
        if not state.ended:
            assert _wait(lambda asked=asked: len(source.asked) > asked + 2)  # type: ignore[misc]
    asked = len(source.asked)
    _polls(poller)
    assert len(source.asked) <= asked + 1
    assert seen.empty()
    assert trouble.empty()


def test_all_jobs_of_a_connection_are_one_question(poller: Poller) -> None:
    one, other = Source(), Source()
    for job_id in range(1, 400):
        one.now[job_id] = _job(job_id, BaseState.RUNNING)
    other.now[1] = _job(1, BaseState.RUNNING)
    for job_id in one.now:
        poller.watch(job_id, one, lambda _: None, lambda _: None)
    poller.watch(1, other, lambda _: None, lambda _: None)
    assert _wait(lambda: bool(one.asked) and len(one.asked[-1]) == 399 and bool(other.asked))
    assert other.asked[-1] == [1]


def test_many_jobs_go_in_batches(poller: Poller) -> None:
    source = Source()
    watches = [poller.watch(job_id, source, lambda _: None, lambda _: None) for job_id in range(1, 1201)]
    assert _wait(lambda: sum(len(asked) for asked in source.asked[-3:]) == 1200)
    assert max(len(asked) for asked in source.asked) == 500
    for watch in watches:
        watch.close()


def test_trouble_is_told_and_the_watching_goes_on(poller: Poller) -> None:
    source, seen, trouble = Source(), Queue[JobState](), Queue[BridgeError]()
    source.trouble = Outage("slurm.unreachable", "t", "r")
    poller.watch(7, source, seen.put, trouble.put)
    assert trouble.get(timeout=10).code == "slurm.unreachable"
    source.trouble = None
    while (told := trouble.get(timeout=10)).code == "slurm.unreachable":
        pass
    assert told.code == "slurm.job_unknown"
    source.now[7] = _job(7, BaseState.COMPLETED, 0)
    assert seen.get(timeout=10).ended


def test_a_slow_connection_holds_up_nobody_else(poller: Poller) -> None:
    slow, quick, seen = Source(), Source(), Queue[JobState]()
    slow.open.clear()
    poller.watch(1, slow, lambda _: None, lambda _: None)
    assert _wait(lambda: len(slow.asked) == 1)
    quick.now[2] = _job(2, BaseState.RUNNING)
    poller.watch(2, quick, seen.put, lambda _: None)
    assert seen.get(timeout=10).job_id == 2
    assert _wait(lambda: len(quick.asked) > 3)
    assert len(slow.asked) == 1
    slow.open.set()


def test_a_closed_watch_hears_nothing_more(poller: Poller) -> None:
    source, seen = Source(), Queue[JobState]()
    source.now[7] = _job(7, BaseState.PENDING)
    watch = poller.watch(7, source, seen.put, lambda _: None)
    assert seen.get(timeout=10).base is BaseState.PENDING
    watch.close()
    asked = len(source.asked)
    source.now[7] = _job(7, BaseState.RUNNING)
    poller.hint()
    _polls(poller)
    assert seen.empty()
    assert len(source.asked) <= asked + 1


def test_a_hint_asks_at_once() -> None:
    poller, source = Poller(fast_seconds=600, slow_seconds=600), Source()
    poller.start()
    try:
        poller.watch(7, source, lambda _: None, lambda _: None)
        assert _wait(lambda: len(source.asked) == 1 and not poller._busy)
        poller.hint()
        assert _wait(lambda: len(source.asked) == 2)
    finally:
        poller.stop()


def _polls(poller: Poller) -> None:
    """Wait until the poller has asked somebody else a few times over."""
    other = Source()
    other.now[1] = _job(1, BaseState.RUNNING)
    watch = poller.watch(1, other, lambda _: None, lambda _: None)
    assert _wait(lambda: len(other.asked) > 3)
    watch.close()


def _wait(condition: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False
