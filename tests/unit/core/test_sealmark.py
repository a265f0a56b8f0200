"""The mark that a broker keeps outside of the database: what is no mark is a defect, and it never goes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sealed_site import Site, throw

from bridge.errors import Defect, Outage
from bridge.register import RegisterHead
from bridge.sealmark import RevisionMark


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A migrated database."""
    with closing(Site(tmp_path)) as site:
        yield site


def _mark(path: Path, content: bytes, mode: int = 0o600) -> RevisionMark:
    path.write_bytes(content)
    path.chmod(mode)
    return RevisionMark(path)


SEAL = b"s" * 32


GOOD = b"7 " + SEAL.hex().encode() + b"\n"


@pytest.mark.threat("T49")
@pytest.mark.parametrize(
    "content",
    [b"", b"7", b"7\n", b" " + GOOD, GOOD[:-1], GOOD + b"\n", b"-" + GOOD, b"+" + GOOD, b"0x" + GOOD, b"1_" + GOOD,
     b"9" * 19 + GOOD, GOOD.replace(b"73", b"7g", 1), b"\xff" * 70, b"\xd9\xa7" + GOOD[1:], GOOD * 1000, b"\0" * 70],
)  # fmt: skip
def test_a_mark_that_is_none_is_a_defect_and_not_a_new_beginning(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Defect, match=r"register\.mark"):
        _mark(tmp_path / "mark", content)


@pytest.mark.threat("T49")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_mark_that_others_can_write_is_not_believed(tmp_path: Path, mode: int) -> None:
    with pytest.raises(Defect, match=r"register\.mark"):
        _mark(tmp_path / "mark", GOOD, mode)


def test_a_mark_that_can_not_be_opened_is_a_defect(tmp_path: Path) -> None:
    (tmp_path / "mark").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "mark", tmp_path / "loop", tmp_path / "loop" / "mark"):
        with pytest.raises(Defect, match=r"register\.mark"):
            RevisionMark(path)


def test_a_mark_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    mark = RevisionMark(tmp_path / "mark")
    assert mark.revision == 0
    mark.reach(RegisterHead(0, b""))
    assert list(tmp_path.iterdir()) == []
    mark.reach(RegisterHead(7, SEAL))
    assert [one.name for one in tmp_path.iterdir()] == ["mark"]
    assert (tmp_path / "mark").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "mark").read_bytes() == GOOD
    assert RevisionMark(tmp_path / "mark").revision == 7


@pytest.mark.threat("T49")
@pytest.mark.parametrize("head", [RegisterHead(6, SEAL), RegisterHead(0, b""), RegisterHead(7, b"t" * 32)])
def test_a_mark_never_goes_back(tmp_path: Path, head: RegisterHead) -> None:
    mark = _mark(tmp_path / "mark", GOOD)
    mark.reach(RegisterHead(7, SEAL))
    with pytest.raises(Defect, match=r"register\.rolled_back"):
        mark.reach(head)
    assert (tmp_path / "mark").read_bytes() == GOOD


def test_a_change_that_was_stored_counts_though_the_mark_can_not_be_written(site: Site) -> None:
    broker = site.broker("missing/a")
    with pytest.raises(Outage, match=r"register\.mark_unwritten"):
        throw(broker)
    assert [one.number for one in broker.read().switches_in_force] == [888]
    assert broker.read() == site.broker("b").read()


def test_a_mark_that_can_not_be_written_is_an_outage_until_it_can(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    mark = RevisionMark(directory / "mark")
    directory.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(Outage, match=r"register\.mark_unwritten") as caught:
            mark.reach(RegisterHead(7, SEAL))
        assert caught.value.retryable
    (tmp_path / "elsewhere").rename(directory)
    mark.reach(RegisterHead(7, SEAL))
    assert (directory / "mark").read_bytes() == GOOD
