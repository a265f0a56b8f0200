"""Where caches are put: both types, in root's and in users' directories, and what stands in the way."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from node_world import UID, Node

from runner.node.place import BadPlace, Place

NOBODY = pwd.getpwuid(UID)


@pytest.fixture
def caches(open_path: Path) -> Path:
    """A directory as /tmp is."""
    found = open_path / "caches"
    found.mkdir()
    found.chmod(0o1777)
    return found


def _place(directory: Path, kind: str = "FILE", name: str = f"krb5cc_{UID}", uid: int = UID) -> Place:
    return Place(f"{kind}:{directory}/{name}", [str(directory)], uid)


def _as_user(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, user=UID, group=NOBODY.pw_gid, extra_groups=[], capture_output=True, text=True, check=False, cwd="/"
    )


def test_a_collection_is_the_users_and_klist_reads_it(node: Node) -> None:
    cache = f"DIR:{node.cache}"
    (node.directory / "cachename").write_text(cache)
    assert node.hook("prolog") == 0, node.said
    for path in (node.cache, node.cache / "tkt", node.cache / "primary"):
        assert path.stat().st_uid == UID
        assert not path.stat().st_mode & 0o077
    shown = subprocess.run(
        ["klist", "-c", cache],
        env=node.realm.environment,
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert "lustre_mds/mds1.test" in shown.stdout
    assert node.hook("epilog") == 0, node.said
    assert not node.cache.exists()
    assert node.leftovers() == []


@pytest.mark.parametrize("before", ["nothing", "file", "ours", "empty", "full", "link"])
@pytest.mark.threat("T35")
def test_a_collection_replaces_what_was_there_at_once(caches: Path, before: str) -> None:
    cache, victim = caches / f"krb5cc_{UID}", caches / "victim"
    victim.mkdir()
    (victim / "precious").write_text("x")
    if before == "file":
        cache.write_text("x")
    elif before == "ours":
        _place(caches, "DIR").write(b"old")
    elif before == "empty":
        cache.mkdir()
    elif before == "full":
        (cache / "deep" / "deeper").mkdir(parents=True)
    elif before == "link":
        cache.symlink_to(victim)
    _place(caches, "DIR").write(b"new")
    assert not cache.is_symlink()
    assert (cache / "tkt").read_bytes() == b"new"
    assert (cache / "primary").read_text() == "tkt\n"
    assert (victim / "precious").exists()
    rest = {entry.name for entry in caches.iterdir()} - {cache.name, "victim"}
    assert len(rest) == (before == "full")


@pytest.mark.threat("T35")
def test_a_link_in_a_collection_leads_nowhere(caches: Path) -> None:
    victim = caches / "victim"
    victim.write_text("precious")
    _place(caches, "DIR").write(b"old")
    cache = caches / f"krb5cc_{UID}"
    (cache / "tkt").unlink()
    (cache / "tkt").symlink_to(victim)
    _place(caches, "DIR").write(b"new")
    assert victim.read_text() == "precious"
    (cache / "tkt").unlink()
    (cache / "tkt").symlink_to(victim)
    assert _place(caches, "DIR").remove()
    assert victim.read_text() == "precious"
    assert not cache.exists()


@pytest.mark.threat("T35")
def test_what_is_somebody_elses_is_not_removed(caches: Path) -> None:
    cache = caches / f"krb5cc_{UID}"
    for kind in ("FILE", "DIR"):
        cache.write_text("root's")
        assert not _place(caches, kind).remove()
        assert cache.read_text() == "root's"


@pytest.mark.threat("T35")
@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o775, 0), (0o755, UID + 1), (0o1777, UID + 1)])
def test_a_directory_in_which_others_can_change_names_is_not_used(caches: Path, mode: int, owner: int) -> None:
    caches.chmod(mode)
    os.chown(caches, owner, -1)
    with pytest.raises(BadPlace):
        _place(caches).write(b"x")
    assert list(caches.iterdir()) == []


@pytest.mark.parametrize("kind", ["FILE", "DIR"])
def test_a_directory_of_the_users_own_needs_no_uid_in_the_name(tmp_path: Path, kind: str) -> None:
    tmp_path.chmod(0o755)
    own = tmp_path / str(UID)
    own.mkdir(mode=0o700)
    os.chown(own, UID, -1)
    Place(f"{kind}:{own}/krb5cc", [f"{tmp_path}/%{{uid}}"], UID).write(b"x")
    assert (own / "krb5cc").stat().st_uid == UID
    with pytest.raises(BadPlace):
        Place(f"{kind}:{own}/krb5cc", [f"{tmp_path}/%{{uid}}"], UID + 1)


@pytest.mark.threat("T35")
def test_a_link_in_place_of_the_directory_is_not_followed(caches: Path) -> None:
    link = caches.parent / "link"
    link.symlink_to(caches)
    with pytest.raises(OSError, match=r"Not a directory|Too many"):
        _place(link).write(b"x")
    assert list(caches.iterdir()) == []


@pytest.mark.parametrize("kind", ["KEYRING", "KCM", "MEMORY", "API", "", "file"])
def test_other_types_are_refused(caches: Path, kind: str) -> None:
    with pytest.raises(BadPlace):
        _place(caches, kind)


SWAP = """
import contextlib, os, sys
while True:
    with contextlib.suppress(OSError):
        os.symlink(sys.argv[1], sys.argv[2])
    with contextlib.suppress(OSError):
        os.unlink(sys.argv[2])
"""
"""One process, so that nothing of it is at work once it was killed."""


@pytest.mark.threat("T35")
def test_while_somebody_swaps_links_nothing_is_written_elsewhere(caches: Path) -> None:
    """A user swaps the cache's name between a link to another's file and nothing, as quickly as a process can."""
    victim = caches.parent / "victim"
    victim.write_text("precious")
    victim.chmod(0o666)
    cache = caches / f"krb5cc_{UID}"
    swapper = subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAP, str(victim), str(cache)])
    try:
        for _ in range(2000):
            _place(caches).write(b"ticket")
            _place(caches).remove()
    finally:
        swapper.kill()
        swapper.wait()
    assert victim.read_text() == "precious"
    assert stat.S_ISREG(victim.lstat().st_mode)
    assert victim.stat().st_uid == 0


def test_the_user_reads_what_was_written_and_nobody_else(caches: Path) -> None:
    _place(caches).write(b"ticket")
    assert _as_user("cat", f"{caches}/krb5cc_{UID}").stdout == "ticket"
    assert stat.S_IMODE((caches / f"krb5cc_{UID}").stat().st_mode) == 0o600
