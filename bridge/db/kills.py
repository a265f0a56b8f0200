"""Kill switches in their table; they are lifted, never deleted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from bridge.db import refusals
from bridge.db.schema import kill_switches
from bridge.model import KillScope, KillSwitch


class KillViews:
    """Reads kill switches on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def kill_switches(self, *, active: bool = True) -> Sequence[KillSwitch]:
        """See ``View.kill_switches``."""
        query = select(kill_switches).order_by(kill_switches.c.created_at, kill_switches.c.switch_id)
        if active:
            query = query.where(kill_switches.c.lifted_at.is_(None))
        return [_switch_of(row) for row in self._connection.execute(query)]


class KillChanges:
    """Changes kill switches on one connection, inside a writing transaction."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self._views = KillViews(connection)

    def kill(self, switch: KillSwitch) -> KillSwitch:
        """See ``Tx.kill``."""
        for known in self._views.kill_switches():
            if _target(known) == _target(switch):
                return known
        self._connection.execute(insert(kill_switches), dataclasses.asdict(switch))
        return switch

    def lift(self, switch_id: str, actor: str) -> KillSwitch:
        """See ``Tx.lift``."""
        query = select(kill_switches).where(kill_switches.c.switch_id == switch_id)
        row = self._connection.execute(query).one_or_none()
        if row is None:
            raise refusals.switch_unknown(switch_id)
        if row.lifted_at is not None:
            raise refusals.switch_lifted(switch_id)
        self._connection.execute(
            update(kill_switches)
            .where(kill_switches.c.switch_id == switch_id)
            .values(lifted_at=self._now, lifted_by=actor)
        )
        return dataclasses.replace(_switch_of(row), lifted_at=self._now, lifted_by=actor)


def _target(switch: KillSwitch) -> tuple[object, ...]:
    return switch.scope, switch.issuer, switch.number, switch.account


def _switch_of(row: Any) -> KillSwitch:
    return KillSwitch(
        switch_id=row.switch_id,
        scope=KillScope(row.scope),
        issuer=row.issuer,
        number=row.number,
        account=row.account,
        reason=row.reason,
        actor=row.actor,
        created_at=row.created_at,
        lifted_at=row.lifted_at,
        lifted_by=row.lifted_by,
    )
