"""Records: canonical, bounded, without anything that could be misread (T45)."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from bridge.audit.record import (
    MAX_LEAF_BYTES,
    MAX_TEXT,
    Actor,
    Basis,
    Phase,
    Record,
    RecordType,
    Target,
    Tickets,
    leaf,
    members,
    plain_text,
)
from bridge.errors import Defect
from bridge.model import RunId

NOW = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)


def written(record: Record, seq: int = 7) -> bytes:
    """The leaf of a record."""
    return leaf(members(record, seq, NOW, "broker@bridge", "ab12"))


def record(**changes: Any) -> Record:
    """A record with every field in it."""
    fields: dict[str, Any] = {
        "run_id": RunId("r" * 26),
        "invocation": "0" * 32,
        "stage": "build_script",
        "actor": Actor("https://gitlab.realm.test", 101, 7, 7, 31, 301, 1, "jti-00001"),
        "target": Target("pocket", "alice", 20001, "alice@REALM.TEST", "node1"),
        "basis": Basis("0" * 64, ("people",), ("standard",)),
        "tickets": Tickets(("host/login.realm.test",), NOW, "1" * 64, ("A" * 64,)),
        "slurm_job_id": 4711,
        "exit_code": 0,
        "request_sha256": "2" * 64,
        "code": "x.y",
        "detail": {"words": "and numbers", "number": -1, "flag": False, "several": ("a", "b")},
    }
    return Record(RecordType.STAGE, Phase.OK, "ref-1", **(fields | changes))


def test_a_leaf_holds_every_field_and_is_canonical() -> None:
    data = written(record())
    said = json.loads(data)
    assert data == rfc8785.dumps(said)
    assert said["v"] == 1
    assert (said["seq"], said["ts"]) == (7, 1795176000123)
    assert said["actor"]["user_id"] == 101
    assert said["tickets"]["end"] == "2026-11-20T12:00:00Z"
    assert said["detail"] == {"words": "and numbers", "number": -1, "flag": False, "several": ["a", "b"]}


def test_what_is_not_known_is_left_out() -> None:
    said = json.loads(written(Record(RecordType.SERVICE, Phase.EVENT, "ref-1", target=Target(cluster="pocket"))))
    assert set(said) == {"v", "seq", "ts", "boot_id", "instance", "type", "phase", "reference", "target"}
    assert said["target"] == {"cluster": "pocket"}


HOSTILE = [
    '\n{"type":"admission"}',
    "\x1b[2J\x1b]0;x\x07",
    "\u202egnp.exe",
    "\u2028\u2029\x85",
    "\x00",
    "\ud800",
    "\u200b\ufeff",
    "\U000e0041",
    "\\u{a}",
    "x" * 1_000_000,
    "\x1b" * 1_000_000,
    "ß" * 1_000_000,
]


@pytest.mark.threat("T45")
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:12]))
def test_one_record_in_is_one_harmless_line_out(text: str) -> None:
    actor = Actor(text, 101, 7, 7, 31, 301, 1, text)
    detail = {"a": text, "b": text, "c": text, "d": text}
    hostile = record(run_id=RunId(text), stage=text, actor=actor, code=text, detail=detail)
    data = written(hostile)
    assert len(data) <= MAX_LEAF_BYTES
    assert data.decode("utf-8").isprintable()
    assert json.loads(data)["actor"]["user_id"] == 101


@pytest.mark.threat("T45")
@given(st.text(st.characters(), max_size=40), st.text(st.characters(), max_size=40))
def test_different_short_texts_stay_different(one: str, other: str) -> None:
    assert (plain_text(one) == plain_text(other)) is (one == other)


@pytest.mark.threat("T45")
def test_a_text_that_looks_escaped_is_not_taken_for_one_that_was() -> None:
    assert plain_text("\n") == "\\u{a}"
    assert plain_text("\\u{a}") == "\\\\u{a}"


@given(st.text(st.characters(), max_size=2000))
def test_every_text_becomes_short_and_printable(text: str) -> None:
    plain = plain_text(text)
    assert plain.isprintable()
    assert len(plain.encode("utf-8")) <= MAX_TEXT


TEXTS = st.text(st.characters(), max_size=30)


@given(st.dictionaries(st.from_regex(r"\A[a-z][a-z0-9_]{0,9}\Z"), TEXTS | st.integers(-(2**53) + 1, 2**53 - 1)))
def test_every_leaf_is_what_rfc_8785_says(detail: dict[str, str | int]) -> None:
    data = written(record(detail=dict(list(detail.items())[:8])))
    assert data == rfc8785.dumps(json.loads(data))


@pytest.mark.parametrize(
    "detail",
    [{"a": 1.5}, {"a": 2**53}, {"a": b"x"}, {"a": {1, 2}}, {"Ä": 1}, {"a b": 1}, {"a": {"b": 0.0}}],
    ids=str,
)
def test_other_types_and_names_are_our_own_defect(detail: dict[str, Any]) -> None:
    with pytest.raises(Defect) as caught:
        written(record(detail=detail))
    assert caught.value.code == "audit.record_malformed"


def test_a_record_that_is_too_large_is_our_own_defect() -> None:
    with pytest.raises(Defect):
        written(record(detail={f"d{number}": "x" * MAX_TEXT for number in range(20)}))
