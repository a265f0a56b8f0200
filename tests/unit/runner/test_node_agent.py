"""The node agent against a real KDC and a real GSSAPI acceptor: tickets come, go, and go nowhere else."""

from __future__ import annotations

import os
import stat
import time

import pytest
from node_world import REALM, UID, Node, free_port


def test_prolog_places_the_users_own_cache_and_epilog_removes_it(node: Node) -> None:
    assert node.hook("prolog") == 0, node.said
    status = node.cache.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (UID, 0o600)
    assert node.cache.read_bytes() == (node.directory / "bundle").read_bytes()
    assert node.requests() == [
        {
            "path": "/v1/node/tickets",
            "as": f"host/node1.test@{REALM}",
            "slurm_job_id": 4711,
            "uid": UID,
            "node": "node1.test",
        }
    ]
    assert node.hook("epilog") == 0, node.said
    assert not node.cache.exists()
    assert node.requests()[-1]["path"] == "/v1/node/released"
    assert node.leftovers() == []


@pytest.mark.threat("T23")
def test_epilog_keeps_the_cache_until_the_uids_last_job_ends(node: Node) -> None:
    assert (node.hook("prolog", "1"), node.hook("prolog", "2")) == (0, 0)
    assert node.hook("epilog", "1") == 0
    assert node.cache.exists()
    assert node.hook("epilog", "3") == 0
    assert node.cache.exists(), "a job without tickets of its own took another's away"
    assert node.hook("epilog", "2") == 0
    assert not node.cache.exists()


def test_a_marker_that_outlived_its_tickets_does_not_keep_the_cache(node: Node) -> None:
    assert node.hook("prolog", "1") == 0
    assert node.hook("prolog", "2") == 0
    node.marker("2", end=time.time() - 1)
    assert node.hook("epilog", "1") == 0
    assert not node.cache.exists()


@pytest.mark.threat("T35")
@pytest.mark.parametrize("kind", ["file", "link", "dangling", "fifo", "directory"])
def test_whatever_somebody_put_in_the_caches_place_is_replaced_and_never_followed(node: Node, kind: str) -> None:
    victim = node.directory / "victim"
    victim.write_text("precious")
    if kind == "file":
        node.cache.write_text("foreign")
    elif kind == "link":
        node.cache.symlink_to(victim)
    elif kind == "dangling":
        node.cache.symlink_to(node.directory / "made-by-root")
    elif kind == "fifo":
        os.mkfifo(node.cache)
    else:
        (node.cache / "full").mkdir(parents=True)
    assert node.hook("prolog") == 0, node.said
    status = node.cache.lstat()
    assert stat.S_ISREG(status.st_mode)
    assert status.st_uid == UID
    assert victim.read_text() == "precious"
    assert not (node.directory / "made-by-root").exists()


@pytest.mark.threat("T35")
def test_epilog_removes_a_link_and_not_what_it_points_to(node: Node) -> None:
    assert node.hook("prolog") == 0
    victim = node.directory / "victim"
    victim.write_text("precious")
    node.cache.unlink()
    node.cache.symlink_to(victim)
    os.chown(node.cache, UID, UID, follow_symlinks=False)
    assert node.hook("epilog") == 0
    assert not node.cache.is_symlink()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("node", ["not_ours"], indirect=True)
def test_a_job_that_is_not_the_bridges_is_left_alone(node: Node) -> None:
    assert node.hook("prolog", comment="ci-bridge pretends") == 0
    assert not node.cache.exists()
    assert not (node.directory / "state").exists()


OVER = [
    "403 killed.user",
    "403 killed.all",
    "403 consent.stopped",
    "403 link.ended",
    "409 run.ended",
    "403 run.over_time",
    "401 job.not_running",
]


@pytest.mark.threat("T16")
@pytest.mark.parametrize("node", [f"refused {one}" for one in OVER], indirect=True)
def test_a_job_whose_run_is_over_gets_no_tickets_and_does_not_drain_the_node(node: Node) -> None:
    assert node.hook("prolog") == 0
    assert "its run is over" in node.said
    assert len(node.requests()) == 1
    assert not node.cache.exists()
    assert not (node.directory / "state").exists()


@pytest.mark.parametrize("node", ["refused 403 node.not_running_here", "refused 503 killed.user"], indirect=True)
def test_another_refusal_is_asked_again(node: Node) -> None:
    assert node.hasty_prolog("ci-bridge run=x", seconds=4.0) == 0
    assert node.word("1")
    assert len(node.requests()) > 1
    assert not node.cache.exists()


@pytest.mark.parametrize("node", ["busy"], indirect=True)
def test_one_of_too_many_comes_again_when_it_is_told_to(node: Node) -> None:
    assert node.hook("prolog") == 0, node.said
    assert len(node.requests()) == 2
    assert node.cache.exists()
    assert not node.word()


@pytest.mark.parametrize("node", ["outage", "refused 429 node.too_many"], indirect=True)
def test_other_peoples_jobs_do_not_wait_for_a_bridge_that_is_down_or_busy(node: Node) -> None:
    assert node.hook("prolog", comment="my own job") == 0
    assert len(node.requests()) == 1
    assert not node.word()


@pytest.mark.parametrize("node", ["no_mutual"], indirect=True)
def test_a_bridge_that_does_not_prove_who_it_is_gets_no_file_written(node: Node) -> None:
    node.write_config(node.config.read_text().split('"')[1])
    assert node.hook("prolog") == 0
    assert "did not prove" in node.said
    assert "did not prove" in node.word()
    assert not node.cache.exists()


@pytest.mark.parametrize(("comment", "ours"), [("ci-bridge run=x", True), ("", False), ("my own job", False)])
def test_without_a_bridge_its_own_jobs_are_refused_and_no_node_is_drained(
    node: Node, comment: str, *, ours: bool
) -> None:
    node.write_config(f"https://localhost:{free_port()}")
    assert node.hasty_prolog(comment) == 0, node.said
    assert bool(node.word("1")) is ours
    assert not node.cache.exists()
    assert node.hook("epilog", "1") == 0
    assert not node.word("1")


def test_where_no_word_can_be_left_the_prolog_fails(node: Node) -> None:
    (node.directory / "refused").write_text("a file in the way")
    node.write_config(f"https://localhost:{free_port()}")
    assert node.hasty_prolog("ci-bridge run=x") == 1


@pytest.mark.threat("T20")
@pytest.mark.parametrize("bad", ["tgt", "garbage", "truncated", "empty"])
def test_a_bundle_with_more_or_less_than_service_tickets_is_not_written(node: Node, bad: str) -> None:
    bundle = node.directory / "bundle"
    good = bundle.read_bytes()
    full = (node.realm.directory / "full").read_bytes()
    bundle.write_bytes({"tgt": full, "garbage": b"\x05\x04" + b"x" * 40, "truncated": good[:-3], "empty": b""}[bad])
    assert node.hook("prolog") == 0
    assert "bad ticket cache" in node.word()
    assert not node.cache.exists()
    assert node.leftovers() == []


@pytest.mark.parametrize("name", ["../elsewhere/krb5cc_65534", "krb5cc_0", "../krb5cc_65534", "krb5cc_65533", "x"])
def test_the_bridge_can_not_name_a_file_elsewhere(node: Node, name: str) -> None:
    elsewhere = node.directory / "elsewhere"
    elsewhere.mkdir()
    path = (node.caches / name).resolve() if name.endswith("elsewhere/krb5cc_65534") else node.caches / name
    (node.directory / "cachename").write_text(f"FILE:{path}")
    assert node.hook("prolog") == 0
    assert "outside of cache_directories" in node.word()
    assert not path.exists()
    assert list(elsewhere.iterdir()) == []


def test_no_ticket_is_written_for_a_low_uid(node: Node) -> None:
    assert node.hook("prolog", uid=0) == 0
    assert node.requests() == []


def test_a_config_that_others_may_write_is_refused(node: Node) -> None:
    node.config.chmod(0o666)
    assert node.hook("prolog") == 1
    assert "writable by others" in node.said
