"""Links, foreign files and races in the agent's way: it fails or goes around, and never leaves its own (T35)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_client import UID, USER, Failed, own
from ccache_bytes import cache_bytes
from test_login_agent_program import Site, site  # noqa: F401 - a fixture

from runner.login import beneath, removal
from runner.login.failures import VerbFailed

pytestmark = [
    pytest.mark.threat("T35"),
]

FOREIGN = 20002
RACES = 3000
FEWEST = 20
"""Times that each side must have won, or it was no race."""
SECONDS = 60.0
REMOVALS = 30


def own_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)
    own(path)


def foreign_directory(path: Path, _victim: Path) -> None:
    path.mkdir(0o777)
    path.chmod(0o777)
    own(path, FOREIGN)


def plain_file(path: Path, _victim: Path) -> None:
    path.write_text("in the way")
    own(path)


def fifo(path: Path, _victim: Path) -> None:
    os.mkfifo(path, 0o666)
    own(path)


ATTACKS = {"link": own_link, "foreign": foreign_directory, "file": plain_file, "fifo": fifo}
PLACES = ["user", "user/run1", "user/run1/builds", "user/run1/private", "cache"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_workspace_refuses_what_is_not_the_users_own_directory(site: Site, place: str, attack: str) -> None:  # noqa: F811
    victim = _victim(site)
    path = site.cache / USER if place == "cache" else site.builds / place.replace("user", USER)
    for parent in reversed(path.parents):
        if site.builds in parent.parents:
            parent.mkdir(exist_ok=True)
            own(parent)
    ATTACKS[attack](path, victim)
    with pytest.raises(Failed) as refused:
        site.workspace()
    assert refused.value.code == "workspace.foreign"
    assert _untouched(victim)


@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o775, 0), (0o755, FOREIGN)])
def test_an_unsafe_root_is_refused(site: Site, mode: int, owner: int) -> None:  # noqa: F811
    os.chown(site.builds, owner, owner)
    site.builds.chmod(mode)
    with pytest.raises(Failed, match=r"workspace\.unsafe_root"):
        site.workspace()


@pytest.mark.parametrize("place", ["file", "private", "run", "user"])
def test_put_writes_through_no_link(site: Site, place: str) -> None:  # noqa: F811
    private, victim = site.private(), _victim(site)
    if place == "file":
        own_link(private / "stage.sh", victim / "inner")
        site.agent.ask("put", b"script", path=f"{private}/stage.sh", mode=0o700)
        assert (private / "stage.sh").read_bytes() == b"script"
        assert not (private / "stage.sh").is_symlink()
    else:
        attacked = {"private": private, "run": private.parent, "user": private.parent.parent}[place]
        shutil.rmtree(attacked)
        own_link(attacked, victim)
        with pytest.raises(Failed, match=r"workspace\.foreign"):
            site.agent.ask("put", b"script", path=f"{private}/stage.sh", mode=0o700)
    assert _untouched(victim)


@pytest.mark.parametrize(
    "path", ["/tmp/x", "{home}/x", "{builds}/x", "{builds}/ci-test/run1/builds/x", "/etc/ci-test/r/private"]
)
def test_put_stays_below_a_private_directory(site: Site, path: str) -> None:  # noqa: F811
    site.workspace()
    path = path.format(home=site.home, builds=site.builds)
    with pytest.raises(Failed, match=r"workspace\.outside"):
        site.agent.ask("put", b"script", path=path, mode=0o700)
    assert not Path(path).exists()


@pytest.mark.parametrize("place", ["run", "user"])
def test_destroy_follows_no_link(site: Site, place: str) -> None:  # noqa: F811
    run, victim = site.private().parent, _victim(site)
    attacked = run if place == "run" else run.parent
    shutil.rmtree(attacked)
    own_link(attacked, victim)
    if place == "user":
        with pytest.raises(Failed, match=r"workspace\.foreign"):
            site.agent.ask("destroy", run="run1", builds_root=str(site.builds), ccache=None)
    else:
        site.agent.ask("destroy", run="run1", builds_root=str(site.builds), ccache=None)
        assert not attacked.is_symlink()
    assert _untouched(victim)


@pytest.mark.parametrize("attack", ["own_link", "foreign_link", "foreign_file", "directory"])
def test_tickets_never_go_through_what_lies_in_their_place(site: Site, attack: str) -> None:  # noqa: F811
    path, victim = site.tmp / f"krb5cc_{UID}", _victim(site)
    if attack == "own_link":
        own_link(path, victim / "inner")
    elif attack == "foreign_link":
        path.symlink_to(victim / "inner")
        own(path, FOREIGN)
    elif attack == "foreign_file":
        path.write_text("foreign")
        path.chmod(0o666)
        own(path, FOREIGN)
    else:
        path.mkdir()
        own(path)
    secret = cache_bytes(USER, 1)
    if attack == "own_link":
        site.agent.ask("tickets", secret, ccache=site.ccache)
        assert path.read_bytes() == secret
    else:
        for verb, data in (("tickets", secret), ("drop_tickets", b"")):
            with pytest.raises(Failed, match=r"tickets\.foreign"):
                site.agent.ask(verb, data, ccache=site.ccache)
    assert _untouched(victim)
    assert [entry.name for entry in site.tmp.iterdir()] == [path.name]


_SWAPPER = """
import ctypes, os, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
libc = ctypes.CDLL(None)
a, b = sys.argv[1].encode(), sys.argv[2].encode()
sys.stdout.write("ready\\n"); sys.stdout.flush()
while True:
    libc.renameat2(-100, a, -100, b, 2)
"""
"""Exchanges a directory and a link for ever: renameat2(2) with RENAME_EXCHANGE leaves no moment without either."""


def test_a_racing_swapper_gets_nothing_written_or_removed_elsewhere(site: Site) -> None:  # noqa: F811
    private, victim = site.private(), _victim(site)
    run, link = private.parent, private.parent.parent / "link"
    own_link(link, victim)
    own(_private_in(victim))
    written = refused = 0
    with _swapping(run, link), _as_user():
        until = time.monotonic() + SECONDS
        while written + refused < RACES or min(written, refused) < FEWEST:
            assert time.monotonic() < until, f"the race never got going: {written} written, {refused} refused"
            try:
                with beneath.walk(str(site.builds), [USER, "run1", "private"], UID) as directory:
                    beneath.replace_file(directory, "stage.sh", b"script", 0o700)
                written += 1
            except (VerbFailed, FileNotFoundError):
                refused += 1
    assert list((victim / "private").iterdir()) == [], "written through a link"
    assert _untouched(victim)


def test_a_racing_swapper_gets_nothing_removed_elsewhere(site: Site) -> None:  # noqa: F811
    builds, victim = site.private().parent / "builds", _victim(site)
    (own(_private_in(victim)) / "keep").write_text("precious")
    parent = os.open(builds, os.O_RDONLY)
    for attempt in range(REMOVALS):
        directory, link = builds / f"d{attempt}", builds / f"l{attempt}"
        (directory / "private").mkdir(parents=True)
        (directory / "private" / "x").touch()
        link.symlink_to(victim)
        for path in (directory, directory / "private", link):
            own(path)
        with _swapping(directory, link):
            for name in (directory.name, link.name):
                with contextlib.suppress(OSError):
                    removal.remove_tree(parent, name)
    os.close(parent)
    assert (victim / "private" / "keep").read_text() == "precious"
    assert _untouched(victim)


@contextlib.contextmanager
def _swapping(one: Path, other: Path) -> Iterator[None]:
    swapper = subprocess.Popen(
        ["/usr/bin/python3", "-I", "-S", "-c", _SWAPPER.format(uid=UID), str(one), str(other)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert swapper.stdout is not None
    assert swapper.stdout.readline() == "ready\n"
    try:
        yield
    finally:
        swapper.kill()
        swapper.wait()
        swapper.stdout.close()


def _victim(site: Site) -> Path:  # noqa: F811
    """Make a directory that the agent's user could write to, so that only the agent's care keeps it whole."""
    victim = site.directory / "victim"
    victim.mkdir()
    (victim / "inner").write_text("precious")
    own(victim)
    own(victim / "inner")
    return victim


def _private_in(victim: Path) -> Path:
    (victim / "private").mkdir()
    return victim / "private"


def _untouched(victim: Path) -> bool:
    names = {entry.name for entry in victim.iterdir()} - {"private"}
    return (
        names == {"inner"} and (victim / "inner").read_text() == "precious" and victim.stat().st_mode & 0o777 == 0o755
    )


class _as_user:  # noqa: N801 - reads like a function
    """Acts as the agent's user for file accesses."""

    def __enter__(self) -> None:
        os.seteuid(UID)

    def __exit__(self, *_: object) -> None:
        os.seteuid(0)
