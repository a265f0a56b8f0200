"""The broker's socket: web's user only, one reply of ours to whatever comes, and no detail of what broke inside."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from bench import Broker, refused, wait_until

from bridge import errors
from bridge.audit.record import RecordType
from bridge.broker.client import BrokerClient
from bridge.broker.keyevents import RecordedKeyEvents
from bridge.broker.peer import Peer
from bridge.broker.server import Answer, BrokerServer, listen
from bridge.errors import BridgeError, Defect, Outage
from runner import wire

SECRET = "correct horse battery staple"


class Handlers:
    """What the server under test does."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked: list[Mapping[str, Any]] = []

    def echo(self, request: Mapping[str, Any], peer: Peer) -> Answer:
        """Give back what came, or fail."""
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        return {"said": request.get("say")}, b"data"


@pytest.fixture
def handlers() -> Handlers:
    """The server's only handler, in which errors can be planted."""
    return Handlers()


@pytest.fixture
def path(handlers: Handlers, short_path: Path) -> Iterator[Path]:
    """The socket of a server that answers our own uid."""
    path = short_path / "b.sock"
    server = BrokerServer(listen(path), frozenset({os.geteuid()}), {"echo": handlers.echo})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield path
    server.stop()
    thread.join(30)
    assert not thread.is_alive()


def raw(path: Path, data: bytes) -> bytes:
    """Send bytes and no more; return all that comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


def test_a_request_is_answered(path: Path, handlers: Handlers) -> None:
    header, data = BrokerClient(path).ask("echo", say="hello")
    assert (header["said"], data) == ("hello", b"data")
    assert handlers.asked == [{"op": "echo", "say": "hello"}]


def test_data_is_what_the_frame_has_and_not_what_the_header_says(path: Path, handlers: Handlers) -> None:
    BrokerClient(path).ask("echo", b"files", say="hello")
    raw(path, wire.encode({"op": "echo", "say": "hello", "data": "header"}, b"frame"))
    raw(path, wire.encode({"op": "echo", "say": "hello", "data": "header"}))
    assert [one.get("data") for one in handlers.asked] == [b"files", b"frame", None]


def test_the_socket_is_ours_alone(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_socket_of_an_earlier_life_is_replaced(short_path: Path) -> None:
    listen(short_path / "x.sock").close()
    listen(short_path / "x.sock").close()


STRANGER = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(30)
connection.connect(sys.argv[1])
try:
    connection.sendall(bytes.fromhex(sys.argv[2]))
    print(len(connection.recv(4096)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""


@pytest.mark.threat("T21")
@pytest.mark.threat("T28")
def test_a_stranger_is_not_answered(path: Path, handlers: Handlers) -> None:
    path.chmod(0o666)
    path.parent.chmod(0o755)
    frame = wire.encode({"op": "echo"}).hex()
    child = subprocess.run(
        [
            *("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"),
            *("/usr/bin/python3", "-I", "-S", "-c", STRANGER, str(path), frame),
        ],
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (child.returncode, child.stdout.strip()) == (0, b"0"), child.stderr
    assert handlers.asked == []
    assert BrokerClient(path).ask("echo")[1] == b"data"


MALFORMED = {
    "nothing": b"",
    "half a length": b"\0\0\0",
    "ends in the header": wire.encode({"op": "echo"})[:-3],
    "no JSON": b"\0\0\0\3\0\0\0\0abc",
    "a list": b"\0\0\0\2\0\0\0\0[]",
    "deep": b"\0\1\0\0\0\0\0\0" + b"[" * 65536,
    "too long": b"\xff\xff\xff\xff\0\0\0\0",
    "too much data": b"\0\0\0\2\xff\xff\xff\xff{}",
}


@pytest.mark.threat("T38")
@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_gets_no_answer_and_does_no_harm(path: Path, handlers: Handlers, data: bytes) -> None:
    assert raw(path, data) == b""
    assert handlers.asked == []
    assert BrokerClient(path).ask("echo")[1] == b"data"


@pytest.mark.parametrize("op", ["shutdown", "", "echo ", "__class__"])
def test_an_unknown_operation_is_a_defect(path: Path, op: str) -> None:
    assert refused(lambda: BrokerClient(path).ask(op)).code == "broker.unknown_op"


@pytest.mark.parametrize("op", [None, 5, ["echo"], {"echo": 1}])
def test_an_operation_that_is_no_text_is_unknown(path: Path, op: object) -> None:
    assert b"broker.unknown_op" in raw(path, wire.encode({"op": op}))


LEAVES = [
    errors.TokenRefused, errors.PolicyRefused, errors.RequestRefused, errors.Conflict, errors.NotFound, errors.Outage,
    errors.Defect,
]  # fmt: skip


@pytest.mark.threat("T46")
@pytest.mark.parametrize("kind", LEAVES)
def test_an_error_arrives_as_what_it_was_less_its_context(
    path: Path, handlers: Handlers, kind: type[BridgeError]
) -> None:
    handlers.error = kind("some.code", "Title.", "Remedy.", secret=SECRET).referenced("7F3K-9QXM-2DTB")
    error = refused(lambda: BrokerClient(path).ask("echo"))

    assert type(error) is kind
    assert (error.code, error.title, error.remedy, error.reference) == (
        "some.code", "Title.", "Remedy.", "7F3K-9QXM-2DTB",
    )  # fmt: skip
    assert SECRET.encode() not in raw(path, wire.encode({"op": "echo"}))


@pytest.mark.threat("T46")
@pytest.mark.parametrize("planted", [ValueError(SECRET), KeyError(SECRET), RecursionError(SECRET)], ids=type)
def test_what_breaks_inside_leaves_no_detail(path: Path, handlers: Handlers, planted: Exception) -> None:
    handlers.error = planted
    answer = raw(path, wire.encode({"op": "echo"}))

    assert b"broker.defect" in answer
    assert SECRET.encode() not in answer
    assert type(planted).__name__.encode() not in answer
    assert isinstance(refused(lambda: BrokerClient(path).ask("echo")), Defect)


def test_requests_do_not_wait_for_each_other(short_path: Path) -> None:
    gate, path = threading.Barrier(8, timeout=30), short_path / "b.sock"

    def meet(request: Mapping[str, Any], peer: Peer) -> Answer:
        gate.wait()
        return {}, b""

    server = BrokerServer(listen(path), frozenset({os.geteuid()}), {"meet": meet})
    threading.Thread(target=server.serve_forever).start()
    done: list[Answer] = []
    threads = [threading.Thread(target=lambda: done.append(BrokerClient(path).ask("meet"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    server.stop()
    assert len(done) == 8


def _dead(path: Path) -> None:
    listen(path).close()


def _slam(listener: socket.socket) -> None:
    listener.accept()[0].close()


def _silent(path: Path) -> socket.socket:
    return listen(path)


@pytest.mark.threat("T24")
@pytest.mark.parametrize("state", ["absent", "dead", "silent", "slams the door"])
def test_a_broker_that_does_not_answer_is_an_outage_in_bounded_time(short_path: Path, state: str) -> None:
    path, kept = short_path / "b.sock", None
    if state == "dead":
        _dead(path)
    elif state != "absent":
        kept = _silent(path)
    if state == "slams the door" and kept is not None:
        threading.Thread(target=_slam, args=(kept,)).start()

    error = refused(lambda: BrokerClient(path, timeout_seconds=0.3).ask("ping"))
    if kept is not None:
        kept.close()

    assert isinstance(error, Outage)
    assert error.code == "broker.unreachable"


def test_a_reply_that_is_cut_is_an_outage(short_path: Path) -> None:
    listener = listen(short_path / "b.sock")

    def cut() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(wire.encode({"ok": True}, b"data")[:-2])
        connection.close()

    threading.Thread(target=cut).start()
    assert refused(lambda: BrokerClient(short_path / "b.sock").ask("x")).code == "broker.unreachable"
    listener.close()


EVIDENCE = {
    "id_token": "a.b.c",
    "job_token": "t",
    "facts": {
        "job_id": 1,
        "project_id": 7,
        "pipeline_id": 31,
        "user_id": 101,
        "ref": "main",
        "sha": "0",
        "job_name": "b",
        "stage": "test",
        "project_path": "chem/water",
        "timeout_seconds": 3600,
    },
    "scheduler_parameters": "",
    "cluster": None,
}
FACTS: dict[str, Any] = EVIDENCE["facts"]  # type: ignore[assignment]
BAD_REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "no evidence": ("admit", {}),
    "evidence is a list": ("admit", {"evidence": []}),
    "a token is a number": ("admit", {"evidence": EVIDENCE | {"id_token": 5}}),
    "a job token is missing": ("admit", {"evidence": EVIDENCE | {"id_token": None, "job_token": None}}),
    "a server is a number": ("admit", {"evidence": EVIDENCE | {"facts": FACTS | {"server_url": 1}}}),
    "facts are missing": ("admit", {"evidence": EVIDENCE | {"facts": {}}}),
    "more facts": ("admit", {"evidence": EVIDENCE | {"facts": FACTS | {"account": "root"}}}),
    "a job id is text": ("admit", {"evidence": EVIDENCE | {"facts": FACTS | {"job_id": "1"}}}),
    "a job id is true": ("admit", {"evidence": EVIDENCE | {"facts": FACTS | {"job_id": True}}}),
    "a cluster is a number": ("admit", {"evidence": EVIDENCE | {"cluster": 1}}),
    "no session": ("tickets", {"run_id": "x", "use": "ssh"}),
    "an account": ("tickets", {"account": "root", "targets": ["host/x"]}),
    "a job id that is text": ("node_claim", {"token": "t", "node": "n", "slurm_job_id": "1", "uid": 1}),
    "no claim": ("node_tickets", {}),
    "no node": ("node_released", {"token": "t", "slurm_job_id": 1, "uid": 1}),
}


@pytest.mark.threat("T21")
@pytest.mark.parametrize(("op", "fields"), BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
def test_the_desk_refuses_what_it_can_not_read(
    broker: Broker, client: BrokerClient, op: str, fields: dict[str, Any]
) -> None:
    assert refused(lambda: client.ask(op, **fields)).code == "broker.malformed"
    assert broker.impersonator.asked == []


@pytest.mark.threat("T21")
def test_an_unknown_use_of_tickets_is_refused(broker: Broker, client: BrokerClient) -> None:
    assert isinstance(refused(lambda: client.ask("tickets", run_id="x", session="y", use="root")), Defect)
    assert broker.impersonator.asked == []


@pytest.mark.threat("T21")
def test_web_can_name_nobody_without_a_token(broker: Broker, client: BrokerClient) -> None:
    error = refused(lambda: client.ask("admit", evidence=EVIDENCE))
    assert isinstance(error, errors.TokenRefused)
    assert error.reference is not None
    assert broker.impersonator.asked == []


def test_key_changes_are_on_record_one_by_one(broker: Broker) -> None:
    events = RecordedKeyEvents(broker.ledger)
    events.changed("https://gitlab.realm.test", {"kid-B./": "ab" * 32, "kid-A": "cd" * 32})
    events.failed("https://gitlab.realm.test", "redirect")

    *changed, failed = broker.records(type=RecordType.KEYS.value)
    assert [(one["phase"], one["detail"]["kid"], one["detail"]["thumbprint"]) for one in changed] == [
        ("event", "kid-A", "cd" * 32),
        ("event", "kid-B./", "ab" * 32),
    ]
    assert len({one["reference"] for one in changed}) == 1
    assert (failed["phase"], failed["detail"]["reason"]) == ("failed", "redirect")


def test_key_changes_that_can_not_be_recorded_stop_nothing(broker: Broker) -> None:
    with broker.engine.connect() as connection:
        connection.exec_driver_sql("DROP TABLE audit")
        connection.commit()
    RecordedKeyEvents(broker.ledger).changed("https://gitlab.realm.test", {"kid": "ab" * 32})


def test_the_broker_survives_a_moment_without_descriptors(short_path: Path) -> None:
    failing = _Failing(listen(short_path / "b.sock"))
    server = BrokerServer(failing, frozenset({os.geteuid()}), {"ping": lambda request, peer: ({}, b"")})  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    assert BrokerClient(short_path / "b.sock").ask("ping")[0] == {"ok": True}
    assert failing.failed
    server.stop()
    thread.join(30)
    wait_until(lambda: not thread.is_alive())


def test_a_stop_that_comes_when_it_has_ended_harms_nobody(short_path: Path) -> None:
    server = BrokerServer(listen(short_path / "b.sock"), frozenset({os.geteuid()}), {})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.stop()
    thread.join(30)
    assert not thread.is_alive()
    server.stop()


class _Failing:
    """A listener that has no descriptor left at first."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.failed = False

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.failed:
            self.failed = True
            raise OSError(24, "Too many open files")
        return self._listener.accept()

    def __enter__(self) -> None:
        self._listener.__enter__()

    def __exit__(self, *arguments: object) -> None:
        self._listener.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)
