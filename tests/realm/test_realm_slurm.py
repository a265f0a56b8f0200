"""Slurm in the realm is real: people submit, nodes run, accounting remembers, outsiders are refused."""

import time

import pytest

from realm import Realm
from realm.host import Host

_ACCOUNTING_SECONDS = 20.0


@pytest.fixture
def login(realm: Realm) -> Host:
    """The login node."""
    return realm.host("login")


def _sacct(login: Host, job: str, fields: str) -> list[str]:
    """One job's fields, once accounting has all of them.

    slurmctld tells slurmdbd every few seconds only, and a short job's end may be there before its partition and QOS.
    """
    end = time.monotonic() + _ACCOUNTING_SECONDS
    while True:
        argv = ["sacct", "-X", "-P", "-n", "-j", job, "-o", f"Partition,State,{fields}"]
        partition, *words = login.run(argv, user="alice").stdout.decode().strip().split("|")
        if (partition and words[0] not in ("PENDING", "RUNNING")) or time.monotonic() > end:
            return words
        time.sleep(0.1)


def _sbatch(login: Host, script: str, *options: str, user: str = "alice") -> str:
    argv = ["sbatch", "--parsable", "--wait", "-o", "/dev/null", *options]
    done = login.run(argv, user=user, input=f"#!/bin/sh\n{script}\n".encode(), check=False)
    return done.stdout.decode().strip()


def test_two_nodes_run_one_step_as_the_submitter(login: Host) -> None:
    done = login.run(["srun", "-N2", "sh", "-c", "echo $(hostname) $(id -un)"], user="alice")
    assert sorted(done.stdout.decode().splitlines()) == ["node1.realm.test alice", "node2.realm.test alice"]


@pytest.mark.parametrize(("script", "state", "code"), [("exit 0", "COMPLETED", "0:0"), ("exit 3", "FAILED", "3:0")])
def test_accounting_has_the_exit_code(login: Host, script: str, state: str, code: str) -> None:
    job = _sbatch(login, script, "--comment=why")
    assert _sacct(login, job, "ExitCode,User,Account,QOS,Partition,Comment") == [
        state,
        code,
        "alice",
        "chem",
        "normal",
        "ci",
        "why",
    ]


def test_killed_job_is_seen_as_killed(login: Host) -> None:
    job = _sbatch(login, "kill -9 $$")
    assert _sacct(login, job, "ExitCode") == ["FAILED", "0:9"]


def test_bob_has_his_own_account_and_not_hers(login: Host) -> None:
    job = _sbatch(login, "true", "--qos=ci", user="bob")
    assert _sacct(login, job, "Account,QOS")[1:] in (["bio", "ci"], [])
    refused = login.run(["sbatch", "--account=chem"], user="bob", input=b"#!/bin/sh\ntrue\n", check=False)
    assert b"Invalid account" in refused.stderr


def test_person_without_an_account_is_refused(login: Host) -> None:
    refused = login.run(["sbatch"], user="mallory", input=b"#!/bin/sh\ntrue\n", check=False)
    assert refused.returncode == 1
    assert b"Invalid account" in refused.stderr


def test_held_job_waits_until_it_is_released(login: Host) -> None:
    held = login.run(["sbatch", "--parsable", "--hold", "-o", "/dev/null"], user="alice", input=b"#!/bin/sh\ntrue\n")
    job = held.stdout.decode().strip()
    show = ["squeue", "-h", "-j", job, "-o", "%T %r"]
    assert login.run(show, user="alice").stdout.decode().strip() == "PENDING JobHeldUser"
    login.run(["scontrol", "release", job], user="alice")
    assert _sacct(login, job, "ExitCode") == ["COMPLETED", "0:0"]


def test_job_output_written_on_a_node_is_seen_on_the_login_node(login: Host) -> None:
    job = _sbatch(login, "hostname; pwd; klist 2>&1 | head -1", "--chdir=/home/alice", "-o", "/home/alice/out-%j")
    lines = login.run(["cat", f"/home/alice/out-{job}"], user="alice").stdout.decode().splitlines()
    assert lines[0] in ("node1.realm.test", "node2.realm.test")
    assert lines[1:] == ["/home/alice", "klist: No credentials cache found (filename: /tmp/krb5cc_20001)"]


def test_cancel_ends_the_processes_of_a_job(realm: Realm, login: Host) -> None:
    script = b"#!/bin/sh\ntouch /home/alice/started\nsleep 4242\n"
    mark = login.path("/home/alice/started")
    mark.unlink(missing_ok=True)
    job = (
        login.run(["sbatch", "--parsable", "-w", "node2", "-o", "/dev/null"], user="alice", input=script)
        .stdout.decode()
        .strip()
    )
    _until(mark.exists)
    login.run(["scancel", job], user="alice")
    _until(lambda: b"sleep 4242" not in realm.host("node2").run(["ps", "ax", "-o", "args"]).stdout)
    assert _sacct(login, job, "ExitCode")[0] == "CANCELLED by 20001"


def _until(condition: object, within: float = 20.0) -> None:
    assert callable(condition)
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.05)


def test_munge_credential_crosses_hosts_and_names_its_maker(realm: Realm, login: Host) -> None:
    made = login.run(["munge", "-n"], user="alice").stdout
    read = realm.host("node1").run(["unmunge"], input=made).stdout.decode()
    assert "STATUS:          Success (0)" in read
    assert "UID:             alice (20001)" in read


def test_host_without_the_munge_key_cannot_speak_to_slurm(realm: Realm) -> None:
    desk = realm.host("desk")
    desk.write("/etc/slurm/slurm.conf", realm.host("login").read("/etc/slurm/slurm.conf"))
    refused = desk.run(["sbatch"], user="alice", input=b"#!/bin/sh\ntrue\n", check=False)
    assert refused.returncode == 1
    assert b"uth" in refused.stderr


def test_controller_survives_a_restart_with_its_jobs(realm: Realm, login: Host) -> None:
    job = login.run(["sbatch", "--parsable", "--hold", "-o", "/dev/null"], user="alice", input=b"#!/bin/sh\ntrue\n")
    number = job.stdout.decode().strip()
    realm.restart_service("slurmctld")
    assert login.run(["squeue", "-h", "-j", number, "-o", "%T"], user="alice").stdout == b"PENDING\n"
    login.run(["scancel", number], user="alice")


@pytest.mark.parametrize("end", ["kill_service", "stop_service"])
def test_job_goes_on_while_its_node_has_no_daemon(realm: Realm, login: Host, end: str) -> None:
    node, go = realm.host("node2"), login.path("/home/alice") / f"go-{end}"
    script = f"#!/bin/sh\nwhile [ ! -e /home/alice/{go.name} ]; do sleep 0.1; done\n".encode()
    submit = ["sbatch", "--parsable", "-w", "node2", "-o", "/dev/null"]
    job = login.run(submit, user="alice", input=script).stdout.decode().strip()
    _until(lambda: f"[{job}.batch]" in _daemons(node))

    getattr(realm, end)("slurmd-node2")
    assert _daemons(node).splitlines() == [f"slurmstepd: [{job}.batch]"]
    realm.restart_service("slurmd-node2")

    assert login.run(["squeue", "-h", "-j", job, "-o", "%T"], user="alice").stdout == b"RUNNING\n"
    login.write(f"/home/alice/{go.name}", "")
    try:
        assert _sacct(login, job, "ExitCode") == ["COMPLETED", "0:0"]
    finally:
        go.unlink()


def _daemons(node: Host) -> str:
    processes = node.run(["ps", "ax", "-o", "args"]).stdout.decode().splitlines()
    return "\n".join(line for line in processes if line.startswith(("slurmstepd", "/usr/sbin/slurmd")))


def test_node_that_lost_power_comes_back_with_its_daemons(realm: Realm, login: Host) -> None:
    node = realm.host("node2")
    node.write("/run/lost", "x")
    realm.power_off("node2")
    assert dict(_pids(realm))["slurmd-node2"] is None
    realm.power_on("node2")
    assert not node.path("/run/lost").exists()
    assert dict(_pids(realm))["munged-node2"] is not None
    done = login.run(["srun", "-w", "node2", "hostname"], user="alice")
    assert done.stdout == b"node2.realm.test\n"


def _pids(realm: Realm) -> list[tuple[str, int | None]]:
    return [(service.name, pid) for service, pid in realm.services()]
