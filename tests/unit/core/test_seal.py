"""The broker's seal: any change of what was sealed is found, and the key is the broker's alone."""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.audit.ledger import SealedGrant
from bridge.errors import Defect
from bridge.model import RunId
from bridge.seal import KEY_BYTES, GrantSeal, Seal, load_or_make_key

KEY = bytes(range(32))
END = datetime(2026, 11, 20, 13, tzinfo=UTC)
SEALED = SealedGrant(RunId("a" * 26), 1, b'{"account":"alice"}', b"")


def _sealed(seal: GrantSeal) -> SealedGrant:
    return replace(SEALED, seal=seal.maker(END)(SEALED.run_id, SEALED.attempt, SEALED.grant_json))


def test_what_was_sealed_passes() -> None:
    seal = GrantSeal(Seal(KEY))
    seal.check(_sealed(seal), END)


@pytest.mark.threat("T21")
@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": RunId("b" * 26)},
        {"attempt": 2},
        {"grant_json": b'{"account":"bobby"}'},
        {"grant_json": b'{"account":"alice"} '},
        {"seal": b""},
        {"seal": b"\0" * 32},
    ],
    ids=["run", "attempt", "account", "a space", "no seal", "zeros"],
)
def test_a_changed_part_is_found(changes: dict[str, object]) -> None:
    seal = GrantSeal(Seal(KEY))
    with pytest.raises(Defect, match=r"seal\.broken"):
        seal.check(replace(_sealed(seal), **changes), END)  # type: ignore[arg-type]


@pytest.mark.threat("T21")
def test_a_later_end_and_another_key_are_found() -> None:
    seal = GrantSeal(Seal(KEY))
    with pytest.raises(Defect, match=r"seal\.broken"):
        seal.check(_sealed(seal), END + timedelta(seconds=1))
    with pytest.raises(Defect, match=r"seal\.broken"):
        GrantSeal(Seal(KEY[::-1])).check(_sealed(seal), END)


@pytest.mark.threat("T21")
@given(st.lists(st.binary(max_size=6), max_size=4), st.lists(st.binary(max_size=6), max_size=4))
def test_boundaries_between_parts_are_sealed_too(one: list[bytes], two: list[bytes]) -> None:
    seal = Seal(KEY)
    assert (seal.make(*one) == seal.make(*two)) == (one == two)


def test_the_key_file_is_made_once_and_is_ours_alone(tmp_path: Path) -> None:
    path = tmp_path / "seal.key"
    previous = os.umask(0)
    try:
        key = load_or_make_key(path)
    finally:
        os.umask(previous)

    assert len(key) == KEY_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_make_key(path) == key
    assert [one.name for one in tmp_path.iterdir()] == ["seal.key"]


def test_brokers_that_start_together_have_one_key(tmp_path: Path) -> None:
    path, keys, gate = tmp_path / "seal.key", [], threading.Barrier(8)

    def start() -> None:
        gate.wait()
        keys.append(load_or_make_key(path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
    assert len(keys) == 8


@pytest.mark.threat("T21")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_can_read_is_not_used(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "seal.key"
    load_or_make_key(path)
    path.chmod(mode)
    with pytest.raises(Defect, match=r"seal\.key_exposed"):
        load_or_make_key(path)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_another_length_is_a_defect(tmp_path: Path, size: int) -> None:
    path = tmp_path / "seal.key"
    path.write_bytes(b"k" * size)
    path.chmod(0o600)
    with pytest.raises(Defect, match=r"seal\.key"):
        Seal(load_or_make_key(path))
