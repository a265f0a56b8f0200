"""A timer's tick: tickets that end soon are renewed while the bridge lets them, and what a crash left is removed."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from node_world import UID, Node

from runner.node import refresh
from runner.node.asking import Bundle
from runner.node.markers import Markers
from runner.node.settings import Settings

OTHER_BOOT = "00000000-0000-0000-0000-000000000000"


def _old(node: Node, job_id: str = "4711", left: float = 100.0, **changes: object) -> None:
    """Have a job's tickets be 900 s old, with so many seconds left."""
    now = time.time()
    node.marker(job_id, got=now - 900, end=now + left, **changes)


def _asked_for(node: Node, purpose: str = "tickets") -> list[object]:
    return [one["slurm_job_id"] for one in node.requests() if one["path"] == f"/v1/node/{purpose}"]


def test_tickets_that_end_soon_are_renewed_at_once_and_whole(node: Node) -> None:
    node.hook("prolog")
    node.slurm(steps=("4711",))
    before = node.cache.stat().st_ino
    assert node.refresh() == ""
    assert len(node.requests()) == 1, "fresh tickets were asked for again"

    (node.directory / "bundle").write_bytes(node.realm.bundle())
    _old(node)
    assert "renewed" in node.refresh()
    status = node.cache.stat()
    assert (status.st_uid, status.st_mode & 0o777) == (UID, 0o600)
    assert status.st_ino != before, "the cache was written over, not replaced"
    assert node.cache.read_bytes() == (node.directory / "bundle").read_bytes()
    marker = node.marker()
    assert float(str(marker["end"])) > time.time() + 3600
    assert node.refresh() == ""
    assert len(node.requests()) == 2
    assert node.asked() == 0, "the controller was asked about a job whose steps run here"
    assert node.leftovers() == []


@pytest.mark.parametrize("left", [301.0, 5000.0])
def test_tickets_with_more_than_a_third_left_are_not_asked_for(node: Node, left: float) -> None:
    node.hook("prolog")
    node.slurm(steps=("4711",))
    now = time.time()
    node.marker(got=now - (left - 1) * 2, end=now + left)
    assert node.refresh() == ""
    assert len(node.requests()) == 1


@pytest.mark.threat("T16")
@pytest.mark.parametrize("code", ["403 killed.user", "403 run.over_time", "409 run.ended", "404 node.not_ours"])
def test_a_refusal_leaves_the_old_tickets_to_end_and_is_said_once(node: Node, code: str) -> None:
    node.hook("prolog")
    node.slurm(steps=("4711",))
    old = node.cache.read_bytes()
    _old(node)
    (node.directory / "refusals").write_text(f"4711 {code}\n")
    said = node.refresh()
    assert f"not renewed: {code.split()[1]}" in said
    assert node.cache.read_bytes() == old
    assert node.refresh() == ""
    assert len(node.requests()) == 2


def test_an_outage_leaves_the_old_tickets_and_is_tried_at_the_next_tick(node: Node) -> None:
    node.hook("prolog")
    node.slurm(steps=("4711",))
    _old(node)
    (node.directory / "refusals").write_text("4711 503 db.down\n")
    assert "not renewed yet" in node.refresh()
    assert node.cache.exists()
    (node.directory / "refusals").unlink()
    assert "renewed in" in node.refresh()


@pytest.mark.threat("T20")
def test_a_bad_bundle_does_not_replace_a_good_one(node: Node) -> None:
    node.hook("prolog")
    node.slurm(steps=("4711",))
    old = node.cache.read_bytes()
    (node.directory / "bundle").write_bytes((node.realm.directory / "full").read_bytes())
    _old(node)
    assert "bad ticket cache" in node.refresh()
    assert node.cache.read_bytes() == old


def test_one_job_renews_for_all_of_the_uid_and_a_stopped_one_does_not_stand_in_the_way(node: Node) -> None:
    for job in ("1", "2", "3"):
        node.hook("prolog", job)
        _old(node, job)
    node.slurm(steps=("1", "2", "3"))
    node.marker("2", got=time.time() - 1000)
    (node.directory / "refusals").write_text("2 403 killed.project\n")
    said = node.refresh()
    assert "not renewed: killed.project" in said
    assert said.count("renewed in") == 1
    ends = [float(str(node.marker(job)["end"])) for job in ("1", "2", "3")]
    assert min(ends) > time.time() + 3600, "a job that lives on these tickets was forgotten"
    assert node.refresh() == ""


@pytest.mark.threat("T23")
def test_what_a_crash_left_is_removed_and_the_bridge_told(node: Node) -> None:
    node.hook("prolog")
    node.slurm()
    said = node.refresh()
    assert "not here any more: tickets of uid 65534 removed" in said
    assert not node.cache.exists()
    assert node.marker() == {}
    assert _asked_for(node, "released") == [4711]
    assert node.refresh() == ""


@pytest.mark.threat("T23")
def test_what_a_boot_left_is_removed_without_asking_anybody(node: Node) -> None:
    node.hook("prolog")
    node.marker(boot=OTHER_BOOT)
    node.slurm(steps=("4711",), jobs=("4711",))
    assert "removed" in node.refresh()
    assert not node.cache.exists()
    assert node.asked() == 0


@pytest.mark.threat("T23")
def test_a_job_that_is_gone_leaves_the_tickets_to_one_that_is_here(node: Node) -> None:
    node.hook("prolog", "1")
    node.hook("prolog", "2")
    node.slurm(steps=("2",))
    assert "kept for another job" in node.refresh()
    assert node.cache.exists()
    assert node.marker("1") == {}
    node.hook("epilog", "2")
    assert not node.cache.exists()


def test_a_job_between_two_steps_is_known_to_the_controller(node: Node) -> None:
    node.hook("prolog")
    node.slurm(jobs=("4711",))
    assert node.refresh() == ""
    assert node.cache.exists()
    assert node.asked() == 1


@pytest.mark.threat("T23")
def test_while_slurm_does_not_answer_tickets_stay_until_their_end_and_no_longer(node: Node) -> None:
    node.hook("prolog")
    node.slurm(silent=True)
    assert node.refresh() == ""
    assert node.cache.exists()
    node.marker(end=time.time() - 1)
    (node.tools / "squeue").unlink()
    assert "removed" in node.refresh()
    assert not node.cache.exists()


def test_a_requeued_job_gets_fresh_tickets(node: Node) -> None:
    node.hook("prolog")
    node.hook("epilog")
    assert not node.cache.exists()
    node.hook("prolog")
    assert node.cache.exists()
    _old(node)
    node.hook("prolog")
    assert float(str(node.marker()["end"])) > time.time() + 3600
    assert _asked_for(node) == [4711, 4711, 4711]


def test_a_node_without_bridge_jobs_asks_nobody(node: Node) -> None:
    node.slurm()
    assert node.refresh() == ""
    assert node.asked() == 0
    assert node.requests() == []


def test_a_cache_that_the_user_removed_comes_back_in_time(node: Node) -> None:
    node.hook("prolog")
    node.slurm(steps=("4711",))
    node.cache.unlink()
    _old(node)
    assert "renewed" in node.refresh()
    assert node.cache.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", json.dumps({"cache": "FILE:/x"}), "17 FILE:/tmp/x"])
def test_a_marker_that_can_not_be_read_stops_nothing(node: Node, content: str) -> None:
    node.hook("prolog", "1")
    (node.directory / "state" / str(UID) / "2").write_text(content)
    _old(node, "1")
    node.slurm(steps=("1",))
    assert "renewed" in node.refresh()


@pytest.mark.threat("T23")
def test_one_users_trouble_is_not_anothers(node: Node) -> None:
    node.hook("prolog")
    other = node.directory / "state" / "1234"
    other.mkdir()
    (other / "9").write_text(json.dumps(node.marker() | {"cache": "FILE:/elsewhere/krb5cc_1234", "boot": OTHER_BOOT}))
    node.slurm()
    said = node.refresh()
    assert "uid 1234: the bridge named a ticket cache outside" in said
    assert "tickets of uid 65534 removed" in said
    assert not node.cache.exists()


def test_two_ticks_at_once_are_one(node: Node) -> None:
    node.hook("prolog")
    _old(node)
    node.slurm(steps=("4711",))
    holder = subprocess.Popen(
        ["flock", str(node.directory / "state"), "sh", "-c", "echo ready; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    try:
        assert "another refresh is at work" in node.refresh()
        assert len(node.requests()) == 1
    finally:
        holder.communicate(b"")
    assert "renewed" in node.refresh()


class Overtaken:
    """Slurm says that the job is gone, and by then its prolog has come again: it was requeued."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def here(self, job_id: str) -> bool:
        """See Presence."""
        assert self.node.hook("prolog", job_id) == 0
        return False


@pytest.mark.threat("T48")
def test_a_requeued_jobs_new_tickets_are_not_taken_for_the_old(node: Node) -> None:
    assert node.hook("prolog") == 0
    said = refresh._reap(Settings(str(node.config)), UID, Overtaken(node))  # type: ignore[arg-type]
    assert said == []
    assert node.cache.exists()
    assert node.marker()


@pytest.mark.threat("T23")
@pytest.mark.threat("T48")
def test_tickets_that_come_after_the_epilog_are_not_written(node: Node) -> None:
    assert node.hook("prolog") == 0
    settings = Settings(str(node.config))
    (asked,) = Markers(settings.state_directory, UID).all()
    bundle = Bundle(f"FILE:{node.cache}", node.cache.read_bytes(), int(time.time()) + 3600)
    assert node.hook("epilog") == 0
    assert "nothing written" in refresh._place(settings, UID, asked, bundle)
    assert not node.cache.exists()
    assert node.marker() == {}
