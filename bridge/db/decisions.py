"""Kept decisions in their table; they can be dropped after a time, which leaves the audit log whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, insert, select

from bridge.db.schema import decisions
from bridge.decisions import KeptDecision

_FIELDS = tuple(one.name for one in dataclasses.fields(KeptDecision))

_FORGET = delete(decisions).where(decisions.c.reference == bindparam("reference"))


class DecisionViews:
    """Reads kept decisions on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def decision(self, reference: str) -> KeptDecision | None:
        """See ``View.decision``."""
        query = select(*(decisions.c[name] for name in _FIELDS)).where(decisions.c.reference == reference)
        row = self._connection.execute(query).one_or_none()
        return None if row is None else KeptDecision(*row)

    def decisions(self, since: datetime, most: int) -> Sequence[KeptDecision]:
        """See ``View.decisions``."""
        query = select(*(decisions.c[name] for name in _FIELDS)).where(decisions.c.at >= since)
        rows = self._connection.execute(query.order_by(decisions.c.at.desc(), decisions.c.reference).limit(most))
        return [KeptDecision(*row) for row in rows]


class DecisionChanges:
    """Keeps decisions on one connection, inside a writing transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def keep_decision(self, decision: KeptDecision) -> None:
        """See ``Tx.keep_decision``."""
        self._connection.execute(_FORGET, {"reference": decision.reference})
        self._connection.execute(insert(decisions), {name: getattr(decision, name) for name in _FIELDS})
