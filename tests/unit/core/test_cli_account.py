"""``ci-bridge account``: who one is, and how administrators link somebody else with four eyes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import ISSUER, Broker
from remote_site import RemoteSite, remote_site
from test_cli import failed

WHOM = ("--issuer", ISSUER, "--user-id", "150", "--account", "mallory")


@pytest.fixture
def there(broker: Broker, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteSite]:
    """The bridge, from another machine."""
    with remote_site(broker, short_path, monkeypatch) as site:
        yield site


def propose(there: RemoteSite, who: str = "ann") -> str:
    """Propose a link; its id."""
    return str(there.shown(who, "account", "propose", *WHOM, "--reason", "asked for it")["link_id"])


def test_the_bridge_says_whom_it_takes_one_for(there: RemoteSite) -> None:
    assert there.run("alice", "account", "whoami").stdout.splitlines() == [
        "principal  alice@REALM.TEST",
        "account    alice",
        "roles      none",
    ]
    assert there.shown("ann", "account", "whoami")["roles"] == ["approver", "author"]
    assert "none: this is not a person" in there.run("host/node1.realm.test", "account", "whoami").stdout
    assert {(host, realm) for host, realm in there.tickets.servers} == {("localhost", None)}


def test_linking_oneself_begins_at_a_page(there: RemoteSite) -> None:
    assert there.run("alice", "account", "link").stdout.endswith(f": {there.url}/link\n")
    assert there.shown("alice", "account", "link") == {"address": f"{there.url}/link"}
    assert there.client.asked == []


def test_a_link_is_proposed_by_one_and_approved_by_another(there: RemoteSite) -> None:
    assert "There is no link." in there.run("ann", "account", "links").stdout
    link = propose(there)
    approved = there.run("abe", "account", "approve", link, "--reason", "I know them")
    assert approved.stdout == f"approved: user 150 of {ISSUER} is mallory (uid 20003) [{link}]\n"
    (line,) = there.run("mallory", "account", "links").stdout.splitlines()
    assert line.startswith(f"{link}  ")
    assert "active" in line
    assert "by abe@REALM.TEST: 'asked for it'" in line
    ended = there.run("mallory", "account", "end", link, "--reason", "not me any more")
    assert ended.stdout.startswith("ended: ")
    assert [one["state"] for one in there.shown("vic", "account", "links")] == ["revoked"]


@pytest.mark.threat("T40")
def test_nobody_approves_what_they_proposed(there: RemoteSite) -> None:
    link = propose(there)
    failed(there.run("ann", "account", "approve", link, "--reason", "r"), "link.four_eyes")
    assert there.run("ann", "account", "reject", link, "--reason", "r").stdout.startswith("rejected: ")


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    ("who", "words", "code"),
    [
        ("alice", ("propose", *WHOM), "caller.role"),
        ("oli", ("propose", *WHOM), "caller.role"),
        ("mallory", ("approve", "{}"), "caller.role"),
        ("mallory", ("reject", "{}"), "caller.role"),
        ("alice", ("end", "{}"), "link.unknown"),
        ("ann", ("end", "{}"), "caller.role"),
        ("abe", ("approve", "7F3K-9QXM-2DTB"), "link.unknown"),
        ("abe", ("approve", "../consent"), "remote.no_id"),
        ("abe", ("end", "7f3k-9qxm-2dtb"), "remote.no_id"),
    ],
)
def test_what_one_may_not_do_is_refused(there: RemoteSite, who: str, words: tuple[str, ...], code: str) -> None:
    link = propose(there)
    failed(there.run(who, "account", *(word.format(link) for word in words), "--reason", "r"), code)
    assert [one["state"] for one in there.shown("vic", "account", "links")] == ["proposed"]


@pytest.mark.threat("T50")
def test_one_sees_no_links_but_ones_own(there: RemoteSite) -> None:
    propose(there)
    assert there.shown("alice", "account", "links") == []
    assert len(there.shown("mallory", "account", "links")) == 1
    assert len(there.shown("vic", "account", "links")) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("propose", "--reason", "r"),
        ("propose", *WHOM),
        ("propose", "--issuer", ISSUER, "--user-id", "alice", "--account", "a", "--reason", "r"),
        ("approve", "7F3K-9QXM-2DTB"),
        ("end", "--reason", "r"),
    ],
)
def test_wrong_usage_asks_nobody(there: RemoteSite, words: tuple[str, ...]) -> None:
    assert there.run("ann", "account", *words).exit_code == 2
    assert there.client.asked == []
