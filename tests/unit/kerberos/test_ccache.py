"""The reader of credential caches takes MIT's own files, and turns away everything else with one kind of error."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.errors import Defect
from bridge.kerberos import ccache
from bridge.kerberos.ccache import Credential, Principal

DATA = Path(__file__).parent / "data"
REAL = tuple(path.read_bytes() for path in sorted(DATA.glob("*.ccache")))
"""S4U caches as MIT 1.20 wrote them: with principal names, and with host-based names (filed under referral realms)."""


@pytest.mark.parametrize("data", REAL)
def test_reads_what_mit_wrote(data: bytes) -> None:
    owner, entries = ccache.parse(data)
    assert str(owner) == "alice@REALM.TEST"
    assert [str(entry.server).partition("/")[0] for entry in entries] == [
        "krbtgt",
        "krb5_ccache_conf_data",
        "ci-bridge",
        "host",
        "lustre_mds",
    ]
    assert [entry.server.is_config for entry in entries] == [False, True, False, False, False]
    assert str(entries[0].client) == "ci-bridge/bridge.realm.test@REALM.TEST"


@pytest.mark.parametrize("data", REAL)
def test_writes_what_it_read(data: bytes) -> None:
    read = ccache.parse(data)
    assert ccache.parse(ccache.write(*read)) == read
    assert [ccache.parse_entry(ccache.write_entry(entry)) for entry in read[1]] == list(read[1])


@pytest.mark.parametrize("data", REAL)
def test_no_secret_shows_in_text(data: bytes) -> None:
    _, entries = ccache.parse(data)
    shown = repr(entries).encode()
    for entry in entries:
        for secret in (entry.session_key, entry.ticket, entry.second_ticket):
            assert not secret or (secret not in shown and repr(secret).encode() not in shown)


_names = st.lists(st.binary(max_size=40), min_size=1, max_size=8).map(tuple)
_principals = st.builds(Principal, st.binary(max_size=40), _names)
_words = st.integers(0, 2**32 - 1)
_lists = st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=20)), max_size=3).map(tuple)
_credentials = st.builds(
    Credential,
    client=_principals,
    server=_principals,
    enctype=st.integers(0, 65535),
    session_key=st.binary(max_size=64),
    auth_time=_words,
    start_time=_words,
    end_time=_words,
    renew_till=_words,
    is_skey=st.booleans(),
    flags=_words,
    addresses=_lists,
    authdata=_lists,
    ticket=st.binary(max_size=200),
    second_ticket=st.binary(max_size=200),
)


@given(_principals, st.lists(_credentials, max_size=4).map(tuple))
def test_any_cache_survives_writing_and_reading(owner: Principal, entries: tuple[Credential, ...]) -> None:
    assert ccache.parse(ccache.write(owner, entries)) == (owner, entries)


@given(st.binary(max_size=4096))
@example(b"")
@example(b"\x05\x04")
@example(b"\x05\x04\x00\x00")
@example(b"\x05\x04\xff\xff")
@example(b"\x05\x03" + REAL[0][2:])
@settings(max_examples=400)
def test_random_bytes_give_our_error(data: bytes) -> None:
    _only_defects(data)


@given(st.sampled_from(REAL), st.data())
@settings(max_examples=1500)
def test_changed_caches_give_our_error_or_a_cache(data: bytes, draw: st.DataObject) -> None:
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(st.integers(0, len(changed) - 1))
        match draw.draw(st.sampled_from(("set", "cut", "insert", "length"))):
            case "set":
                changed[place] = draw.draw(st.integers(0, 255))
            case "cut":
                del changed[place : place + draw.draw(st.integers(1, 64))]
            case "insert":
                changed[place:place] = draw.draw(st.binary(min_size=1, max_size=16))
            case "length":
                changed[place : place + 4] = draw.draw(
                    st.sampled_from((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0" * 4))
                )
        if not changed:
            return
    _only_defects(bytes(changed))


@pytest.mark.parametrize("cut", range(0, len(REAL[0]), 7))
def test_a_cut_cache_is_refused_or_ends_between_entries(cut: int) -> None:
    entries = _entries_or_code(REAL[0][:cut])
    if entries != "kerberos.ccache_malformed":
        whole = ccache.parse(REAL[0])[1]
        assert entries == whole[: len(entries)]
        assert len(entries) < len(whole)


def test_too_many_entries_are_refused() -> None:
    owner, entries = ccache.parse(REAL[0])
    full = tuple(entries[-1] for _ in range(ccache.MAX_CREDENTIALS))
    assert len(ccache.parse(ccache.write(owner, full))[1]) == ccache.MAX_CREDENTIALS
    with pytest.raises(Defect):
        ccache.parse(ccache.write(owner, (*full, entries[-1])))


def test_a_huge_cache_is_refused_before_it_is_read() -> None:
    with pytest.raises(Defect):
        ccache.parse(REAL[0] + b"\0" * ccache.MAX_CACHE_BYTES)


@pytest.mark.parametrize(
    ("principal", "text"),
    [
        (Principal(b"R", (b"a", b"b")), "a/b@R"),
        (Principal(b"R", (b"a/b",)), "a\\/b@R"),
        (Principal(b"R", (b"a@b",)), "a\\@b@R"),
        (Principal(b"", (b"host", b"x")), "host/x@"),
    ],
)
def test_names_are_written_so_that_no_two_look_alike(principal: Principal, text: str) -> None:
    assert str(principal) == text


def _only_defects(data: bytes) -> None:
    entries = _entries_or_code(data)
    assert entries == "kerberos.ccache_malformed" or all(isinstance(entry, Credential) for entry in entries)


def _entries_or_code(data: bytes) -> tuple[Credential, ...] | str:
    try:
        return ccache.parse(data)[1]
    except Defect as error:
        return error.code
