"""Lists for people: pages of runs, bundles and audit entries, each by an index, none with a grant parsed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Column, Connection, Select, func, insert, literal, select, tuple_

from bridge.audit.log import Entry
from bridge.db.auditlog import entry_of
from bridge.db.schema import audit, bundles, run_cancels, runs
from bridge.listing import BundleRow, Cancel, EntryFilter, RunFilter, RunnerRow, RunRow
from bridge.model import RunId, RunState

_ROW: Final = select(
    runs.c.run_id,
    runs.c.issuer,
    runs.c.job_id,
    runs.c.user_id,
    runs.c.project_id,
    runs.c.runner_id,
    runs.c.cluster,
    runs.c.account,
    runs.c.uid,
    runs.c.state,
    runs.c.attempt,
    runs.c.created_at,
    runs.c.not_after,
)
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ListViews:
    """Reads lists on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list_runs(self, wanted: RunFilter, before: tuple[datetime, RunId] | None, limit: int) -> Sequence[RunRow]:
        """See ``View.list_runs``."""
        query = _filtered(_ROW, wanted)
        if before is not None:
            place = (runs.c.created_at, runs.c.run_id)
            query = query.where(tuple_(*place) < _values(before, *place))
        query = query.order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(limit)
        return [_run_row(row) for row in self._connection.execute(query).mappings()]

    def list_runners(self, after: tuple[str, int] | None, limit: int) -> Sequence[RunnerRow]:
        """See ``View.list_runners``."""
        query = (
            select(
                runs.c.issuer,
                runs.c.runner_id,
                func.count().label("runs"),
                func.min(runs.c.created_at).label("first_run_at"),
                func.max(runs.c.created_at).label("last_run_at"),
            )
            .where(runs.c.runner_id.is_not(None))
            .group_by(runs.c.issuer, runs.c.runner_id)
            .order_by(runs.c.issuer, runs.c.runner_id)
            .limit(limit)
        )
        if after is not None:
            place = (runs.c.issuer, runs.c.runner_id)
            query = query.where(tuple_(*place) > _values(after, *place))
        return [RunnerRow(**row) for row in self._connection.execute(query).mappings()]

    def list_bundles(self, before: tuple[datetime, str] | None, limit: int) -> Sequence[BundleRow]:
        """See ``View.list_bundles``."""
        query = select(bundles.c.content_hash, bundles.c.size, bundles.c.created_at, bundles.c.created_by)
        if before is not None:
            place = (bundles.c.created_at, bundles.c.content_hash)
            query = query.where(tuple_(*place) < _values(before, *place))
        query = query.order_by(bundles.c.created_at.desc(), bundles.c.content_hash.desc()).limit(limit)
        return [BundleRow(**row) for row in self._connection.execute(query).mappings()]

    def find_entries(self, wanted: EntryFilter, first: int, last: int, limit: int, *, newest: bool) -> Sequence[Entry]:
        """See ``View.find_entries``."""
        query = select(audit).where(audit.c.seq.between(first, last))
        for name in ("type", "phase", "run_id", "job_id", "reference"):
            value = getattr(wanted, name)
            if value is not None:
                query = query.where(audit.c[name] == value)
        query = query.order_by(audit.c.seq.desc() if newest else audit.c.seq).limit(limit)
        return [entry_of(row) for row in self._connection.execute(query)]

    def first_seq_since(self, moment: datetime) -> int:
        """See ``View.first_seq_since``; the log's times only go up by and large, so a search by halves finds it."""
        wanted = (moment - _EPOCH) // _MILLISECOND
        low, high = 0, int(self._connection.execute(select(func.coalesce(func.max(audit.c.seq) + 1, 0))).scalar_one())
        while low < high:
            middle = (low + high) // 2
            at = self._connection.execute(select(audit.c.ts).where(audit.c.seq == middle)).scalar_one()
            low, high = (middle + 1, high) if at < wanted else (low, middle)
        return low

    def cancels(self, run_id: RunId | None = None) -> Sequence[Cancel]:
        """See ``View.cancels``."""
        query = select(run_cancels)
        if run_id is None:
            query = query.join(runs, runs.c.run_id == run_cancels.c.run_id).where(runs.c.state != RunState.ENDED)
        else:
            query = query.where(run_cancels.c.run_id == run_id)
        return [Cancel(**row) for row in self._connection.execute(query).mappings()]


class CancelChanges:
    """Takes cancels down on one connection, inside a writing transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._views = ListViews(connection)

    def cancel_run(self, cancel: Cancel) -> Cancel:
        """See ``Tx.cancel_run``."""
        for known in self._views.cancels(cancel.run_id):
            return known
        self._connection.execute(insert(run_cancels), dataclasses.asdict(cancel))
        return cancel


def _values(values: tuple[Any, ...], *columns: Column[Any]) -> Any:
    """Values as a row to compare with (SQL row values), each of its column's type."""
    return tuple_(*(literal(value, column.type) for value, column in zip(values, columns, strict=True)))


def _filtered(query: Select[Any], wanted: RunFilter) -> Select[Any]:
    for name in ("state", "account", "cluster", "issuer", "user_id", "project_id"):
        value = getattr(wanted, name)
        if value is not None:
            query = query.where(runs.c[name] == value)
    return query if wanted.since is None else query.where(runs.c.created_at >= wanted.since)


def _run_row(row: Any) -> RunRow:
    return RunRow(**{**row, "state": RunState(row["state"])})
