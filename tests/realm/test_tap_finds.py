"""The tap's parser is known to find what it is there for: what MIT's library would have stored, in every wrapping."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bridge_side import LOGIN, MDS1, REALM_NAME, BridgeSide, bridge_side

from bridge.kerberos.holding import hold
from realm import Realm
from realm.principals import BRIDGE
from realm.workspace import CHECKOUT
from runner import wire
from tests.tap import attack, plugin
from tests.tap.coats import uncoated
from tests.tap.kerberos import Sight, sights
from tests.tap.law import Law, longest_minutes
from tests.tap.watch import Tap

TEXT = b"x" * 700
COATS: dict[str, Callable[[bytes], bytes]] = {
    "raw": lambda data: data,
    "base64": base64.b64encode,
    "base64 of URLs": base64.urlsafe_b64encode,
    "base64 behind letters": lambda data: b"abc" + base64.b64encode(data),
    "base64 in lines": base64.encodebytes,
    "base64 in a JSON frame": lambda data: wire.encode({"id": 1, "cache": base64.encodebytes(data).decode()}),
    "the data of a JSON frame": lambda data: wire.encode({"id": 1, "verb": "put"}, data),
    "JSON text": lambda data: json.dumps({"text": data.decode("latin-1")}).encode(),
    "JSON text in UTF-8": lambda data: json.dumps({"text": data.decode("latin-1")}, ensure_ascii=False).encode(),
    "hex": lambda data: data.hex().encode(),
    "gzip": gzip.compress,
    "zlib in base64": lambda data: base64.b64encode(zlib.compress(data)),
    "a URL": lambda data: urllib.parse.quote_from_bytes(data).encode(),
    "multipart": lambda data: b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + data + b"\r\n--b--\r\n",
    "HTTP chunks": lambda data: (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%b\r\n" % (len(data[at : at + 99]), data[at : at + 99]) for at in range(0, len(data), 99))
        + b"0\r\n\r\n"
    ),
}


@pytest.fixture
def side(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeSide]:
    with bridge_side(realm, tmp_path, monkeypatch) as side:
        yield side


@pytest.fixture
def tap(realm: Realm) -> Iterator[Tap]:
    """One of its own, so that what it finds is not the session's."""
    tap = Tap(realm)
    tap.skip()
    yield tap
    tap.close()


def feed(tap: Tap, *pieces: bytes, stream: str = "here: ssh #1 as alice channel 0") -> list[str]:
    """What the tap says of a stream that came in these pieces, each looked at by itself."""
    found = []
    for piece in pieces:
        tap.pieces.put((stream, piece, 0x7FFFFFFF))
        found += tap.look()
    return found


@pytest.mark.threat("T20")
@pytest.mark.parametrize("coat", COATS.values(), ids=COATS.keys())
def test_what_the_library_stores_is_seen_in_every_wrapping(side: BridgeSide, coat: Callable[[bytes], bytes]) -> None:
    found = list(uncoated(TEXT + coat(side.unstripped()) + TEXT))
    assert f"krbtgt/{REALM_NAME}@{REALM_NAME}" in {sight.server for sight in found}
    assert f"{BRIDGE}@{REALM_NAME}" in {sight.server for sight in found}, "the evidence ticket"
    faults = {fault for sight in found for fault in sight.faults}
    assert {"a ticket of krbtgt", "an entry of a cache with a krbtgt", "an entry of configuration"} <= faults


@pytest.mark.threat("T20")
def test_it_is_seen_where_it_comes_in_two_writes_or_in_many(side: BridgeSide, tap: Tap) -> None:
    data = side.unstripped()
    for number, size in enumerate((len(data) // 2, 100)):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        text = "\n".join(feed(tap, TEXT, *pieces, stream=f"here: ssh #{number + 1} as alice channel 0"))
        assert "a ticket of krbtgt" in text
        assert f"{BRIDGE}@{REALM_NAME} is no listed target" in text
        assert f"of {BRIDGE}@{REALM_NAME}, in a stream of alice@{REALM_NAME}" in text
        assert f"here: ssh #{number + 1} as alice channel 0, offset " in text


@pytest.mark.threat("T20")
def test_a_ticket_alone_and_a_part_of_a_cache_are_seen_too(side: BridgeSide) -> None:
    data = side.unstripped()
    entries = [sight for sight in sights(data) if sight.raw]
    tgt = next(entry for entry in entries if entry.server == f"krbtgt/{REALM_NAME}@{REALM_NAME}")
    assert [sight.server for sight in sights(tgt.ticket)][-1] == tgt.server
    assert "a krbtgt's name in a cache" in {sight.what for sight in sights(tgt.raw[: len(tgt.raw) // 2])}
    assert tgt.server in {sight.server for sight in sights(tgt.raw)}


@pytest.mark.threat("T20")
def test_another_persons_ticket_and_one_that_says_another_name_are_seen(side: BridgeSide, tap: Tap) -> None:
    good = side.tickets("bob", (LOGIN,)).ccache
    assert "of bob@REALM.TEST, in a stream of alice@REALM.TEST" in "\n".join(feed(tap, good))
    lie = good.replace(b"\x00\x00\x00\x03bob", b"\x00\x00\x00\x05alice")
    assert "inside it is of bob@REALM.TEST, outside of alice@REALM.TEST" in "\n".join(
        feed(tap, lie, stream="here: ssh #2 as alice channel 0")
    )


@pytest.mark.threat("T20")
def test_a_ticket_that_the_audit_log_does_not_know_is_seen_where_a_service_sent_it(side: BridgeSide, tap: Tap) -> None:
    found = feed(tap, side.tickets().ccache, stream="web 7: https #1")
    assert found
    assert all("no outcome in the audit log has its id" in line for line in found)


@pytest.mark.threat("T20")
@pytest.mark.parametrize(("minutes", "faults"), [(-1, 0), (2, 1)])
def test_a_ticket_that_lives_longer_than_any_policy_lets_it_is_seen(realm: Realm, minutes: int, faults: int) -> None:
    now = time.time()
    alice, end = f"alice@{REALM_NAME}", int(now) + (longest_minutes() + minutes) * 60
    sight = Sight("cache entry", 0, server=f"{LOGIN}@{REALM_NAME}", client=alice, end=end)
    found = list(Law(realm).faults("file of 20001 login:/tmp/krb5cc_20001", alice, now, sight, {}))
    assert len(found) == faults
    assert all("policy allows" in fault for fault in found)


def test_a_stripped_bundle_is_nothing_to_complain_of(side: BridgeSide, tap: Tap) -> None:
    assert feed(tap, TEXT + side.tickets("alice", (LOGIN, MDS1)).ccache + TEXT) == []
    assert set(tap.loot) == {"alice@REALM.TEST"}
    assert len(tap.seen["ssh"]) == 2


@pytest.mark.threat("T23")
def test_a_ticket_that_lives_longer_than_policy_lets_any_is_seen(side: BridgeSide, tap: Tap) -> None:
    tap.pieces.put(("here: ssh #1 as alice channel 0", side.tickets(seconds=600).ccache, 1_000_000_000.0))
    assert all("seconds later, and policy allows" in line for line in tap.look())


@pytest.mark.threat("T20")
def test_the_attack_on_captured_tickets_is_known_to_work_on_others(side: BridgeSide) -> None:
    stored = [sight for sight in sights(side.unstripped()) if sight.raw and sight.client == f"{BRIDGE}@{REALM_NAME}"]
    assert "act as bob" in attack.successes(side.realm, stored)


@pytest.mark.threat("T20")
def test_the_attack_on_a_delivered_bundle_fails(side: BridgeSide) -> None:
    delivered: list[Sight] = [sight for sight in sights(side.tickets("alice", (LOGIN, MDS1)).ccache) if sight.raw]
    assert len(delivered) == 2
    assert attack.successes(side.realm, delivered) == []


def test_what_a_process_of_ours_sends_over_ssh_is_recorded(side: BridgeSide, tap: Tap) -> None:
    plugin.TAPS.append(tap)
    try:
        with hold(side.tickets()):
            session = side.login()
            session.close()
        assert tap.look() == []
    finally:
        plugin.TAPS.remove(tap)
    assert tap.seen["ssh"]


def test_no_bridge_is_brought_up_beside_the_tap() -> None:
    whole = re.compile(r"\bRealm\(\)")
    found = {
        str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "tests").rglob("*.py") if whole.search(path.read_text())
    }
    assert found == {"tests/tap/plugin.py"}
