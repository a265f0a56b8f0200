"""The frames: whatever pieces they come in, they come out whole; anything else is an error and never a crash."""

from __future__ import annotations

import contextlib
import io
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import wire

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
frames = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=8), values, max_size=4), st.binary(max_size=300)), max_size=6
)


@settings(max_examples=150, deadline=None, database=None)
@given(frames, st.lists(st.integers(1, 40), min_size=1, max_size=50))
def test_frames_in_pieces_of_any_size_come_out_whole(
    sent: list[tuple[dict[str, Any], bytes]], sizes: list[int]
) -> None:
    stream = b"".join(wire.encode(header, data) for header, data in sent)
    decoder, got, at, turn = wire.Decoder(), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        got += list(decoder.feed(stream[at : at + size]))
        at, turn = at + size, turn + 1
    assert got == sent
    assert decoder.idle
    reader = io.BytesIO(stream)
    assert [wire.read_frame(reader) for _ in sent] == sent
    assert wire.read_frame(reader) is None


@settings(max_examples=300, deadline=None, database=None)
@given(st.binary(max_size=200))
def test_garbage_is_frames_or_an_error(garbage: bytes) -> None:
    with contextlib.suppress(wire.BrokenFrame):
        list(wire.Decoder().feed(garbage))
    with contextlib.suppress(wire.BrokenFrame):
        wire.read_frame(io.BytesIO(garbage))


@settings(max_examples=150, deadline=None, database=None)
@given(st.dictionaries(st.text(max_size=8), values, max_size=4), st.binary(max_size=50), st.data())
def test_a_cut_frame_is_noticed(header: dict[str, Any], data: bytes, draw: st.DataObject) -> None:
    frame = wire.encode(header, data)
    cut = draw.draw(st.integers(1, len(frame) - 1))
    decoder = wire.Decoder()
    assert list(decoder.feed(frame[:cut])) == []
    assert not decoder.idle
    with pytest.raises(wire.BrokenFrame):
        wire.read_frame(io.BytesIO(frame[:cut]))
    assert list(decoder.feed(frame[cut:])) == [(header, data)]


@pytest.mark.parametrize(
    "head", [b"", b"[]", b"1", b"null", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 50_000, b"{}x"], ids=range(9)
)
def test_a_header_that_is_no_object_is_an_error(head: bytes) -> None:
    with pytest.raises(wire.BrokenFrame):
        list(wire.Decoder().feed(struct.pack(">II", len(head), 0) + head))


@pytest.mark.parametrize(
    "lengths", [(wire.MAX_HEADER_BYTES + 1, 0), (0, wire.MAX_DATA_BYTES + 1), (2**32 - 1, 2**32 - 1)]
)
def test_a_frame_over_the_limit_is_refused_before_it_is_read(lengths: tuple[int, int]) -> None:
    head = struct.pack(">II", *lengths)
    with pytest.raises(wire.BrokenFrame):
        list(wire.Decoder().feed(head))
    with pytest.raises(wire.BrokenFrame):
        wire.read_frame(io.BytesIO(head))


@pytest.mark.parametrize(
    ("header", "data"), [({"x": "a" * wire.MAX_HEADER_BYTES}, b""), ({}, bytes(wire.MAX_DATA_BYTES + 1))], ids=range(2)
)
def test_a_frame_over_the_limit_is_never_made(header: dict[str, Any], data: bytes) -> None:
    with pytest.raises(wire.BrokenFrame):
        wire.encode(header, data)


STAGE_NAMES = {
    "build_script": True, "step_script": True, "step_release": True, "step_a_1": True, "after_script": True,
    "prepare_script": False, "get_sources": False, "cleanup_file_variables": False,
}  # fmt: skip


@pytest.mark.parametrize(("name", "is_user"), STAGE_NAMES.items())
def test_the_runners_stages_are_known(name: str, is_user: bool) -> None:
    assert wire.is_stage(name)
    assert wire.is_user_stage(name) is is_user


@pytest.mark.parametrize(
    "name",
    ["", "step_", "step_a-b", "step_a/b", "step_é", "step_" + "a" * 65, "prepare", "BUILD_SCRIPT", " build_script"],
)
def test_other_stages_are_not(name: str) -> None:
    assert not wire.is_stage(name)
