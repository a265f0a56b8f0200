"""A Slurm stage that waits has no thread, and is there at once when something comes, whatever it is."""

from __future__ import annotations

import threading

import pytest
from bench import Broker, Reader, Web, wait_until
from slurm_example import recorded, running_job, start

from bridge.model import StageState
from bridge.runs.feed import HOLD_BYTES
from bridge.runs.live_run import LiveRun
from tests.fakes import FakeCluster


def at_work(web: Web) -> list[threading.Thread]:
    """The threads of its stages."""
    return [thread for thread in threading.enumerate() if thread.name == web.crew.name]


def resting(web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun) -> Reader:
    """A stage whose job runs, and says nothing."""
    reader = start(web, live)
    running_job(broker, cluster, live, reader)
    wait_until(lambda: not at_work(web), "rest")
    return reader


def test_a_job_that_runs_and_says_nothing_has_no_thread(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = resting(web, broker, cluster, live)
    assert reader.task is not None
    assert not reader.task.over
    assert reader.task.rests
    cluster.end(4711)
    assert reader.end()["outcome"] == "ok"
    wait_until(lambda: not at_work(web))


def test_what_a_job_says_now_and_then_comes_at_once_and_in_order(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader, said = resting(web, broker, cluster, live), b""
    for number in range(20):
        said += b"line %d\n" % number
        cluster.write(4711, b"line %d\n" % number)
        reader.until(lambda: reader.has(len(said)))  # noqa: B023 - it is over before the next
        wait_until(lambda: not at_work(web), "rest")
    cluster.end(4711)
    assert reader.end()["outcome"] == "ok"
    assert reader.log == said


def test_the_words_of_a_job_that_has_ended_are_not_lost_behind_a_rest(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = resting(web, broker, cluster, live)
    cluster.stalled = True
    cluster.write(4711, b"last words\n")
    cluster.end(4711)
    assert reader.end()["outcome"] == "ok"
    assert reader.log == b"last words\n"


def test_a_cancel_wakes_a_stage(web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun) -> None:
    reader = resting(web, broker, cluster, live)
    assert reader.task is not None
    reader.task.cancel()
    assert reader.end()["outcome"] == "cancelled"
    assert cluster.jobs[4711].over


def test_a_connection_that_is_lost_wakes_a_stage_and_nothing_is_said_twice(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = resting(web, broker, cluster, live)
    cluster.write(4711, b"one\n")
    reader.until(lambda: reader.has(4))
    for number in range(3):
        wait_until(lambda: not at_work(web), "rest")
        before = len(cluster.called("follow"))
        cluster.cut()
        wait_until(lambda: len(cluster.called("follow")) > before, "a new connection")  # noqa: B023
        cluster.write(4711, b"more %d\n" % number)
        reader.until(lambda: reader.log.endswith(b"more %d\n" % number))  # noqa: B023
    cluster.end(4711)
    assert reader.end()["outcome"] == "ok"
    assert reader.log == b"one\nmore 0\nmore 1\nmore 2\n"
    assert len(cluster.jobs) == 1


def test_a_process_that_lets_go_leaves_no_thread_and_asks_no_more(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader = resting(web, broker, cluster, live)
    assert reader.task is not None
    web.runs.close()
    assert reader.task.wait(10)
    wait_until(lambda: not at_work(web))
    assert recorded(broker, live).state is StageState.RUNNING
    assert not cluster.jobs[4711].over
    wait_until(lambda: all(watch.closed for watch in web.poller._watches), "the end of the watching")


def test_an_executor_that_is_far_behind_holds_a_thread_of_the_log_and_not_the_stage(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun
) -> None:
    reader, whole = resting(web, broker, cluster, live), b"x" * (HOLD_BYTES * 3)
    assert reader.task is not None
    cluster.write(4711, whole)
    wait_until(lambda: reader.task.feed._held >= HOLD_BYTES)  # type: ignore[union-attr]
    reader.task.cancel()
    wait_until(lambda: cluster.called("cancel"), "the cancel")
    assert reader.end()["outcome"] == "cancelled"
    assert reader.log == whole


@pytest.mark.parametrize("twice", [False, True])
def test_a_cancel_again_and_a_close_after_the_end_change_nothing(
    web: Web, broker: Broker, cluster: FakeCluster, live: LiveRun, twice: bool
) -> None:
    reader = resting(web, broker, cluster, live)
    assert reader.task is not None
    cluster.end(4711)
    reader.end()
    assert reader.task.wait(10)
    for _ in range(1 + twice):
        reader.task.cancel()
        reader.task.wake()
    reader.task.close()
    wait_until(lambda: not at_work(web))
    assert recorded(broker, live).state is StageState.ENDED
    assert cluster.called("cancel") == []
