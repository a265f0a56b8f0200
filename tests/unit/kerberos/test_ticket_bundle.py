"""A bundle holds one account's tickets for the listed services; the bridge's own never get into it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import Defect
from bridge.kerberos import bundle, ccache, ticket
from bridge.kerberos.ccache import Credential, Principal

DATA = Path(__file__).parent / "data"
REAL = {path.stem: path.read_bytes() for path in DATA.glob("*.ccache")}
ALICE = "alice@REALM.TEST"
SERVERS = ("host/login.realm.test@REALM.TEST", "lustre_mds/mds1.realm.test@REALM.TEST")
LATER = datetime(2100, 1, 1, tzinfo=UTC)

each_real = pytest.mark.parametrize("data", REAL.values(), ids=REAL.keys())


@pytest.mark.threat("T20")
@each_real
def test_strip_keeps_the_listed_tickets_and_nothing_else(data: bytes) -> None:
    made = bundle.strip(data, ALICE, SERVERS, LATER)
    owner, entries = ccache.parse(made.ccache)
    assert str(owner) == made.principal == ALICE
    assert [(str(entry.client), str(entry.server)) for entry in entries] == [(ALICE, server) for server in SERVERS]
    assert all(entry.second_ticket == b"" for entry in entries)
    assert b"krbtgt" not in made.ccache
    assert b"ci-bridge" not in made.ccache
    assert b"X-CACHECONF:" not in made.ccache


@pytest.mark.threat("T20")
@each_real
def test_no_secret_of_the_bridge_gets_into_the_bundle(data: bytes) -> None:
    made = bundle.strip(data, ALICE, SERVERS, LATER)
    _, entries = ccache.parse(data)
    for entry in entries[:3]:
        assert entry.ticket not in made.ccache
        assert not entry.session_key or entry.session_key not in made.ccache
    for entry in entries[3:]:
        assert entry.second_ticket, "an S4U2Proxy entry carries its evidence ticket"
        assert entry.second_ticket not in made.ccache


@each_real
def test_one_server_of_two_is_enough(data: bytes) -> None:
    made = bundle.strip(data, ALICE, SERVERS[1:], LATER)
    assert [one.server for one in made.tickets] == [SERVERS[1]]
    assert made.end == made.tickets[0].end
    assert b"login.realm.test" not in made.ccache


def test_the_ticket_id_is_the_hash_of_the_cipher_text() -> None:
    made = bundle.strip(REAL["s4u-principal"], ALICE, SERVERS, LATER)
    for one in made.tickets:
        assert len(one.ticket_id) == 64
        assert one.ticket_id == one.ticket_id.upper()
    # From `openssl asn1parse` on the ticket and `sha256sum` on its octet string.
    assert made.tickets[0].ticket_id == HOST_TICKET_ID


HOST_TICKET_ID = "6487EFE00940A2BB1A16569DC38AB95E7A80AFDA58CB9B2FB1C81D8DA5980546"


@pytest.mark.parametrize(
    ("principal", "servers"),
    [
        ("bob@REALM.TEST", SERVERS),
        ("alice@OTHER.TEST", SERVERS),
        ("ci-bridge/bridge.realm.test@REALM.TEST", ("krbtgt/REALM.TEST@REALM.TEST",)),
        (ALICE, ()),
        (ALICE, (*SERVERS, "nfs/nas.realm.test@REALM.TEST")),
        (ALICE, (SERVERS[0], SERVERS[0])),
        (ALICE, ("krbtgt/REALM.TEST@REALM.TEST",)),
        (ALICE, ("host/login.realm.test@OTHER.TEST",)),
    ],
)
def test_strip_gives_nothing_where_a_ticket_is_missing_or_may_not_be(principal: str, servers: tuple[str, ...]) -> None:
    with pytest.raises(Defect, match=r"kerberos\.bundle_rule"):
        bundle.strip(REAL["s4u-principal"], principal, servers, LATER)


TGT = ccache.parse(REAL["s4u-principal"])[1][0]

BROKEN: dict[str, Callable[[Credential], Credential]] = {
    "foreign client": lambda entry: replace(entry, client=Principal.of("bob@REALM.TEST")),
    "the bridge's own": lambda entry: replace(entry, client=TGT.client),
    "krbtgt": lambda entry: replace(entry, server=TGT.server),
    "unlisted server": lambda entry: replace(entry, server=Principal.of("host/other.realm.test@REALM.TEST")),
    "referral realm": lambda entry: replace(entry, server=Principal(b"", entry.server.components)),
    "config entry": lambda entry: replace(entry, server=Principal(b"X-CACHECONF:", (b"krb5_ccache_conf_data", b"x"))),
    "another ticket": lambda entry: replace(entry, ticket=TGT.ticket),
    "renewable": lambda entry: replace(entry, flags=entry.flags | 0x00800000),
    "initial": lambda entry: replace(entry, flags=entry.flags | 0x00400000),
    "invalid": lambda entry: replace(entry, flags=entry.flags | 0x01000000),
    "proxiable": lambda entry: replace(entry, flags=entry.flags | 0x10000000),
    "renew till": lambda entry: replace(entry, renew_till=entry.end_time + 3600),
    "rc4": lambda entry: replace(entry, enctype=23),
    "ends too late": lambda entry: replace(entry, end_time=2**32 - 1),
    "ends at its start": lambda entry: replace(entry, end_time=entry.start_time),
    "second ticket": lambda entry: replace(entry, second_ticket=TGT.ticket),
    "address": lambda entry: replace(entry, addresses=((2, b"\x7f\0\0\1"),)),
    "authorisation data": lambda entry: replace(entry, authdata=((1, b"x"),)),
    "user to user": lambda entry: replace(entry, is_skey=True),
}


def _with(change: Callable[[Credential], Credential]) -> bytes:
    owner, entries = ccache.parse(bundle.strip(REAL["s4u-principal"], ALICE, SERVERS, LATER).ccache)
    return ccache.write(owner, (change(entries[0]), *entries[1:]))


@pytest.mark.threat("T20")
@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_verify_finds_every_broken_rule(change: Callable[[Credential], Credential]) -> None:
    until = bundle.strip(REAL["s4u-principal"], ALICE, SERVERS, LATER).end
    bundle.verify_bundle(_with(lambda entry: entry), ALICE, SERVERS, until)
    with pytest.raises(Defect):
        bundle.verify_bundle(_with(change), ALICE, SERVERS, until)


@pytest.mark.parametrize("owner", ["bob@REALM.TEST", "ci-bridge/bridge.realm.test@REALM.TEST", "alice@OTHER.TEST"])
def test_verify_refuses_a_cache_of_somebody_else(owner: str) -> None:
    _, entries = ccache.parse(bundle.strip(REAL["s4u-principal"], ALICE, SERVERS, LATER).ccache)
    theirs = tuple(replace(entry, client=Principal.of(owner)) for entry in entries)
    for held in (entries, theirs):
        with pytest.raises(Defect):
            bundle.verify_bundle(ccache.write(Principal.of(owner), held), ALICE, SERVERS, LATER)


@pytest.mark.threat("T20")
@pytest.mark.parametrize("index", range(5))
def test_verify_refuses_any_entry_of_the_bridges_own_cache(index: int) -> None:
    made = bundle.strip(REAL["s4u-principal"], ALICE, SERVERS, LATER)
    owner, entries = ccache.parse(made.ccache)
    foreign = ccache.parse(REAL["s4u-principal"])[1][index]
    with pytest.raises(Defect):
        bundle.verify_bundle(ccache.write(owner, (*entries, foreign)), ALICE, SERVERS, LATER)


def test_a_bundle_shows_no_secret() -> None:
    made = bundle.strip(REAL["s4u-principal"], ALICE, SERVERS, LATER)
    assert "ccache" not in repr(made)
    assert repr(made.ccache)[2:40] not in repr(made)


@pytest.mark.threat("T20")
@given(st.sampled_from(sorted(REAL)), st.data())
@settings(max_examples=1500)
def test_no_tgt_survives_whatever_happens_to_the_cache(name: str, draw: st.DataObject) -> None:
    changed = bytearray(REAL[name])
    for _ in range(draw.draw(st.integers(1, 4))):
        changed[draw.draw(st.integers(0, len(changed) - 1))] = draw.draw(st.integers(0, 255))
    try:
        made = bundle.strip(bytes(changed), ALICE, SERVERS, LATER)
    except Defect:
        return
    _, entries = ccache.parse(made.ccache)
    assert [(str(entry.client), str(entry.server)) for entry in entries] == [(ALICE, server) for server in SERVERS]
    assert [str(ticket.open_part(entry.ticket).server) for entry in entries] == list(SERVERS)


@given(st.binary(max_size=400))
@settings(max_examples=500)
def test_random_bytes_are_no_ticket(data: bytes) -> None:
    assert _code_of(data) in (None, "kerberos.ticket_malformed")


@given(st.data())
@settings(max_examples=1000)
def test_a_changed_ticket_gives_our_error_or_a_ticket(draw: st.DataObject) -> None:
    changed = bytearray(ccache.parse(REAL["s4u-principal"])[1][3].ticket)
    for _ in range(draw.draw(st.integers(1, 3))):
        changed[draw.draw(st.integers(0, min(len(changed), 120) - 1))] = draw.draw(st.integers(0, 255))
    assert _code_of(bytes(changed)) in (None, "kerberos.ticket_malformed")


def _code_of(data: bytes) -> str | None:
    try:
        ticket.open_part(data)
    except Defect as error:
        return error.code
    return None
