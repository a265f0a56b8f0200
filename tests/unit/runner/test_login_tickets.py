"""A person's own login on the login node is neither replaced nor removed by a CI run, and ours never hides as one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from agent_client import UID, USER, Failed, own
from ccache_bytes import CONFIGURATION, TGS, cache_bytes, principal, ticket
from test_login_agent_program import Site, site  # noqa: F401 - a fixture

OURS = cache_bytes(USER, 2)
LOGIN = cache_bytes(USER, 1, extra="tgt")
SOON = int(time.time()) + 7200


def _holding(*servers: bytes, end: int = SOON, owner: bytes = principal(USER.encode())) -> bytes:
    return b"\x05\x04\x00\x00" + owner + b"".join(ticket(owner, server, end) for server in servers)


LOGINS = {
    "a TGT alone": _holding(TGS),
    "a TGT among tickets, after kinit's notes": _holding(CONFIGURATION, principal(b"nfs", b"nas.test"), TGS),
    "a TGT of another realm": _holding(principal(b"krbtgt", b"ELSEWHERE", realm=b"ELSEWHERE")),
    "an administrator's": _holding(TGS, owner=principal(USER.encode(), b"admin")),
    "ours, with a TGT put into it": OURS + ticket(principal(USER.encode()), TGS, SOON),
}
NO_LOGINS = {
    "ours from before": OURS,
    "an ended TGT": cache_bytes(USER, 1, extra="tgt", tgt_life=-5),
    "a ticket for a service called krbtgt in the configuration's realm": _holding(
        principal(b"krbtgt", b"NODE.TEST", realm=b"X-CACHECONF:")
    ),
    "a cache without tickets": _holding(),
    "an empty file": b"",
}
NOT_READ = {
    "garbage": b"hello",
    "an older format": b"\x05\x03" + OURS[2:],
    "cut off": LOGIN[:-3],
    "cut off in the header": b"\x05\x04\x00",
    "too large": OURS + bytes(8 * 1024 * 1024),
}


def _cache(site: Site) -> Path:  # noqa: F811
    return Path(site.ccache.removeprefix("FILE:"))


def _put(site: Site, data: bytes) -> Path:  # noqa: F811
    _cache(site).unlink(missing_ok=True)
    _cache(site).write_bytes(data)
    own(_cache(site))
    return _cache(site)


@pytest.mark.threat("T23")
@pytest.mark.parametrize("held", LOGINS)
def test_a_login_that_is_good_is_left_by_every_verb(site: Site, held: str) -> None:  # noqa: F811
    path = _put(site, LOGINS[held])
    assert site.agent.ask("tickets", OURS, ccache=site.ccache)["login_until"] == SOON
    dropped = site.agent.ask("drop_tickets", ccache=site.ccache)
    assert (dropped["removed"], dropped["left"]) == (False, True)
    assert site.agent.ask("destroy", run="run1", builds_root=str(site.builds), ccache=site.ccache)["left"] is True
    assert path.read_bytes() == LOGINS[held]
    assert list(site.tmp.iterdir()) == [path]


@pytest.mark.parametrize("held", NO_LOGINS)
def test_what_is_no_login_makes_way_and_goes(site: Site, held: str) -> None:  # noqa: F811
    path = _put(site, NO_LOGINS[held])
    assert site.agent.ask("tickets", OURS, ccache=site.ccache)["login_until"] is None
    assert path.read_bytes() == OURS
    _put(site, NO_LOGINS[held])
    assert site.agent.ask("destroy", run="run1", builds_root=str(site.builds), ccache=site.ccache)["left"] is False
    assert list(site.tmp.iterdir()) == []


@pytest.mark.parametrize("held", [*NOT_READ, "not to be opened"])
def test_what_can_not_be_understood_is_neither_replaced_nor_removed(site: Site, held: str) -> None:  # noqa: F811
    data = NOT_READ.get(held, LOGIN)
    path = _put(site, data)
    if held not in NOT_READ:
        path.chmod(0)
    with pytest.raises(Failed, match=r"tickets\.unreadable"):
        site.agent.ask("tickets", OURS, ccache=site.ccache)
    assert site.agent.ask("drop_tickets", ccache=site.ccache)["removed"] is False
    assert site.agent.ask("destroy", run="run1", builds_root=str(site.builds), ccache=site.ccache)["left"] is True
    assert path.read_bytes() == data


@pytest.mark.threat("T35")
def test_a_login_behind_the_persons_own_link_is_left_too(site: Site) -> None:  # noqa: F811
    real = site.home / "tickets"
    real.write_bytes(LOGIN)
    own(real)
    _cache(site).symlink_to(real)
    os.chown(_cache(site), UID, UID, follow_symlinks=False)
    assert site.agent.ask("tickets", OURS, ccache=site.ccache)["login_until"] is not None
    assert _cache(site).is_symlink()
    assert real.read_bytes() == LOGIN


@pytest.mark.threat("T35")
def test_somebody_elses_cache_behind_the_persons_link_is_no_login_of_theirs(site: Site) -> None:  # noqa: F811
    theirs = site.tmp / "theirs"
    theirs.write_bytes(LOGIN)
    theirs.chmod(0o644)
    _cache(site).symlink_to(theirs)
    os.chown(_cache(site), UID, UID, follow_symlinks=False)
    assert site.agent.ask("tickets", OURS, ccache=site.ccache)["login_until"] is None
    assert (_cache(site).is_symlink(), _cache(site).read_bytes(), theirs.read_bytes()) == (False, OURS, LOGIN)


@pytest.mark.threat("T22")
@pytest.mark.parametrize(
    "data",
    [LOGIN, cache_bytes("bob", 1), cache_bytes(USER, 1, extra="configuration"), _holding(), b"\x05\x04", b""],
    ids=["a TGT", "somebody else's", "configuration", "no ticket", "no cache", "nothing"],
)
def test_only_the_accounts_service_tickets_are_put(site: Site, data: bytes) -> None:  # noqa: F811
    with pytest.raises(Failed, match=r"agent\.request"):
        site.agent.ask("tickets", data, ccache=site.ccache)
    assert list(site.tmp.iterdir()) == []
