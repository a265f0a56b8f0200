"""A known_hosts file is understood whole or not at all, and names match as sshd(8) says."""

from __future__ import annotations

import itertools
from pathlib import Path

import paramiko
import pytest
from ssh_keys import host_key, public_line

from bridge.cluster.ssh import Endpoint, HostKeys
from bridge.cluster.ssh.knownhosts import Marker, Unreadable, parse
from bridge.errors import Defect

KEY = host_key()
LINE = public_line(KEY)
LOGIN = Endpoint("login.example.org", 22, "R")


def _keys(tmp_path: Path, text: str) -> HostKeys:
    path = tmp_path / "known_hosts"
    path.write_text(text)
    return HostKeys(path)


def _refused(keys: HostKeys, endpoint: Endpoint, key: paramiko.PKey) -> bool:
    try:
        keys.require(endpoint, key)
    except Defect as error:
        return error.code == "ssh.host_key"
    return False


@pytest.mark.parametrize(
    ("names", "host", "fits"),
    [
        ("login.example.org", "login.example.org", True),
        ("a,login.example.org,b", "login.example.org", True),
        ("LOGIN.example.org", "login.EXAMPLE.org", True),
        ("*.example.org", "login.example.org", True),
        ("login?.example.org", "login1.example.org", True),
        ("login?.example.org", "login.example.org", False),
        ("*.example.org,!login.example.org", "login.example.org", False),
        ("!login.example.org", "other.example.org", False),
        ("login.example.org", "login.example.org.evil.test", False),
        ("login.example.org", "xlogin.example.org", False),
        ("login.example.org", "loginxexample.org", False),
        ("login.example.org", "[login.example.org]:2222", False),
        ("[login.example.org]:2222", "[login.example.org]:2222", True),
        ("[login.example.org]:2222", "login.example.org", False),
        ("[*.example.org]:2222", "[login.example.org]:2222", True),
        ("[lo]gin.example.org", "lgin.example.org", False),
        (paramiko.HostKeys.hash_host("login.example.org"), "login.example.org", True),
        (paramiko.HostKeys.hash_host("login.example.org"), "other.example.org", False),
    ],
    ids=map(str, itertools.count()),
)
def test_names_match_as_in_openssh(names: str, host: str, fits: bool) -> None:
    (line,) = parse(f"{names} {LINE}")
    assert line.names(host) is fits


def test_markers_comments_and_blank_lines() -> None:
    lines = parse(f"# a\n\n@cert-authority *.a {LINE} ca\n@revoked * {LINE}\n  b {LINE} x y\r\n")
    assert [line.marker for line in lines] == [Marker.AUTHORITY, Marker.REVOKED, Marker.PINNED]
    assert {line.key for line in lines} == {KEY.asbytes()}


@pytest.mark.threat("T33")
@pytest.mark.parametrize(
    "line",
    [
        f"@revokd * {LINE}",
        f"@Revoked * {LINE}",
        f"@cert-authority {LINE}",
        "login.example.org ssh-ed25519",
        "login.example.org",
        f"login.example.org {LINE[:-9]}",
        f"login.example.org {LINE[:20]}!{LINE[20:]}",
        f"login.example.org ssh-rsa {LINE.split()[1]}",
        f"login.example.org ssh-dss {LINE.split()[1]}",
        f"login.example.org {LINE.split()[1]} ssh-ed25519",
        f"login.example.org ssh-ed25519-cert-v01@openssh.com {LINE.split()[1]}",
        f"|1|AAAA|BBBB {LINE}",
        f"|2|{'A' * 27}=|{'A' * 27}= {LINE}",
        f"a,,b {LINE}",
        f"a,|1|{'A' * 27}=|{'A' * 27}= {LINE}",
        f"log\x00in {LINE}",
    ],
    ids=map(str, itertools.count()),
)
def test_a_line_that_is_none_is_never_passed_over(tmp_path: Path, line: str) -> None:
    with pytest.raises(Unreadable, match="line 2"):
        parse(f"ok {LINE}\n{line}\n")
    with pytest.raises(Defect, match=r"ssh\.known_hosts"):
        _keys(tmp_path, f"ok {LINE}\n{line}\n")


def test_bytes_that_are_no_text_are_a_defect(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(Defect, match=r"ssh\.known_hosts"):
        HostKeys(path)


@pytest.mark.threat("T33")
def test_both_keys_of_a_rollover_are_known_and_no_third(tmp_path: Path) -> None:
    new = host_key()
    keys = _keys(tmp_path, f"login.example.org {LINE}\nlogin.example.org {public_line(new)}\n")
    assert [_refused(keys, LOGIN, key) for key in (KEY, new, host_key())] == [False, False, True]


@pytest.mark.threat("T33")
@pytest.mark.parametrize("order", [1, -1])
def test_a_revoked_key_is_refused_wherever_it_stands(tmp_path: Path, order: int) -> None:
    lines = [f"login.example.org {LINE}", f"@revoked * {LINE}"][::order]
    assert _refused(_keys(tmp_path, "\n".join(lines)), LOGIN, KEY)


@pytest.mark.threat("T33")
def test_an_authority_is_not_a_host(tmp_path: Path) -> None:
    assert _refused(_keys(tmp_path, f"@cert-authority * {LINE}"), LOGIN, KEY)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (f"login.example.org {LINE}", "ssh-ed25519"),
        (f"login.example.org {public_line(paramiko.ECDSAKey.generate(bits=384))}", "ecdsa-sha2-nistp384"),
        (f"login.example.org {public_line(paramiko.RSAKey.generate(2048))}", "rsa-sha2-512"),
        (f"@cert-authority *.example.org {LINE}", "ssh-ed25519-cert-v01@openssh.com"),
    ],
    ids=map(str, itertools.count()),
)
def test_what_can_succeed_is_offered_first_and_nothing_with_sha1(tmp_path: Path, text: str, first: str) -> None:
    offer = _keys(tmp_path, text).algorithms(LOGIN)
    assert offer[0] == first
    assert not {"ssh-rsa", "ssh-dss", "ssh-rsa-cert-v01@openssh.com"} & set(offer)
    assert any("cert" in kind for kind in offer) is text.startswith("@")
