"""docs/realm.md lists the hosts, parts and people that the realm has."""

from __future__ import annotations

import re

import error_codes

from realm import forge
from realm.people import PEOPLE
from realm.topology import HOSTS, PARTS

PAGE = (error_codes.CHECKOUT / "docs" / "realm.md").read_text(encoding="utf-8")


def test_hosts_are_listed_with_their_addresses() -> None:
    assert dict(re.findall(r"^\| `([a-z0-9]+)` \| ([0-9.]+) \|", PAGE, re.MULTILINE)) == {
        host.name: host.address for host in HOSTS
    }


def test_people_are_listed_with_their_numbers() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d*) ?\| (\d+) \|", PAGE, re.MULTILINE)
    uids = {person.name: str(person.uid) for person in PEOPLE}
    assert {name: (uid, number) for name, uid, number in rows} == {
        name: (uids.get(name, ""), str(number)) for name, number in forge.PEOPLE.items()
    }


def test_parts_are_listed() -> None:
    assert [part for part in PARTS if f"`{part}`" not in PAGE] == []


def test_hosts_that_share_homes_are_named() -> None:
    sharing = [f"`{host.name}`" for host in HOSTS if host.shares_home]
    sentence = re.search(r"^(.*) share `/home`", PAGE, re.MULTILINE)
    assert sentence
    assert re.findall(r"`\w+`", sentence[1]) == sharing
