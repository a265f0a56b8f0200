"""The append-only log over records: numbers them without gaps, hashes them, and finds the first one that was changed.

One structure only, the Merkle tree of ``merkle``. Beside each leaf stands the root of the tree that it completed, so
that a change can be named by its number and not only noticed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bridge.audit.merkle import CompactRange, leaf_hash
from bridge.audit.record import Record, leaf, members

_BOOT_ID_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One record in the log, as it is stored."""

    seq: int
    """The leaf's index, from 0."""
    leaf: bytes
    """Written once and never made again: verification hashes these bytes."""
    leaf_hash: bytes
    root: bytes
    """Root of the tree of the leaves 0..seq."""
    index: Index


@dataclass(frozen=True, slots=True)
class Index:
    """Fields of the leaf that the database repeats beside it, to search by; ``verify`` holds them against the leaf."""

    ts: int
    """Milliseconds since 1970, UTC."""
    type: str
    phase: str
    reference: str
    run_id: str | None
    job_id: int | None


@dataclass(frozen=True, slots=True)
class Head:
    """The state of the log: the tree so far and its root."""

    tree: CompactRange
    root: bytes


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: the name of the process, and a number for its present life."""

    instance: str
    boot_id: str

    @classmethod
    def new(cls, instance: str) -> Writer:
        """The writer for a process that has just started, e.g. ``broker@bridge.example``."""
        return cls(instance, secrets.token_hex(_BOOT_ID_BYTES))

    def append(self, tree: CompactRange, record: Record, moment: datetime) -> tuple[Entry, CompactRange]:
        """``record`` as the next entry of the log whose tree is ``tree``, and the tree with it; raises Defect."""
        written = members(record, tree.size, moment, self.instance, self.boot_id)
        data = leaf(written)
        hashed = leaf_hash(data)
        grown = tree.append(hashed)
        return Entry(tree.size, data, hashed, grown.root(), index_of(written)), grown


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``verify`` found."""

    size: int
    """Entries that were read."""
    root: bytes
    """Root over the entries that were read."""
    bad_seq: int | None
    """The first entry that is not what was written; None if all are."""
    reason: str | None

    @property
    def ok(self) -> bool:
        """Whether the log is whole and unchanged."""
        return self.reason is None


def index_of(written: dict[str, Any]) -> Index:
    """The searchable fields of a leaf; raises KeyError or TypeError for a leaf that we never wrote."""
    actor = written.get("actor", {})
    return Index(
        ts=written["ts"],
        type=written["type"],
        phase=written["phase"],
        reference=written["reference"],
        run_id=written.get("run_id"),
        job_id=actor.get("job_id"),
    )


def verify(entries: Callable[[], Iterable[Entry]], head: Head) -> Verdict:
    """Compute everything anew from the stored bytes, and hold it against what is stored.

    ``entries`` gives the log in order of seq, from 0, and may be asked for it twice: the roots of all the smaller trees
    cost more than the tree itself, and are computed only to name the culprit of a root that is wrong.
    """
    tree = CompactRange()
    for entry in entries():
        reason = _complaint(entry, tree.size)
        if reason is not None:
            return Verdict(tree.size, tree.root(), tree.size, reason)
        tree = tree.append(entry.leaf_hash)
    if tree.root() == head.root == head.tree.root() and tree.size == head.tree.size:
        return Verdict(tree.size, tree.root(), None, None)
    return _culprit(entries(), head)


def _culprit(entries: Iterable[Entry], head: Head) -> Verdict:
    """The first entry at which the stored roots and the leaves part ways, or the place where the log was cut."""
    tree = CompactRange()
    for entry in entries:
        tree = tree.append(entry.leaf_hash)
        if tree.root() != entry.root:
            return Verdict(tree.size, tree.root(), entry.seq, "the tree up to here has another root")
    if tree.size < head.tree.size:
        return Verdict(tree.size, tree.root(), tree.size, f"entries are missing: the head says {head.tree.size}")
    return Verdict(tree.size, tree.root(), min(tree.size, head.tree.size), "the head is not that of these entries")


def _complaint(entry: Entry, expected_seq: int) -> str | None:
    if entry.seq != expected_seq:
        return f"entry {expected_seq} is missing"
    if leaf_hash(entry.leaf) != entry.leaf_hash:
        return "the leaf does not have the stored hash"
    try:
        written = json.loads(entry.leaf)
        if written["seq"] != entry.seq:
            return "the leaf has another number"
        if index_of(written) != entry.index:
            return "the searchable fields are not those of the leaf"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "the leaf is not a record"
    return None
