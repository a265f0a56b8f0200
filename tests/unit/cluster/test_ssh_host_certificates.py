"""A login node's certificate counts only from a pinned authority, for this host, now, and for the key in use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import SSHCertificateType
from ssh_keys import PrivateKey, certificate, public_line, shown, to_paramiko

from bridge.cluster.ssh import Endpoint, HostKeys
from bridge.errors import Defect

LOGIN = Endpoint("login.example.org", 22, "R")
AUTHORITY = ed25519.Ed25519PrivateKey.generate()
KEY = ed25519.Ed25519PrivateKey.generate()
OTHER = ed25519.Ed25519PrivateKey.generate()
NOW = int(datetime.now(UTC).timestamp())


def _keys(tmp_path: Path, *lines: str, at: datetime | None = None) -> HostKeys:
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"{line}\n" for line in lines))
    return HostKeys(path, lambda: at or datetime.now(UTC))


def _authority(key: PrivateKey = AUTHORITY, names: str = "*.example.org") -> str:
    return f"@cert-authority {names} {public_line(to_paramiko(key))}"


def _why(keys: HostKeys, key: PrivateKey, blob: bytes, endpoint: Endpoint = LOGIN) -> str:
    with pytest.raises(Defect) as caught:
        keys.require(endpoint, shown(key, blob))
    assert caught.value.code == "ssh.host_key"
    return str(caught.value.context["why"])


@pytest.mark.parametrize(
    "authority",
    [
        AUTHORITY,
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP521R1()),
        rsa.generate_private_key(65537, 2048),
        rsa.generate_private_key(65537, 3072),
    ],
    ids=["ed25519", "p256", "p521", "rsa2048", "rsa3072"],
)
@pytest.mark.parametrize(
    "key",
    [KEY, ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)],
    ids=["ed25519", "p384", "rsa"],
)
def test_a_good_certificate_is_enough(tmp_path: Path, authority: PrivateKey, key: PrivateKey) -> None:
    _keys(tmp_path, _authority(authority)).require(LOGIN, shown(key, certificate(authority, key)))


@pytest.mark.threat("T33")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"type": SSHCertificateType.USER}, "of a user"),
        ({"principals": [b"other.example.org"]}, "it is for"),
        ({"principals": [b"*.example.org"]}, "it is for"),
        ({"principals": [b"login"]}, "it is for"),
        ({"principals": []}, "it is for"),
        ({"valid": (-120, -1)}, "it is valid from"),
        ({"valid": (600, 1200)}, "it is valid from"),
        ({"critical": [b"force-command"]}, "critical options"),
        ({"public_key": OTHER.public_key()}, "of another key"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_any_other_certificate_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    assert why in _why(_keys(tmp_path, _authority()), KEY, certificate(AUTHORITY, KEY, **changes))


@pytest.mark.threat("T33")
@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([_authority(OTHER)], "authority is none"),
        ([_authority(names="*.elsewhere.org")], "authority is none"),
        ([_authority(names="*.example.org,!login.example.org")], "authority is none"),
        ([f"*.example.org {public_line(to_paramiko(AUTHORITY))}"], "authority is none"),
        ([_authority(), f"@revoked * {public_line(to_paramiko(AUTHORITY))}"], "revoked"),
        ([_authority(), f"@revoked * {public_line(to_paramiko(KEY))}"], "revoked"),
        ([], "authority is none"),
    ],
    ids=["foreign", "elsewhere", "excepted", "pinned-only", "revoked-authority", "revoked-key", "nobody"],
)
def test_an_authority_that_is_none_for_the_host_counts_nothing(tmp_path: Path, lines: list[str], why: str) -> None:
    assert why in _why(_keys(tmp_path, *lines), KEY, certificate(AUTHORITY, KEY))


@pytest.mark.threat("T33")
def test_a_certificate_holds_for_its_time_to_the_second(tmp_path: Path) -> None:
    blob = certificate(AUTHORITY, KEY, valid_after=NOW, valid_before=NOW + 100)
    for seconds, good in ((-1, False), (0, True), (99, True), (100, False)):
        keys = _keys(tmp_path, _authority(), at=datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=seconds))
        if good:
            keys.require(LOGIN, shown(KEY, blob))
        else:
            assert "valid from" in _why(keys, KEY, blob)


@pytest.mark.threat("T33")
@pytest.mark.parametrize("where", range(0, 400, 7))
def test_no_byte_of_a_certificate_can_be_changed(tmp_path: Path, where: int) -> None:
    blob = bytearray(certificate(AUTHORITY, KEY))
    where = 36 + where % (len(blob) - 36)
    blob[where] ^= 1
    assert _why(_keys(tmp_path, _authority()), KEY, bytes(blob))


@pytest.mark.threat("T33")
@pytest.mark.parametrize("cut", [1, 8, 64, 100, 200])
def test_a_cut_or_lengthened_certificate_is_refused(tmp_path: Path, cut: int) -> None:
    blob = certificate(AUTHORITY, KEY)
    keys = _keys(tmp_path, _authority())
    assert _why(keys, KEY, blob[:-cut])
    assert _why(keys, KEY, blob + bytes(cut))


@pytest.mark.threat("T33")
def test_a_signature_with_sha1_or_a_short_key_is_refused(tmp_path: Path) -> None:
    authority = rsa.generate_private_key(65537, 2048)
    good = certificate(authority, KEY)
    signed = good[: -(4 + 4 + len(b"rsa-sha2-512") + 4 + 256)]
    old = authority.sign(signed, padding.PKCS1v15(), hashes.SHA1())  # noqa: S303 - what an attacker would want
    inner = len(b"ssh-rsa").to_bytes(4, "big") + b"ssh-rsa" + len(old).to_bytes(4, "big") + old
    blob = signed + len(inner).to_bytes(4, "big") + inner
    assert "SHA-1" in _why(_keys(tmp_path, _authority(authority)), KEY, blob)
    short = rsa.generate_private_key(65537, 1024)  # noqa: S505 - what an attacker would want
    assert "short" in _why(_keys(tmp_path, _authority(short)), KEY, certificate(short, KEY))


def test_a_pinned_key_stays_pinned_whatever_its_certificate_is(tmp_path: Path) -> None:
    expired = certificate(AUTHORITY, KEY, valid_after=NOW - 10, valid_before=NOW - 5)
    keys = _keys(tmp_path, _authority(), f"login.example.org {public_line(to_paramiko(KEY))}")
    keys.require(LOGIN, shown(KEY, expired))


def test_the_principal_is_the_host_without_its_port(tmp_path: Path) -> None:
    keys = _keys(tmp_path, _authority(names="[*.example.org]:2222"))
    keys.require(Endpoint("login.example.org", 2222, "R"), shown(KEY, certificate(AUTHORITY, KEY)))
    assert "authority is none" in _why(keys, KEY, certificate(AUTHORITY, KEY))
