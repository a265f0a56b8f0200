"""The audit log in its tables: leaves once written, and one row with the tree so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, insert, or_, select, update

from bridge.audit.log import Entry, Head, Index, Writer
from bridge.audit.merkle import CompactRange
from bridge.audit.record import Record
from bridge.db.schema import audit, audit_head
from bridge.errors import Defect
from bridge.model import RunId

_BATCH: Final = 1000
_HEAD = select(audit_head.c.size, audit_head.c.compact_range, audit_head.c.root).where(audit_head.c.id == 1)
_SET_HEAD = update(audit_head).where(audit_head.c.id == 1)


class AuditViews:
    """Reads the audit log on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def head(self) -> Head:
        """The log's head; raises Defect ``audit.head_malformed`` if it is not a tree's."""
        row = self._connection.execute(_HEAD).one()
        return Head(_tree(row), row.root)

    def entries(self, after: int = -1) -> Iterator[Entry]:
        """The entries with seq > ``after``, a thousand at a time."""
        while True:
            query = select(audit).where(audit.c.seq > after).order_by(audit.c.seq).limit(_BATCH)
            rows = self._connection.execute(query).all()
            yield from map(entry_of, rows)
            if len(rows) < _BATCH:
                return
            after = rows[-1].seq

    def timeline(
        self, *, run_id: RunId | None = None, job_id: int | None = None, reference: str | None = None
    ) -> Sequence[Entry]:
        """See ``View.timeline``."""
        wanted = []
        if run_id is not None:
            wanted.append(audit.c.run_id == run_id)
        if reference is not None:
            wanted.append(audit.c.reference == reference)
        if job_id is not None:
            of_job = select(audit.c.run_id).where(audit.c.job_id == job_id, audit.c.run_id.is_not(None))
            wanted += [audit.c.job_id == job_id, audit.c.run_id.in_(of_job)]
        if not wanted:
            return []
        return [
            entry_of(row) for row in self._connection.execute(select(audit).where(or_(*wanted)).order_by(audit.c.seq))
        ]


class AuditAppends:
    """Appends to the audit log on one connection; the head is written once, by ``flush``, before the commit."""

    def __init__(self, connection: Connection, writer: Writer, now: datetime) -> None:
        self._connection = connection
        self._writer = writer
        self._now = now
        self._tree: CompactRange | None = None

    def lock(self) -> None:
        """Wait until no other transaction writes. SQLite has done so with BEGIN IMMEDIATE."""
        if self._connection.dialect.name == "postgresql":
            row = self._connection.execute(_HEAD.with_for_update()).one()
            self._tree = _tree(row)

    def append(self, record: Record) -> int:
        """See ``Tx.append``."""
        tree = AuditViews(self._connection).head().tree if self._tree is None else self._tree
        entry, self._tree = self._writer.append(tree, record, self._now)
        self._connection.execute(insert(audit), _values(entry))
        return entry.seq

    def flush(self) -> None:
        """Write the head, if something was appended."""
        if self._tree is not None:
            root, subtrees = self._tree.root(), self._tree.encode()
            self._connection.execute(_SET_HEAD, {"size": self._tree.size, "compact_range": subtrees, "root": root})


def _tree(row: Any) -> CompactRange:
    try:
        return CompactRange.decode(row.size, row.compact_range)
    except ValueError as error:
        raise Defect(
            "audit.head_malformed",
            "The head of the audit log is not that of any log.",
            "Stop the bridge and have its database examined: somebody or something has changed it.",
            reason=str(error),
        ) from error


def _values(entry: Entry) -> dict[str, Any]:
    index = entry.index
    return {
        "seq": entry.seq,
        "ts": index.ts,
        "type": index.type,
        "phase": index.phase,
        "reference": index.reference,
        "run_id": index.run_id,
        "job_id": index.job_id,
        "leaf": entry.leaf,
        "leaf_hash": entry.leaf_hash,
        "root": entry.root,
    }


def entry_of(row: Any) -> Entry:
    """The entry in a row of the ``audit`` table."""
    index = Index(row.ts, row.type, row.phase, row.reference, row.run_id, row.job_id)
    return Entry(row.seq, row.leaf, row.leaf_hash, row.root, index)
