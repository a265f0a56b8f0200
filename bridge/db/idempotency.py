"""Answers that are kept for requests which come again under the same key."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from bridge.audit.ledger import Claim
from bridge.db.schema import idempotency

LIFE: Final = timedelta(hours=24)


class IdempotencyChanges:
    """Claims keys and keeps answers on one connection, inside a writing transaction."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now

    def claim(self, principal: str, key: str, request_sha256: str) -> Claim | bytes:
        """See ``Tx.claim_key``."""
        self._connection.execute(delete(idempotency).where(idempotency.c.expires_at <= self._now))
        mine = (idempotency.c.principal == principal) & (idempotency.c.key == key)
        known = self._connection.execute(
            select(idempotency.c.request_sha256, idempotency.c.answer).where(mine)
        ).one_or_none()
        if known is None:
            row = {"principal": principal, "key": key, "request_sha256": request_sha256}
            self._connection.execute(insert(idempotency), row | {"answer": None, "expires_at": self._now + LIFE})
            return Claim.NEW
        if known.request_sha256 != request_sha256:
            return Claim.OTHER
        return Claim.BUSY if known.answer is None else bytes(known.answer)

    def settle(self, principal: str, key: str, answer: bytes | None) -> None:
        """See ``Tx.settle_key``."""
        mine = (idempotency.c.principal == principal) & (idempotency.c.key == key)
        if answer is None:
            self._connection.execute(delete(idempotency).where(mine))
        else:
            self._connection.execute(update(idempotency).where(mine).values(answer=answer))
