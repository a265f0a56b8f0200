"""Certificates of hosts as ssh-keygen makes and sshd shows them: the host's own is enough, every other is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from bridge_side import BridgeSide, bridge_side
from second_login import ADDRESS, NAME, TARGET, certify, delegated_to_both, new_key, second_login

from bridge.cluster.ssh import HostKeys, SshConnection, connect
from bridge.errors import Defect
from bridge.kerberos.holding import hold
from realm import Realm


@pytest.fixture
def side(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    with delegated_to_both(realm), bridge_side(realm, tmp_path, monkeypatch) as side:
        yield side


def _connect(side: BridgeSide) -> SshConnection:
    bundle = side.impersonation([TARGET]).tickets("alice", 20001, [TARGET], 600)
    endpoint = replace(side.endpoint, host=NAME, address=ADDRESS)
    with hold(bundle) as credential:
        return connect(endpoint, "alice", bundle.principal, credential, HostKeys(side.known_hosts))


def _public(key: Path) -> str:
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


@pytest.mark.parametrize("pinned_too", [False, True])
def test_a_certificate_of_the_authority_lets_a_new_key_in(side: BridgeSide, tmp_path: Path, pinned_too: bool) -> None:
    authority, old = new_key(tmp_path, "ca"), new_key(tmp_path, "old")
    lines = [f"@cert-authority *.realm.test {_public(authority)}"]
    side.known_hosts.write_text("\n".join([*lines, f"{NAME} {_public(old)}"] if pinned_too else lines))
    for name in ("first", "rolled-over"):
        key = new_key(tmp_path, name)
        certify(authority, key, "-V", "-1m:+10m")
        with second_login(side.realm, key):
            made = _connect(side)
            assert made.alive
            made.close()


def test_a_pinned_key_needs_no_certificate(side: BridgeSide, tmp_path: Path) -> None:
    key = new_key(tmp_path, "key")
    side.known_hosts.write_text(f"{NAME} {_public(key)}\n")
    with second_login(side.realm, key):
        made = _connect(side)
        assert made.alive
        made.close()


@dataclass(frozen=True, slots=True)
class Attack:
    """How the certificate that sshd shows differs from a good one."""

    options: tuple[str, ...] = ("-V", "-1m:+10m")
    names: tuple[str, ...] = (NAME,)
    foreign: bool = False
    line: str = "@cert-authority *.realm.test"
    more: str = ""


@pytest.mark.threat("T33")
@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (Attack(foreign=True), "authority is none"),
        (Attack(names=("login.realm.test",)), "it is for"),
        (Attack(names=()), "it is for"),
        (Attack(options=("-V", "-2h:-1h")), "it is valid from"),
        (Attack(options=("-V", "+1h:+2h")), "it is valid from"),
        # Without an authority for the node no certificate is asked for, and sshd shows its bare key.
        (Attack(line="@cert-authority *.elsewhere.test"), "not pinned"),
        (Attack(line="*.realm.test"), "not pinned"),
        (Attack(more="@revoked *"), "revoked"),
    ],
    ids=["foreign", "principal", "any-host", "expired", "early", "elsewhere", "no-authority", "revoked"],
)
def test_a_certificate_that_is_not_the_hosts_now_is_refused(
    side: BridgeSide, tmp_path: Path, attack: Attack, why: str
) -> None:
    authority, other, key = (new_key(tmp_path, name) for name in ("ca", "other-ca", "key"))
    certify(other if attack.foreign else authority, key, *attack.options, names=attack.names)
    lines = [f"{attack.line} {_public(authority)}"] + ([f"{attack.more} {_public(authority)}"] if attack.more else [])
    side.known_hosts.write_text("\n".join(lines))
    with second_login(side.realm, key), pytest.raises(Defect) as caught:
        _connect(side)
    assert caught.value.code == "ssh.host_key"
    assert why in str(caught.value.context["why"])


@pytest.mark.threat("T33")
def test_a_certificate_of_a_user_is_not_a_hosts(side: BridgeSide, tmp_path: Path) -> None:
    """sshd refuses to show one and shows the bare key, which is not pinned."""
    authority, key = new_key(tmp_path, "ca"), new_key(tmp_path, "key")
    certify(authority, key, "-V", "-1m:+10m", user=True)
    side.known_hosts.write_text(f"@cert-authority *.realm.test {_public(authority)}\n")
    with second_login(side.realm, key), pytest.raises(Defect, match=r"ssh\.host_key"):
        _connect(side)
