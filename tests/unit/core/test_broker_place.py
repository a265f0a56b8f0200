"""The broker does not start where somebody else could put a socket of theirs in the place of its own (T28)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import refused

from bridge.broker.place import require_listening
from bridge.broker.server import listen

OTHER = 65533


def _open_directory(base: Path) -> Path:
    (base / "run").mkdir()
    (base / "run").chmod(0o777)
    return base / "run" / "b.sock"


def _group_directory(base: Path) -> Path:
    (base / "run").mkdir()
    (base / "run").chmod(0o775)
    return base / "run" / "b.sock"


def _sticky_directory(base: Path) -> Path:
    (base / "run").mkdir()
    (base / "run").chmod(0o1777)
    return base / "run" / "b.sock"


def _others_directory(base: Path) -> Path:
    (base / "run").mkdir()
    os.chown(base / "run", OTHER, OTHER)
    return base / "run" / "b.sock"


def _below_others_directory(base: Path) -> Path:
    (base / "theirs" / "run").mkdir(parents=True)
    os.chown(base / "theirs", OTHER, OTHER)
    return base / "theirs" / "run" / "b.sock"


def _below_an_open_directory(base: Path) -> Path:
    (base / "theirs" / "run").mkdir(parents=True)
    (base / "theirs").chmod(0o777)
    return base / "theirs" / "run" / "b.sock"


def _link_in_others_directory(base: Path) -> Path:
    (base / "run").mkdir()
    (base / "theirs").mkdir()
    (base / "theirs" / "link").symlink_to(base / "run")
    os.chown(base / "theirs", OTHER, OTHER)
    return base / "theirs" / "link" / "b.sock"


def _link_below_others_directory(base: Path) -> Path:
    (base / "theirs" / "run").mkdir(parents=True)
    os.chown(base / "theirs", OTHER, OTHER)
    (base / "run").symlink_to(base / "theirs" / "run")
    return base / "run" / "b.sock"


def _link_to_a_sticky_directory(base: Path) -> Path:
    (base / "real").mkdir()
    (base / "real").chmod(0o1777)
    (base / "run").symlink_to(base / "real")
    return base / "run" / "b.sock"


def _no_directory(base: Path) -> Path:
    return base / "none" / "b.sock"


UNSAFE: list[Callable[[Path], Path]] = [
    _open_directory, _group_directory, _sticky_directory, _others_directory, _below_others_directory,
    _below_an_open_directory, _link_in_others_directory, _link_below_others_directory, _link_to_a_sticky_directory,
    _no_directory,
]  # fmt: skip


@pytest.mark.threat("T28")
@pytest.mark.parametrize("make", UNSAFE, ids=[make.__name__[1:] for make in UNSAFE])
def test_the_broker_does_not_listen_where_others_could(short_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(short_path)
    assert refused(lambda: listen(path)).code == "broker.socket_place"
    assert not path.exists()


@pytest.mark.threat("T28")
def test_somebody_s_file_is_not_removed_from_an_unsafe_place(short_path: Path) -> None:
    path = _open_directory(short_path)
    path.write_text("theirs")
    assert refused(lambda: listen(path)).code == "broker.socket_place"
    assert path.read_text() == "theirs"


def test_a_sticky_directory_may_lie_on_the_way(short_path: Path) -> None:
    (short_path / "tmp" / "run").mkdir(parents=True)
    (short_path / "tmp").chmod(0o1777)
    listen(short_path / "tmp" / "run" / "b.sock").close()


def _mode(path: Path) -> None:
    path.chmod(0o660)


def _owner(path: Path) -> None:
    os.chown(path, OTHER, OTHER)


def _a_file(path: Path) -> None:
    path.unlink()
    path.touch(0o600)


def _a_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def _gone(path: Path) -> None:
    path.unlink()


def _web_s_directory(path: Path) -> None:
    os.chown(path.parent, 65532, 65532)


SPOILS: list[Callable[[Path], None]] = [_mode, _owner, _a_file, _a_link, _gone, _web_s_directory]


@pytest.mark.threat("T28")
@pytest.mark.parametrize("spoil", SPOILS, ids=[spoil.__name__[1:] for spoil in SPOILS])
def test_an_inherited_socket_that_others_could_take_is_refused(short_path: Path, spoil: Callable[[Path], None]) -> None:
    with listen(short_path / "b.sock") as listener:
        os.chown(short_path / "b.sock", 65532, 65532)
        require_listening(listener, frozenset({65532}))
        spoil(short_path / "b.sock")
        error = refused(lambda: require_listening(listener, frozenset({65532})))
    assert error.code == "broker.socket_place"


@pytest.mark.threat("T28")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX], ids=["a network", "no path"])
def test_an_inherited_socket_of_another_kind_is_refused(family: socket.AddressFamily) -> None:
    with socket.socket(family) as listener:
        listener.bind(("127.0.0.1", 0) if family == socket.AF_INET else f"\0bridge-{os.getpid()}")
        listener.listen()
        assert refused(lambda: require_listening(listener, frozenset({0}))).code == "broker.socket_place"


SETTINGS = """
[[issuers]]
url = "https://gitlab.example.org"
audience = "https://bridge.example.org"
[broker]
socket = "{socket}"
principal = "ci-bridge/bridge.example.org"
realm = "EXAMPLE.ORG"
http_service = "HTTP/bridge.example.org"
web_user = "daemon"
[web]
public_hosts = ["bridge.example.org"]
"""


@pytest.mark.threat("T28")
def test_the_command_refuses_before_it_reads_a_keytab(short_path: Path) -> None:
    path = _open_directory(short_path)
    settings = short_path / "bridge.toml"
    settings.write_text(SETTINGS.format(socket=path))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bridge.cli.main", "broker", "--config", str(settings)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert b"[broker.socket_place]" in done.stderr
    assert b"What to do: " in done.stderr
