"""A run goes on over a new connection when the tickets of the old one end: nothing is lost or submitted again."""

from __future__ import annotations

import pytest
from bench import Reader, Web, wait_until
from slurm_example import start

from bridge.errors import Outage
from bridge.runs.live_run import LiveRun
from tests.fakes import FakeCluster


def _ended() -> Outage:
    return Outage("login.tickets_ended", "The tickets of the connection have ended.", "Nothing.")


def _running(web: Web, cluster: FakeCluster, live: LiveRun) -> tuple[Reader, int]:
    reader = start(web, live)
    job = cluster.wait_job()
    cluster.run(job.job_id)
    cluster.write(job.job_id, b"one\n")
    reader.until(lambda: reader.log)
    return reader, job.job_id


@pytest.mark.parametrize("verb", ["state", "follow.read"])
def test_a_job_is_followed_on(web: Web, cluster: FakeCluster, live: LiveRun, verb: str) -> None:
    reader, job_id = _running(web, cluster, live)
    cluster.fail(verb, _ended())
    cluster.write(job_id, b"two\n")
    wait_until(lambda: not cluster._faults)
    cluster.write(job_id, b"three\n")
    cluster.end(job_id, exit_code=7)

    assert (reader.end()["outcome"], reader.end()["exit_code"]) == ("script_failed", 7)
    assert reader.log == b"one\ntwo\nthree\n"
    assert len(cluster.called("submit")) == 1


def test_a_cancel_comes_through(web: Web, cluster: FakeCluster, live: LiveRun) -> None:
    reader, job_id = _running(web, cluster, live)
    cluster.fail("cancel", _ended())
    assert reader.task is not None
    reader.task.cancel()
    assert reader.end()["outcome"] == "cancelled"
    assert cluster.jobs[job_id].over


@pytest.mark.parametrize("verb", ["put", "submit", "release"])
def test_a_submission_is_made_once(web: Web, cluster: FakeCluster, live: LiveRun, verb: str) -> None:
    cluster.fail(verb, _ended())
    reader = start(web, live)
    cluster.end(cluster.wait_job().job_id)
    assert reader.end()["outcome"] == "ok"
    assert len(cluster.jobs) == 1
