"""The order of KDCs: written whole, changed only for one that answers, by one thread at a time."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.kerberos.kdcs import KdcOrder

PRINCIPAL = "ci-bridge/bridge.realm.test@REALM.TEST"


@contextmanager
def kdc(reply: bytes | None) -> Iterator[str]:
    """Something that reads a whole question and sends this, or nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def work() -> None:
            held: list[socket.socket] = []
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    break
                (size,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
                assert connection.recv(size, socket.MSG_WAITALL)[0] == 0x6A
                if reply is None:
                    held.append(connection)
                else:
                    connection.sendall(reply)
                    connection.close()
            for one in held:
                one.close()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)


KRB_ERROR = b"\0\0\0\x02\x7e\0"
AS_REP = b"\0\0\0\x02\x6b\0"
NO_KDC = [b"", b"\0\0", b"HTTP/1.1 400 Bad Request", b"SSH-2.0-x\r\n", b"\0\0\0\x02\x6a\0", None]


def listed(file: Path) -> list[str]:
    """The KDCs in a krb5.conf, in their order."""
    return [line.partition("= ")[2] for line in file.read_text().splitlines() if " kdc =" in line]


@pytest.mark.threat("T24")
@pytest.mark.parametrize("reply", [KRB_ERROR, AS_REP])
def test_the_one_that_answers_goes_in_front(tmp_path: Path, reply: bytes) -> None:
    file = tmp_path / "krb5.conf"
    with kdc(None) as dead, kdc(reply) as alive:
        order = KdcOrder(PRINCIPAL, (dead, alive), file)
        assert listed(file) == [dead, alive]
        assert order.renew(dead)
        # libkrb5 looks at a file once in a second of the clock, and may have done so just before it was written.
        assert int(time.time()) > int(file.stat().st_mtime)
        assert order.first == alive
        assert listed(file) == [alive, dead]
        assert list(tmp_path.iterdir()) == [file]


@pytest.mark.threat("T24")
@pytest.mark.parametrize("reply", NO_KDC, ids=repr)
def test_what_is_no_kdc_never_goes_in_front(tmp_path: Path, reply: bytes | None) -> None:
    file = tmp_path / "krb5.conf"
    with kdc(None) as first, kdc(reply) as other:
        order = KdcOrder(PRINCIPAL, (first, other), file)
        assert not order.renew(first)
        assert listed(file) == [first, other]


def test_a_kdc_that_answers_keeps_its_place(tmp_path: Path) -> None:
    with kdc(KRB_ERROR) as first, kdc(None) as other:
        order = KdcOrder(PRINCIPAL, (first, other), tmp_path / "krb5.conf")
        assert not order.renew(first)
        assert order.first == first


def test_whoever_was_stuck_at_the_old_one_hears_that_there_is_a_new_one(tmp_path: Path) -> None:
    with kdc(None) as dead, kdc(KRB_ERROR) as alive:
        order = KdcOrder(PRINCIPAL, (dead, alive), tmp_path / "krb5.conf")
        said = list[bool]()
        threads = [threading.Thread(target=lambda: said.append(order.renew(dead))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert said == [True] * 8
        assert not order.renew(alive)


def test_later_files_can_not_add_a_kdc_to_the_realm(tmp_path: Path) -> None:
    """krb5.conf(5): the asterisk makes the realm's section final."""
    KdcOrder(PRINCIPAL, ("kdc1.realm.test", "kdc2.realm.test:8888"), tmp_path / "krb5.conf")
    text = (tmp_path / "krb5.conf").read_text()
    assert text.endswith("}*\n")
    assert listed(tmp_path / "krb5.conf") == ["kdc1.realm.test", "kdc2.realm.test:8888"]
