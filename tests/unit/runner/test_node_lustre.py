"""Lustre forgets a user at the end: as the user, on Lustre's mounts only, and whatever the tool does nothing fails."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from node_world import UID, tool

from runner.node import lustre

MOUNTS = r"""proc /proc proc rw 0 0
mgs@tcp:/lfs1 /mnt/lfs1 lustre rw,flock 0 0
/dev/sda / ext4 rw 0 0
mgs@tcp:/lfs2 /mnt/with\040blank lustre rw 0 0
lustre /not-lustre tmpfs rw 0 0
"""


@pytest.fixture
def place(open_path: Path) -> Path:
    """A node with two Lustre mounts."""
    (open_path / "mounts").write_text(MOUNTS)
    log = open_path / "log"
    log.write_text("")
    log.chmod(0o666)
    tool(open_path / "lfs", f'echo "$(id -u) $(id -G) $#: $*" >>{log}')
    return open_path


def test_contexts_are_flushed_by_the_user_on_each_lustre_mount(place: Path) -> None:
    assert lustre.flush(UID, [str(place)], str(place / "mounts")) == 2
    groups = "65534"
    assert (place / "log").read_text().splitlines() == [
        f"{UID} {groups} 2: flushctx /mnt/lfs1",
        f"{UID} {groups} 2: flushctx /mnt/with blank",
    ]


def test_a_node_without_lustre_or_its_tool_is_none_the_worse(place: Path) -> None:
    assert lustre.flush(UID, [str(place / "nowhere")], str(place / "mounts")) == 0
    assert lustre.flush(UID, [str(place)], str(place / "missing")) == 0
    assert lustre.flush(3_999_999, [str(place)], str(place / "mounts")) == 0
    (place / "mounts").write_text("/dev/sda / ext4 rw 0 0\n")
    assert lustre.flush(UID, [str(place)], str(place / "mounts")) == 0
    assert (place / "log").read_text() == ""


def test_a_tool_that_fails_or_hangs_holds_nothing_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(place / "lfs", "exit 1")
    assert lustre.flush(UID, [str(place)], str(place / "mounts")) == 0
    monkeypatch.setattr(lustre, "FLUSH_SECONDS", 0.2)
    tool(place / "lfs", "exec sleep 60")
    before = time.monotonic()
    assert lustre.flush(UID, [str(place)], str(place / "mounts")) == 0
    assert time.monotonic() - before < 30


def test_nothing_of_the_callers_environment_reaches_the_tool(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_CANARY", "1")
    tool(place / "lfs", f"env >>{place}/log")
    lustre.flush(UID, [str(place)], str(place / "mounts"))
    assert "CANARY" not in (place / "log").read_text()
    assert os.environ["LD_PRELOAD_CANARY"]
