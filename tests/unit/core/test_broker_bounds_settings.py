"""What the broker's settings make of its guard and of its KDCs; a setting can not open what it is there to close."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bridge.broker import kerberos_side
from bridge.errors import PolicyRefused
from bridge.model import PosixAccount
from bridge.settings import Broker
from tests.fakes import FakeDirectory


def broker(**changes: Any) -> Broker:
    """The settings of a broker."""
    named = {"principal": "ci-bridge/b.realm.test", "realm": "REALM.TEST", "http_service": "HTTP/b.realm.test"}
    return Broker(**(named | changes))


@pytest.mark.threat("T18")
@pytest.mark.parametrize(
    ("account", "refused"),
    [
        (PosixAccount("alice", 1000, 1000, ("alice",), "/home/alice", "/bin/sh"), False),
        (PosixAccount("alice", 999, 1000, ("alice",), "/home/alice", "/bin/sh"), True),
        *(
            (PosixAccount("alice", 1000, 1000, ("alice", group), "/home/alice", "/bin/sh"), True)
            for group in ("root", "wheel", "sudo", "adm", "disk", "shadow", "docker")
        ),
    ],
    ids=str,
)
def test_without_any_setting_the_guard_knows_the_usual_ways_to_root(
    monkeypatch: pytest.MonkeyPatch, account: PosixAccount, *, refused: bool
) -> None:
    monkeypatch.setattr(kerberos_side, "NssDirectory", lambda: FakeDirectory(account))
    guard = kerberos_side.guard_of(broker())
    if refused:
        with pytest.raises(PolicyRefused, match=r"kerberos\.account_denied"):
            guard.require_ordinary("alice", account.uid)
    else:
        guard.require_ordinary("alice", account.uid)


@pytest.mark.threat("T18")
@pytest.mark.parametrize("floor", [0, -1, "root"])
def test_no_setting_lowers_the_floor_to_root(floor: object) -> None:
    with pytest.raises(ValidationError):
        broker(uid_floor=floor)


@pytest.mark.threat("T24")
def test_the_brokers_own_order_of_kdcs_stands_before_the_systems_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", "/etc/krb5.conf:/etc/more.conf")
    kerberos_side.exchange_of(broker(private_directory=tmp_path, kdcs=["kdc2.realm.test", "kdc1.realm.test:8888"]))
    assert os.environ["KRB5_CONFIG"] == f"{tmp_path}/krb5.conf:/etc/krb5.conf:/etc/more.conf"
    lines = (tmp_path / "krb5.conf").read_text().splitlines()
    assert [line.strip() for line in lines] == [
        "[realms]",
        "REALM.TEST = {",
        "kdc = kdc2.realm.test",
        "kdc = kdc1.realm.test:8888",
        "}*",
    ]


def test_without_kdcs_libkrb5_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_CONFIG", "/etc/krb5.conf")
    kerberos_side.exchange_of(broker(private_directory=tmp_path))
    assert os.environ["KRB5_CONFIG"] == "/etc/krb5.conf"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kdc", ["", "kdc one", "kdc}\n[libdefaults]", "kdc\n", "kdc:", "kdc:x", "-kdc", "kdc;x", "https://kdc"]
)
def test_an_address_that_would_say_more_in_krb5_conf_is_refused(kdc: str) -> None:
    with pytest.raises(ValidationError):
        broker(kdcs=[kdc])
