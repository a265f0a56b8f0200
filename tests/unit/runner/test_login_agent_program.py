"""The login agent as a real process under a uid of its own: every verb, many at once, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agent_client import AGENT, ANSWER_SECONDS, UID, USER, AgentClient, Failed, own
from ccache_bytes import cache_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner import wire


class Site:
    """A login node's directories and the agent on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = own(_made(directory / "home"))
        self.builds, self.cache = _made(directory / "builds"), _made(directory / "cache")
        self.tmp, self.bin = _made(directory / "tmp"), _made(directory / "bin")
        for path in (self.builds, self.cache, self.tmp):
            path.chmod(0o1777)
        own(self.bin)
        shutil.copy(Path(__file__).with_name("fake_sbatch"), self.bin / "sbatch")
        config = directory / "login.toml"
        config.write_text(f'tool_directories = ["{self.bin}"]\n')
        self.agent = AgentClient(self.home, config)
        self.ccache = f"FILE:{self.tmp}/krb5cc_{UID}"

    def workspace(self, run: str = "run1") -> dict[str, Any]:
        return self.agent.ask("workspace", run=run, builds_root=str(self.builds), cache_root=str(self.cache))

    def private(self) -> Path:
        return Path(self.workspace()["private_dir"])


@pytest.fixture
def site() -> Iterator[Site]:
    """A site below a directory that the agent's uid can reach: pytest closes its own to all but one user."""
    with tempfile.TemporaryDirectory(prefix="ci-bridge-site-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        site = Site(directory)
        yield site
        site.agent.close()


def test_hello_says_who_and_where(site: Site) -> None:
    answer = site.agent.ask("hello", protocol=wire.PROTOCOL)
    assert (answer["user"], answer["uid"], answer["gid"], answer["home"]) == (USER, UID, UID, str(site.home))
    with pytest.raises(Failed, match=r"agent\.protocol"):
        site.agent.ask("hello", protocol=99)


def test_it_refuses_to_run_as_root() -> None:
    done = subprocess.run([AGENT], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 77
    assert (done.stdout, "root" in done.stderr) == ("", True)


@pytest.mark.parametrize(
    ("command", "code"), [("", 0), ("ci-bridge-login", 0), ("/bin/sh", 77), ("ci-bridge-login -x", 77)]
)
def test_a_client_can_not_ask_for_another_command(command: str, code: int) -> None:
    argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(AGENT)]
    environment = {"SSH_ORIGINAL_COMMAND": command, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (code, b"")


def test_workspace_makes_private_directories_and_may_be_repeated(site: Site) -> None:
    first = site.workspace()
    assert first == site.workspace() | {"id": first["id"]}
    assert first["builds_dir"] == f"{site.builds}/{USER}/run1/builds"
    assert first["cache_dir"] == f"{site.cache}/{USER}"
    for path in (first["builds_dir"], first["private_dir"], first["cache_dir"], f"{site.builds}/{USER}/run1"):
        status = Path(path).stat()
        assert (status.st_uid, status.st_mode & 0o7777) == (UID, 0o700)


def test_workspace_closes_a_directory_that_was_left_open(site: Site) -> None:
    private = site.private()
    private.chmod(0o777)
    site.workspace()
    assert private.stat().st_mode & 0o7777 == 0o700


def test_a_script_runs_in_a_clean_login_environment(site: Site) -> None:
    script = b"env; echo err >&2; cat; pwd; umask; exit 3"
    done, output = site.agent.finish(site.agent.start("run", script, env={"TMPDIR": "/x y\nz"}, cwd="/usr"))
    assert (done["exit_code"], done["signal"]) == (3, None)
    text = output.decode()
    assert "canary" not in text
    assert "KRB5CCNAME" not in text
    for line in (
        f"HOME={site.home}",
        f"USER={USER}",
        f"LOGNAME={USER}",
        "SHELL=/bin/bash",
        "TMPDIR=/x y\nz",
        "err",
        "/usr",
    ):
        assert f"{line}\n" in text


def test_a_script_is_never_on_a_disk(site: Site) -> None:
    before = set(site.directory.rglob("*"))
    _, output = site.agent.finish(site.agent.start("run", b'readlink "$0"; (echo x >> "$0") 2>&1'))
    assert b"memfd:ci-bridge-script" in output
    assert b"not permitted" in output, "a running script can be changed"
    assert set(site.directory.rglob("*")) == before


@pytest.mark.parametrize(("script", "signal_number"), [(b"kill -9 $$", 9), (b"kill -TERM $$", 15)])
def test_the_end_by_a_signal_is_told_as_such(site: Site, script: bytes, signal_number: int) -> None:
    done, _ = site.agent.finish(site.agent.start("run", script))
    assert (done["exit_code"], done["signal"]) == (None, signal_number)


def test_large_output_arrives_whole_and_in_order(site: Site) -> None:
    _, output = site.agent.finish(site.agent.start("run", b"seq 1 400000"))
    assert output == "".join(f"{number}\n" for number in range(1, 400001)).encode()


def test_the_end_of_a_script_ends_its_group(site: Site) -> None:
    done, output = site.agent.finish(site.agent.start("run", b"sleep 600 & echo $!; exit 0"))
    assert done["exit_code"] == 0
    assert not _alive(int(output))


@pytest.mark.parametrize(
    "script", [b"sleep 61 & echo $!; wait", b"trap '' TERM; sleep 62 & echo $!; while :; do wait; done"]
)
def test_stop_returns_once_the_group_is_gone(site: Site, script: bytes) -> None:
    number = site.agent.start("run", script)
    child = int(site.agent.next(number)[1])
    site.agent.ask("stop", target=number, grace_seconds=0.5)
    assert not _alive(child)
    assert site.agent.finish(number)[0]["exit_code"] in (None, 143)


def test_a_stop_right_after_the_start_is_not_lost(site: Site) -> None:
    for _ in range(20):
        number = site.agent.start("run", b"sleep 63")
        site.agent.ask("stop", target=number, grace_seconds=0.2)
        assert site.agent.finish(number)[0]["signal"] in (9, 15)


def test_stopping_what_has_ended_is_fine(site: Site) -> None:
    number = site.agent.start("run", b"true")
    site.agent.finish(number)
    site.agent.ask("stop", target=number, grace_seconds=1)


@pytest.mark.parametrize(("way", "trap"), [("eof", "trap '' TERM"), ("TERM", "true"), ("HUP", "true")])
def test_nothing_outlives_the_agent(site: Site, way: str, trap: str) -> None:
    script = f"sleep 64 & echo $!; setsid sleep 65 & echo $!; {trap}; while :; do wait; done"
    children = _numbers(site.agent, site.agent.start("run", script.encode()), 2)
    if way != "eof":
        os.kill(site.agent.ask("hello", protocol=wire.PROTOCOL)["pid"], getattr(signal, f"SIG{way}"))
    assert site.agent.close() == 0
    assert [child for child in children if _alive(child)] == []


def test_many_requests_are_under_way_at_once(site: Site) -> None:
    release = site.tmp / "go"
    waiting = [
        site.agent.start("run", f"until [ -e {release} ]; do sleep 0.02; done; echo {n}".encode()) for n in range(20)
    ]
    site.agent.ask("hello", protocol=wire.PROTOCOL)
    release.touch()
    with ThreadPoolExecutor(20) as pool:
        assert [output for _, output in pool.map(site.agent.finish, waiting)] == [f"{n}\n".encode() for n in range(20)]


def test_garbage_ends_the_agent_with_a_word(site: Site) -> None:
    assert site.agent.process.stdin is not None
    site.agent.process.stdin.write(b"\xff" * 64)
    site.agent.process.stdin.flush()
    assert site.agent.process.wait(ANSWER_SECONDS) == 76
    assert site.agent.process.stderr is not None
    assert b"Traceback" not in site.agent.process.stderr.read()


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("nothing", {}),
        ("hello", {"protocol": "1"}),
        ("workspace", {"run": "../x", "builds_root": "/", "cache_root": "/"}),
        ("workspace", {"run": "a" * 65, "builds_root": "/tmp", "cache_root": "/tmp"}),
        ("workspace", {"run": "a", "builds_root": "tmp", "cache_root": "/tmp"}),
        ("workspace", {"run": "a", "builds_root": "/tmp/../etc", "cache_root": "/tmp"}),
        ("put", {"path": "/x\0y", "mode": 0o600}),
        ("put", {"path": "relative", "mode": 0o600}),
        ("put", {"path": f"/a/{USER}/r/private/x", "mode": 0o666}),
        ("put", {"path": f"/a/{USER}/r/private/x", "mode": 0o4700}),
        ("tickets", {"ccache": "/tmp/x"}),
        ("tickets", {"ccache": "KEYRING:x"}),
        ("run", {"env": {"A=B": "x"}}),
        ("run", {"env": ["A"]}),
        ("run", {"cwd": 7}),
        ("submit", {"argv": "sbatch"}),
        ("submit", {"argv": []}),
        ("submit", {"argv": ["a\0b"]}),
        ("release", {"job_id": "1;id"}),
        ("cancel", {"job_id": "-1"}),
        ("cancel", {"job_id": "1", "signal": "--help"}),
        ("find", {"name": "a,b"}),
        ("find", {"name": ""}),
        ("state", {"job_ids": ["1,2"]}),
        ("follow", {"path": "/x", "offset": -1}),
        ("stop", {"target": True}),
    ],
)
def test_a_malformed_request_is_refused_by_name(site: Site, verb: str, fields: dict[str, Any]) -> None:
    with pytest.raises(Failed) as refused:
        site.agent.ask(verb, **fields)
    assert refused.value.code == "agent.request"


@pytest.mark.threat("T29")
def test_arguments_reach_sbatch_byte_for_byte(site: Site) -> None:
    text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
    hostile = st.sampled_from(
        ["$(id)", "`id`", ";id", "a\nb", "--uid=0", "'", '"', "\\", "*", "", " ", "-", "é", "\x1b[2J"]
    )

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(text | hostile, min_size=1, max_size=8))
    def check(argv: list[str]) -> None:
        answer = site.agent.ask("submit", argv=argv)
        assert (answer["job_id"], answer["cluster"]) == ("4711", "pocket")
        assert (site.bin / "argv").read_bytes().split(b"\0") == [b"--parsable", *(entry.encode() for entry in argv)]

    check()


@pytest.mark.threat("T30")
def test_slurms_commands_get_a_clean_environment(site: Site) -> None:
    site.agent.ask("submit", argv=["x"])
    names = {entry.partition(b"=")[0] for entry in (site.bin / "environ").read_bytes().split(b"\0")}
    assert names == {b"HOME", b"LANG", b"LOGNAME", b"PATH", b"SHELL", b"USER"}


@pytest.mark.parametrize(
    ("tool", "body", "verb", "fields", "code"),
    [
        ("sbatch", "echo 'Invalid qos' >&2; exit 1", "submit", {"argv": ["x"]}, "slurm.refused"),
        (
            "sbatch",
            "echo 'Unable to contact slurm controller' >&2; exit 1",
            "submit",
            {"argv": ["x"]},
            "slurm.unavailable",
        ),
        ("sbatch", "echo hello", "submit", {"argv": ["x"]}, "slurm.unreadable"),
        ("scontrol", "echo 'Invalid job id specified' >&2; exit 1", "release", {"job_id": "1"}, "slurm.refused"),
        ("squeue", "echo 'a|b'", "state", {"job_ids": ["1"]}, "slurm.unreadable"),
        ("none", "", "find", {"name": "ci-x"}, "slurm.not_installed"),
    ],
)
def test_what_slurm_says_becomes_a_code(
    site: Site, tool: str, body: str, verb: str, fields: dict[str, Any], code: str
) -> None:
    _tool(site, tool, body)
    with pytest.raises(Failed) as refused:
        site.agent.ask(verb, **fields)
    assert refused.value.code == code


NOT_YET = "Job update not available right now, the DB index is being set, try again in a bit for job 7"


def test_a_job_that_can_not_be_released_in_this_moment_is_released_in_the_next(site: Site) -> None:
    fails_twice = f"""
echo x >> "$0.calls"
[ "$(/usr/bin/wc -l < "$0.calls")" -ge 3 ] || {{ echo "{NOT_YET}" >&2; exit 1; }}
"""
    _tool(site, "scontrol", fails_twice)
    site.agent.ask("release", job_id="7")
    assert len((site.bin / "scontrol.calls").read_text().splitlines()) == 3


def test_state_asks_sacct_only_for_what_squeue_forgot(site: Site) -> None:
    _tool(site, "squeue", 'echo "$@" > "$0.args"; echo "7|RUNNING|0|n1|2026-11-20T22:23:15|None|"')
    _tool(site, "sacct", 'echo "$@" > "$0.args"; echo "5|FAILED|3:0|n1|2026-11-20T22:23:15|None"')
    jobs = site.agent.ask("state", job_ids=["7", "5", "6"])["jobs"]
    assert [(job["job_id"], job["state"], job["exit_code"]) for job in jobs] == [
        ("7", "RUNNING", 0),
        ("5", "FAILED", 3),
    ]
    assert "--jobs=7,5,6" in (site.bin / "squeue.args").read_text()
    assert "--jobs=5,6" in (site.bin / "sacct.args").read_text()


def test_find_joins_both_and_believes_squeue_first(site: Site) -> None:
    _tool(site, "squeue", 'echo "7|PENDING|0||2026-11-20T22:23:15|JobHeldUser|"')
    _tool(site, "sacct", 'echo "7|CANCELLED by 3|0:0|||None"; echo "5|FAILED|3:0|n1||None"')
    jobs = site.agent.ask("find", name="ci-run-build_script")["jobs"]
    assert [(job["job_id"], job["state"]) for job in jobs] == [("7", "PENDING"), ("5", "FAILED")]


@pytest.mark.parametrize(
    "said", ["scancel: error: Kill job error on job id 5: Invalid job id specified", "Job has already finished"]
)
def test_cancelling_what_is_gone_is_fine(site: Site, said: str) -> None:
    _tool(site, "scancel", f"echo '{said}' >&2; exit 1")
    site.agent.ask("cancel", job_id="5", signal="TERM")


def test_an_unknown_id_alone_is_an_empty_answer(site: Site) -> None:
    _tool(site, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    _tool(site, "sacct", "true")
    assert site.agent.ask("state", job_ids=["99"])["jobs"] == []


def test_follow_waits_for_the_file_and_sends_each_byte_once(site: Site) -> None:
    log = site.private() / "stage.log"
    number = site.agent.start("follow", path=str(log), offset=0)
    written = b""
    with log.open("ab", buffering=0) as file:
        for size in (1, 10, 200_000, 3, 1_000_000):
            written += os.urandom(size)
            file.write(written[-size:])
            time.sleep(0.01)
    site.agent.ask("stop", target=number, drain=True)
    done, output = site.agent.finish(number)
    assert (output, done["offset"]) == (written, len(written))


def test_follow_goes_on_from_an_offset_and_says_it(site: Site) -> None:
    log = site.private() / "stage.log"
    log.write_bytes(b"0123456789")
    number = site.agent.start("follow", path=str(log), offset=4)
    header, data = site.agent.next(number)
    assert (header["offset"], data) == (4, b"456789")
    site.agent.ask("stop", target=number, drain=True)
    assert site.agent.finish(number)[0]["offset"] == 10


def test_follow_without_a_file_can_be_stopped(site: Site) -> None:
    number = site.agent.start("follow", path=str(site.private() / "never"), offset=0)
    site.agent.ask("stop", target=number, drain=True)
    assert site.agent.finish(number)[0]["offset"] == 0


def test_follow_is_quick_and_fast(site: Site) -> None:
    log = site.private() / "stage.log"
    number = site.agent.start("follow", path=str(log), offset=0)
    delays = []
    with log.open("ab", buffering=0) as file:
        for _ in range(5):
            time.sleep(0.3)
            started = time.monotonic()
            file.write(b"x")
            site.agent.next(number)
            delays.append(time.monotonic() - started)
        size = 50_000_000
        zeros = bytes(size)
        started, got = time.monotonic(), 0
        file.write(zeros)
        while got < size:
            got += len(site.agent.next(number)[1])
    rate = size / (time.monotonic() - started)
    sys.stdout.write(f"follow: {max(delays) * 1000:.0f} ms at most, {rate / 1e6:.0f} MB/s\n")
    assert sorted(delays)[2] < 2, "hundreds of times what it takes on an idle machine"
    assert rate > 5e6, "a twentieth of what an idle machine does"
    site.agent.ask("stop", target=number, drain=False)


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_follow_reads_nothing_but_a_file(site: Site, kind: str) -> None:
    log = site.private() / "stage.log"
    if kind == "link":
        log.symlink_to("/etc/hostname")
    elif kind == "fifo":
        os.mkfifo(log, 0o666)
    else:
        log.mkdir(0o777)
    with pytest.raises(Failed, match=r"workspace\.foreign"):
        site.agent.finish(site.agent.start("follow", path=str(log), offset=0))


def test_tickets_are_placed_replaced_and_dropped(site: Site) -> None:
    path = Path(site.ccache.removeprefix("FILE:"))
    for data in (cache_bytes(USER, 1), cache_bytes(USER, 2)):
        site.agent.ask("tickets", data, ccache=site.ccache)
        assert (path.read_bytes(), path.stat().st_mode & 0o777, path.stat().st_uid) == (data, 0o600, UID)
    assert site.agent.ask("drop_tickets", ccache=site.ccache)["removed"] is True
    assert site.agent.ask("drop_tickets", ccache=site.ccache)["removed"] is False
    assert list(site.tmp.iterdir()) == []


def test_destroy_removes_the_run_and_the_tickets_and_may_be_repeated(site: Site) -> None:
    builds = Path(site.workspace()["builds_dir"])
    other = Path(site.workspace("run2")["builds_dir"])
    site.agent.ask("tickets", cache_bytes(USER, 1), ccache=site.ccache)
    script = (
        f"cd {builds}; mkdir -p a/b; touch a/b/c 'x\ny'; ln -s {other} link; ln -s / root; chmod 500 a/b; chmod 0 a"
    )
    site.agent.finish(site.agent.start("run", script.encode()))
    for _ in range(2):
        site.agent.ask("destroy", run="run1", builds_root=str(site.builds), ccache=site.ccache)
    assert [entry.name for entry in (site.builds / USER).iterdir()] == ["run2"]
    assert other.is_dir()
    assert list(site.tmp.iterdir()) == []


def test_destroy_gets_rid_of_a_very_deep_tree(site: Site) -> None:
    builds = site.workspace()["builds_dir"]
    script = f"cd {builds}; for i in $(seq 300); do mkdir d; cd d; done; touch x"
    site.agent.finish(site.agent.start("run", script.encode()))
    site.agent.ask("destroy", run="run1", builds_root=str(site.builds), ccache=None)
    assert list((site.builds / USER).iterdir()) == []


def test_threads_of_one_client_do_not_mix_answers(site: Site) -> None:
    def ask(n: int) -> bytes:
        return site.agent.finish(site.agent.start("run", f"echo {n}".encode()))[1]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(40))) == [f"{n}\n".encode() for n in range(40)]


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def _tool(site: Site, name: str, body: str) -> None:
    path = site.bin / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def _numbers(agent: AgentClient, number: int, count: int) -> list[int]:
    text = b""
    while text.count(b"\n") < count:
        text += agent.next(number)[1]
    return [int(line) for line in text.split()]
