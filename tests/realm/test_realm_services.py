"""The realm's daemons are real, alone on their ports, and fail loudly."""

import signal
import sys
import time
from pathlib import Path

import pytest

from realm import Realm, RealmError, Service
from realm.service import all_of, answers, connects, listens

_ECHO = """
import socket, sys
listeners = []
for _ in range(int(sys.argv[2])):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("", int(sys.argv[1])))
    listener.listen()
    listeners.append(listener)
print("listening", flush=True)
while True:
    listeners[0].accept()[0].close()
"""


def _echo(name: str, port: int, sockets: int = 1) -> Service:
    argv = (sys.executable, "-c", _ECHO, str(port), str(sockets))
    return Service(name=name, host="desk", argv=argv, ready=connects(port), tcp=(port,), within=30)


def test_every_declared_port_has_exactly_one_listener(realm: Realm) -> None:
    declared = [(service.host, "tcp", port) for service, _ in realm.services() for port in service.tcp]
    declared += [(service.host, "udp", port) for service, _ in realm.services() for port in service.udp]
    assert {("kdc", "tcp", 88), ("kdc", "udp", 88), ("login", "tcp", 22), ("ctl", "tcp", 6817)} <= set(declared)
    for host, protocol, port in declared:
        assert len(realm.host(host).listeners(protocol, port)) == 1, (host, protocol, port)


def test_nobody_listens_on_an_undeclared_port(realm: Realm) -> None:
    for host in realm.hosts.values():
        declared = {port for service, _ in realm.services() if service.host == host.name for port in service.tcp}
        assert {listener.port for listener in host.listeners("tcp")} <= declared, host.name


def test_second_listener_on_a_port_is_found_out(realm: Realm) -> None:
    with pytest.raises(RealmError) as caught:
        realm.start_service(_echo("twice", 4001, sockets=2))
    assert caught.value.code == "realm.listeners"
    assert "2 sockets instead of 1" in caught.value.detail
    assert realm.host("desk").listeners("tcp", 4001) == []


def test_second_kdc_on_the_same_port_is_found_out(realm: Realm) -> None:
    from dataclasses import replace

    from realm.kdc import KRB5KDC

    with pytest.raises(RealmError) as caught:
        realm.start_service(replace(KRB5KDC, name="krb5kdc-twin", log="/var/log/twin.log"))
    assert caught.value.code == "realm.listeners"
    assert "1 sockets instead of 0 listen on tcp port 88 of kdc" in caught.value.detail
    assert len(realm.host("kdc").listeners("tcp", 88)) == 1


def _pid(realm: Realm, name: str) -> int | None:
    return {service.name: pid for service, pid in realm.services()}[name]


def test_service_can_be_stopped_and_started_again(realm: Realm) -> None:
    realm.start_service(_echo("echo", 4002))
    first = _pid(realm, "echo")
    realm.restart_service("echo")
    assert _pid(realm, "echo") not in (first, None)
    assert realm.log("echo").count("listening") == 2
    realm.stop_service("echo")
    assert _pid(realm, "echo") is None
    assert realm.host("desk").listeners("tcp", 4002) == []
    realm.stop_service("echo")


_LINGERS = """
import os, signal, socket, sys, time
def late(number, frame):
    time.sleep(0.5)
    raise SystemExit
if os.fork() == 0:
    signal.signal(signal.SIGTERM, late)
    with socket.create_server(("", int(sys.argv[1]))) as listener:
        while True:
            listener.accept()[0].close()
signal.pause()
"""


def test_service_whose_child_ends_later_than_itself_can_be_started_again(realm: Realm) -> None:
    """As faketime does, which waits for the daemon that it forks off."""
    argv = (sys.executable, "-c", _LINGERS, "4004")
    realm.start_service(Service(name="lingers", host="desk", argv=argv, ready=connects(4004), tcp=(4004,), within=30))
    try:
        realm.restart_service("lingers")
    finally:
        realm.stop_service("lingers", signal.SIGKILL)


def test_service_that_ignores_sigterm_is_killed(realm: Realm) -> None:
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(999)"
    )
    argv = (sys.executable, "-c", script)
    log = "/var/log/realm/deaf.log"
    ready = answers("/usr/bin/grep", "-q", "deaf", log)
    realm.start_service(Service(name="deaf", host="desk", argv=argv, ready=ready, stop_seconds=0.3))
    began = time.monotonic()
    realm.stop_service("deaf", signal.SIGTERM)
    assert time.monotonic() - began >= 0.3
    assert "deaf" not in realm.host("desk").run(["ps", "ax", "-o", "args"]).stdout.decode()


def test_service_that_was_stopped_in_its_tracks_is_ended_all_the_same(realm: Realm) -> None:
    argv = (sys.executable, "-c", "import time; print('still', flush=True); time.sleep(999)")
    ready = answers("/usr/bin/grep", "-q", "still", "/var/log/realm/still.log")
    realm.start_service(Service(name="still", host="desk", argv=argv, ready=ready))
    waiting = next(pid for service, pid in realm.services() if service.name == "still")
    realm.host("desk").run(["pkill", "-STOP", "-f", "still"])
    end = time.monotonic() + 30
    while Path(f"/proc/{waiting}/stat").read_text().rpartition(") ")[2][0] != "T":
        assert time.monotonic() < end, "nsenter goes on where its command does not"
        time.sleep(0.02)
    realm.stop_service("still", signal.SIGKILL)
    assert not Path(f"/proc/{waiting}").exists()


def test_service_that_dies_fails_at_once_with_its_last_words(realm: Realm) -> None:
    argv = (sys.executable, "-c", "raise SystemExit('no such luck')")
    began = time.monotonic()
    with pytest.raises(RealmError) as caught:
        realm.start_service(Service(name="dies", host="desk", argv=argv, ready=listens(4003), within=100))
    assert time.monotonic() - began < 50, "it waited for all of the time that the service had"
    assert caught.value.code == "realm.service_died"
    assert "no such luck" in caught.value.evidence
    assert "python -m realm logs desk dies" in caught.value.remedy


def test_service_that_never_answers_is_given_up_and_stopped(realm: Realm) -> None:
    argv = (sys.executable, "-c", "import time; time.sleep(999.25)")
    ready = all_of(answers("/bin/true"), listens(4004))
    with pytest.raises(RealmError) as caught:
        realm.start_service(Service(name="silent", host="desk", argv=argv, ready=ready, within=0.5))
    assert caught.value.code == "realm.service_not_ready"
    assert "999.25" not in realm.host("desk").run(["ps", "ax", "-o", "args"]).stdout.decode()


def test_unknown_service_is_refused_with_the_known_ones(realm: Realm) -> None:
    with pytest.raises(RealmError, match="krb5kdc") as caught:
        realm.log("nosuch")
    assert caught.value.code == "realm.unknown_service"


def test_logs_can_be_kept_for_later(realm: Realm, tmp_path: Path) -> None:
    kept = realm.save_logs(tmp_path / "logs")
    assert "commencing operation" in (kept / "kdc-krb5kdc.log").read_text("utf-8")
    assert (kept / "ctl-slurmctld.log").stat().st_size > 0
