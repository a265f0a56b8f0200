"""A realm lives as long as its caller, meets no other realm, and leaves nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from realm import Realm, RealmError
from realm.workspace import CHECKOUT, Workspace, is_alive, located, prune

_HOLD = """
import signal, sys, time
# Where tests run in the background, a shell has them ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
from realm import Realm
realm = Realm(sys.argv[1], parts=("kdc",), hosts=("kdc", "desk"))
realm.up()
realm.host("desk").popen(["sleep", "1000"])
print("up", flush=True)
time.sleep(600)
"""


def _command(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "realm", *words]
    return subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=check, input="")


def _processes_of(name: str) -> set[int]:
    """Every process that has a mount of this realm, in whatever namespaces it is."""
    found, store = set(), f"{located(name)}/fs"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            mounts = (entry / "mountinfo").read_text("utf-8", "replace")
        except OSError:
            continue
        if store in mounts:
            found.add(int(entry.name))
    return found


def _is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _until(condition: object, within: float = 20.0) -> None:
    assert callable(condition)
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)


@pytest.fixture
def name() -> Iterator[str]:
    """A realm's name that is down afterwards."""
    name = f"life-{os.getpid()}"
    yield name
    _command("down", "--name", name)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_nothing_is_left_when_the_caller_dies(name: str, how: signal.Signals) -> None:
    caller = subprocess.Popen([sys.executable, "-c", _HOLD, name], cwd=CHECKOUT, stdout=subprocess.PIPE)
    assert caller.stdout
    assert caller.stdout.readline() == b"up\n"
    caller.stdout.close()
    inside = _processes_of(name)
    assert len(inside) >= 6, "init, two hosts, slapd, krb5kdc, kadmind, sleep"
    assert is_alive(located(name))
    caller.send_signal(how)
    caller.wait(10)
    _until(lambda: not located(name).exists())
    _until(lambda: not any(_is_running(pid) for pid in inside))
    assert not _processes_of(name)


def test_nothing_is_left_when_pid_1_is_killed(name: str) -> None:
    with Realm(name, parts=("kdc",), hosts=("kdc",)) as realm:
        state = json.loads((realm.directory / "state.json").read_text("utf-8"))
        anchor = realm.host("kdc").anchor
        os.kill(state["init"], signal.SIGKILL)
        _until(lambda: not _is_running(anchor))
        _until(lambda: not realm.is_up)
    assert not located(name).exists()


def test_directory_of_a_dead_realm_is_pruned(name: str) -> None:
    left = located(name)
    (left / "fs").mkdir(parents=True)
    (left / "lock").touch()
    (left / "state.json").write_text("{}", "utf-8")
    assert name in prune()
    assert not left.exists()


def test_living_realm_is_not_pruned_nor_taken(name: str) -> None:
    claimed = Workspace(located(name))
    try:
        assert name not in prune()
        with pytest.raises(RealmError) as caught:
            Workspace(located(name))
        assert caught.value.code == "realm.exists"
        assert "--name" in caught.value.remedy
    finally:
        claimed.release()
    assert not located(name).exists()


def test_two_realms_do_not_meet() -> None:
    with (
        Realm(parts=("kdc",), hosts=("kdc", "desk")) as first,
        Realm(parts=("kdc",), hosts=("kdc", "desk")) as second,
    ):
        assert first.host("kdc").address == second.host("kdc").address
        first.kdc.addprinc("only-in-first")
        assert "only-in-first" in first.kdc.kadmin("listprincs")
        assert "only-in-first" not in second.kdc.kadmin("listprincs")
        kinit = ["kinit", "-c", "MEMORY:", "-k", "-t", "/tmp/first.keytab", "alice"]
        first.kdc.ktadd(["alice"], first.host("desk"), "/tmp/first.keytab")
        second.host("desk").write("/tmp/first.keytab", first.host("desk").read("/tmp/first.keytab"))
        first.host("desk").run(kinit)
        refused = second.host("desk").run(kinit, check=False)
        assert refused.returncode == 1
        for realm in (first, second):
            assert len(realm.host("kdc").listeners("tcp", 88)) == 1


def test_failed_start_leaves_logs_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from realm import directory

    broken = replace(directory.SLAPD, argv=("/usr/sbin/slapd", "-d", "0", "-h", "ldap://192.0.2.99"))
    monkeypatch.setattr(directory, "SLAPD", broken)
    realm = Realm(name, parts=("kdc",), hosts=("kdc",))
    with pytest.raises(RealmError) as caught:
        realm.up()
    assert caught.value.code == "realm.service_died"
    kept = located(name).parent / "failed" / name
    assert str(kept) in caught.value.remedy
    assert (kept / "kdc-slapd.log").exists()
    assert not located(name).exists()
    shutil.rmtree(kept)


def test_command_line_tells_the_whole_story(name: str) -> None:
    up = _command("up", "--name", name, "--parts", "kdc")
    assert f"realm {name} is up after" in up.stdout
    assert "next: python -m realm" in up.stdout

    again = _command("up", "--name", name, check=False)
    assert again.returncode == 1
    assert "[realm.exists]" in again.stderr
    assert "next: " in again.stderr

    status = json.loads(_command("status", "--name", name, "--json").stdout)
    kdc = next(host for host in status["hosts"] if host["name"] == "kdc")
    assert {entry["port"] for entry in kdc["listeners"]} == {88, 464, 749}
    assert {service["name"] for service in status["services"] if service["alive"]} == {"slapd", "krb5kdc", "kadmind"}
    assert "krb5kdc" in _command("status", "--name", name).stdout

    asked = _command("exec", "--name", name, "--user", "bob", "desk", "--", "sh", "-c", "id -un; exit 5", check=False)
    assert (asked.returncode, asked.stdout) == (5, "bob\n")
    assert "commencing operation" in _command("logs", "--name", name, "kdc", "krb5kdc").stdout
    assert "==> slapd <==" in _command("logs", "--name", name, "kdc").stdout

    assert _command("down", "--name", name).stdout == f"realm {name} is down\n"
    assert _command("down", "--name", name).stdout == f"realm {name} was not up\n"
    assert not located(name).exists()
    assert not any(_is_running(host["pid"]) for host in status["hosts"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("status",), "realm.not_up"),
        (("exec", "desk", "--", "id"), "realm.not_up"),
        (("logs", "kdc"), "realm.not_up"),
        (("up", "--name", "../x"), "realm.bad_name"),
    ],
)
def test_command_that_cannot_work_says_what_to_do(words: tuple[str, ...], code: str) -> None:
    verb, *rest = words
    named = rest if "--name" in rest else ["--name", "not-there", *rest]
    done = _command(verb, *named, check=False)
    assert done.returncode == 1
    assert f"[{code}]" in done.stderr
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr


def test_services_of_a_kept_realm_end_on_sigterm(name: str) -> None:
    _command("up", "--name", name, "--parts", "kdc")
    status = json.loads(_command("status", "--name", name, "--json").stdout)
    for service in status["services"]:
        mask = next(
            line.split()[1]
            for line in Path(f"/proc/{service['pid']}/status").read_text("utf-8").splitlines()
            if line.startswith("SigBlk:")
        )
        assert not int(mask, 16) & (1 << (signal.SIGTERM - 1))
