"""Only the process that connected is answered: not who got its connection or its number, or became another user."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bridge.broker.peer import Peer
from bridge.broker.server import Answer, BrokerServer, listen
from runner import wire

WEB, OTHER = 65532, 65533
PREAMBLE = """
import os, select, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(20)
connection.connect(sys.argv[1])
frame = bytes.fromhex(sys.argv[2])
again = '''
import os, socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
connection.settimeout(20)
connection.sendall(bytes.fromhex(sys.argv[2]))
os.write(1, b"%d " % len(connection.recv(4096)))
'''
def execute(*start):
    connection.set_inheritable(True)
    arguments = [*start, "/usr/bin/python3", "-I", "-S", "-c", again, str(connection.fileno()), frame.hex()]
    os.execvp(arguments[0], arguments)
def outlive(pid):
    poll = select.poll()
    poll.register(pid, select.POLLIN)
    poll.poll()
def ask():
    try:
        connection.sendall(frame)
    except (BrokenPipeError, ConnectionResetError):
        pass
    tell()
def tell():
    try:
        answer = connection.recv(4096)
    except ConnectionResetError:
        answer = b""
    os.write(1, b"%d " % len(answer))
"""
REPLACED = {
    "a child outlives the one that connected": """
parent = os.pidfd_open(os.getpid())
if os.fork() == 0:
    outlive(parent)
    ask()
""",
    "a child of another user outlives the one that connected": f"""
parent = os.pidfd_open(os.getpid())
if os.fork() == 0:
    os.setresgid({OTHER}, {OTHER}, {OTHER})
    os.setresuid({OTHER}, {OTHER}, {OTHER})
    outlive(parent)
    ask()
""",
    "the descriptor is sent to a process that outlives it": """
near, far = socket.socketpair()
parent = os.pidfd_open(os.getpid())
if os.fork() == 0:
    connection.close()
    _, (descriptor,), _, _ = socket.recv_fds(far, 1, 1)
    connection = socket.socket(fileno=descriptor)
    connection.settimeout(20)
    outlive(parent)
    ask()
else:
    socket.send_fds(near, [b"x"], [connection.fileno()])
""",
    "the process becomes another user": f"""
os.setresuid({OTHER}, {OTHER}, {OTHER})
ask()
""",
    "only the effective user changes": f"""
os.seteuid({OTHER})
ask()
""",
    "it executes a program as another user": f"""
execute("setpriv", "--reuid={OTHER}", "--regid={OTHER}", "--clear-groups")
""",
}


class Desk:
    """Answers ``echo`` at once, and ``late`` only when the peer that asked has ended."""

    def __init__(self) -> None:
        self.asked: list[Peer] = []

    def echo(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        """Give back who asked."""
        self.asked.append(peer)
        return {"uid": peer.uid}, b"data"

    def late(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        """Outlast the peer."""
        self.asked.append(peer)
        descriptor = os.pidfd_open(peer.pid)
        os.write(int(request["tell"]), b"x")
        _wait_for_end(descriptor)
        return {}, b"data"


def _wait_for_end(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(20_000)
    os.close(descriptor)


@pytest.fixture
def desk() -> Desk:
    """What the server under test does."""
    return Desk()


@pytest.fixture
def path(desk: Desk, short_path: Path) -> Iterator[Path]:
    """The socket of a server that answers root and web's user, and that everybody can reach."""
    path = short_path / "b.sock"
    server = BrokerServer(listen(path), frozenset({0, WEB}), {"echo": desk.echo, "late": desk.late})
    path.chmod(0o666)
    path.parent.chmod(0o755)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield path
    server.stop()
    thread.join(30)
    assert not thread.is_alive()


def run(
    path: Path, program: str, op: str = "echo", user: int = 0, pass_fds: tuple[int, ...] = (), **fields: Any
) -> str:
    """Run a peer to the end of it and of its children; what it printed: the lengths of the answers."""
    start = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
    frame = wire.encode({"op": op} | fields).hex()
    done = subprocess.run(
        [*start, "/usr/bin/python3", "-I", "-S", "-c", PREAMBLE + program, str(path), frame],
        capture_output=True,
        timeout=60,
        check=False,
        pass_fds=pass_fds,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().strip()


@pytest.mark.parametrize("user", [0, WEB])
def test_the_one_that_connected_is_answered(path: Path, desk: Desk, user: int) -> None:
    assert int(run(path, "ask()", user=user)) > 0
    assert [peer.uid for peer in desk.asked] == [user]


@pytest.mark.threat("T28")
@pytest.mark.parametrize("attack", REPLACED.values(), ids=REPLACED.keys())
def test_one_that_took_the_place_of_the_peer_is_not_answered(path: Path, desk: Desk, attack: str) -> None:
    assert run(path, attack) == "0"
    assert desk.asked == []


@pytest.mark.threat("T28")
def test_an_answer_is_not_given_to_whom_the_peer_left_its_connection(path: Path, desk: Desk) -> None:
    asked, tell = os.pipe()
    program = f"""
parent = os.pidfd_open(os.getpid())
if os.fork() == 0:
    outlive(parent)
    tell()
else:
    connection.sendall(frame)
    os.read({asked}, 1)
"""
    assert run(path, program, "late", pass_fds=(asked,), tell=tell) == "0"
    assert len(desk.asked) == 1
    os.close(asked)
    os.close(tell)


def test_programs_of_one_user_are_not_told_apart(path: Path, desk: Desk) -> None:
    """What peer.py says that it does not do; whoever executes a program as web's user is web's user."""
    assert int(run(path, "execute()", user=WEB)) > 0
    assert len(desk.asked) == 1


NUMBERS = """
import os, signal, socket, sys
from pathlib import Path
from bridge.broker import peer
if sys.argv[1] == "by number":
    peer.SO_PEERPIDFD = 9999  # the answer of a kernel that has no such option is ENOPROTOOPT
successor = int(sys.argv[2])
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0numbers")
listener.listen()
near, far = socket.socketpair()
first = os.fork()
if first == 0:
    os.setresuid(65532, 65532, 65532)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\\0numbers")
    socket.send_fds(near, [b"x"], [connection.fileno()])
    os._exit(0)
kept = socket.recv_fds(far, 1, 1)
os.waitpid(first, 0)
Path("/proc/sys/kernel/ns_last_pid").write_text(str(first - 1))
ready, go = os.pipe()
second = os.fork()
if second == 0:
    os.setresuid(successor, successor, successor)
    os.write(go, b"x")
    signal.pause()
os.read(ready, 1)
assert second == first, (first, second)
accepted, _ = listener.accept()
try:
    with peer.HeldPeer(accepted) as held:
        print(held.is_the_same())
except OSError as error:
    print(type(error).__name__)
os.kill(second, 9)
"""


@pytest.mark.threat("T28")
@pytest.mark.parametrize(("how", "successor"), [("by pidfd", WEB), ("by pidfd", OTHER), ("by number", OTHER)])
def test_a_process_that_got_the_peer_s_number_is_not_taken_for_it(how: str, successor: int) -> None:
    done = subprocess.run(
        [
            *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
            *(sys.executable, "-B", "-c", NUMBERS, how, str(successor)),
        ],
        capture_output=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.strip() in (b"False", b"ProcessLookupError")
