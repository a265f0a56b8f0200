"""Runs and the tokens that opened them, in their tables."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, bindparam, delete, insert, select, update

from bridge import grants
from bridge.audit.ledger import Opened, Opening, SealedGrant, Session
from bridge.db import refusals
from bridge.db.schema import runs, stages, token_uses
from bridge.model import Identity, Run, RunId, RunState
from bridge.oidc.replay import KEEP_AFTER_EXPIRY, Presented, Used, holds_user_code, next_attempt

_RUN_ID_BYTES: Final = 16

_RUN = select(
    runs.c.run_id, runs.c.grant_json, runs.c.state, runs.c.attempt, runs.c.created_at, runs.c.not_after
).select_from(runs)
_SESSION = select(runs.c.run_id, runs.c.state, runs.c.session_hash).where(runs.c.run_id == bindparam("run_id"))
_SEALED = select(runs.c.run_id, runs.c.attempt, runs.c.grant_json, runs.c.seal).where(
    runs.c.run_id == bindparam("run_id")
)
_USED = select(
    runs.c.run_id, token_uses.c.jti, runs.c.job_id, token_uses.c.job_token_hash, runs.c.attempt
).outerjoin_from(runs, token_uses, token_uses.c.run_id == runs.c.run_id)
"""The token is null when it was forgotten long after it expired; its job stays taken."""
_USED_TOKEN = _USED.where(token_uses.c.issuer == bindparam("issuer"), token_uses.c.jti == bindparam("jti"))
_USED_JOB = _USED.where(runs.c.issuer == bindparam("issuer"), runs.c.job_id == bindparam("job_id"))


class RunViews:
    """Reads runs on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, run_id: RunId) -> Run:
        """The run; raises NotFound ``run.unknown``."""
        return run_of(self._one(_RUN.where(runs.c.run_id == run_id), run_id))

    def session(self, run_id: RunId) -> Session:
        """The run's session; raises NotFound ``run.unknown``."""
        row = self._one(_SESSION, run_id)
        return Session(RunId(row.run_id), RunState(row.state), row.session_hash)

    def sealed_grant(self, run_id: RunId) -> SealedGrant:
        """The run's grant as it was sealed; raises NotFound ``run.unknown``."""
        row = self._one(_SEALED, run_id)
        return SealedGrant(RunId(row.run_id), row.attempt, row.grant_json, row.seal)

    def live_runs(self) -> Sequence[Run]:
        """Every run that has not ended, oldest first."""
        query = _RUN.where(runs.c.state != RunState.ENDED).order_by(runs.c.created_at, runs.c.run_id)
        return [run_of(row) for row in self._connection.execute(query)]

    def _one(self, query: Select[Any], run_id: RunId) -> Any:
        row = self._connection.execute(query, {"run_id": run_id}).one_or_none()
        if row is None:
            raise refusals.run_unknown(run_id)
        return row


class RunChanges:
    """Changes runs on one connection, inside a writing transaction."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self._views = RunViews(connection)

    def open_run(self, opening: Opening) -> Opened:
        """See ``Tx.open_run``."""
        identity = opening.grant.identity
        used = self._used(identity)
        presented = Presented(identity.jti, identity.job_id, opening.job_token_hash)
        attempt = next_attempt(presented, used)
        run_id = _new_run_id() if used is None else used.run_id
        grant_json = grants.to_json(opening.grant)
        values = {
            "cluster": opening.grant.cluster.name,
            "account": opening.grant.account.name,
            "uid": opening.grant.account.uid,
            "state": RunState.ADMITTED,
            "attempt": attempt,
            "not_after": opening.not_after,
            "grant_json": grant_json,
            "seal": opening.seal(run_id, attempt, grant_json),
            "session_hash": opening.session_hash,
        }
        if used is None:
            self._insert(run_id, identity, opening.job_token_hash, values)
        else:
            self._connection.execute(update(runs).where(runs.c.run_id == run_id), values)
        return Opened(run_id, attempt, grant_json)

    def update_run_state(self, run_id: RunId, from_states: Collection[RunState], to_state: RunState) -> Run:
        """See ``Tx.update_run_state``."""
        changed = self._connection.execute(
            update(runs).where(runs.c.run_id == run_id, runs.c.state.in_(from_states)).values(state=to_state)
        )
        run = self._views.run(run_id)
        if changed.rowcount != 1:
            raise refusals.run_state(run_id, run.state, from_states)
        return run

    def set_session(self, run_id: RunId, session_hash: bytes) -> None:
        """See ``Tx.set_session``."""
        changed = self._connection.execute(
            update(runs).where(runs.c.run_id == run_id).values(session_hash=session_hash)
        )
        if changed.rowcount != 1:
            raise refusals.run_unknown(run_id)

    def forget_tokens(self) -> int:
        """See ``Tx.forget_tokens``."""
        long_ago = self._now - KEEP_AFTER_EXPIRY
        gone = self._connection.execute(delete(token_uses).where(token_uses.c.expires_at < long_ago))
        return gone.rowcount

    def _insert(self, run_id: RunId, identity: Identity, job_token_hash: bytes, values: dict[str, Any]) -> None:
        self._connection.execute(
            insert(runs),
            {
                **values,
                "run_id": run_id,
                "issuer": identity.issuer,
                "job_id": identity.job_id,
                "user_id": identity.user_id,
                "project_id": identity.project_id,
                "runner_id": identity.runner_id,
                "created_at": self._now,
            },
        )
        self._connection.execute(
            insert(token_uses),
            {
                "issuer": identity.issuer,
                "jti": identity.jti,
                "run_id": run_id,
                "job_token_hash": job_token_hash,
                "expires_at": identity.token_expires_at,
            },
        )

    def _used(self, identity: Identity) -> Used | None:
        """The use of the same token, or else of another token for the same job."""
        token, job = {"issuer": identity.issuer, "jti": identity.jti}, identity.job_id
        row = self._connection.execute(_USED_TOKEN, token).one_or_none()
        row = row or self._connection.execute(_USED_JOB, {"issuer": identity.issuer, "job_id": job}).one_or_none()
        if row is None:
            return None
        names = self._connection.execute(select(stages.c.name).where(stages.c.run_id == row.run_id)).scalars()
        submitted = any(holds_user_code(name) for name in names)
        return Used(RunId(row.run_id), row.jti or "", row.job_id, row.job_token_hash or b"", row.attempt, submitted)


def run_of(row: Any) -> Run:
    """The run in a row of the ``runs`` table."""
    return Run(
        run_id=RunId(row.run_id),
        grant=grants.from_json(row.grant_json),
        state=RunState(row.state),
        attempt=row.attempt,
        created_at=row.created_at,
        not_after=row.not_after,
    )


def _new_run_id() -> RunId:
    """128 random bits as 26 letters and digits (RFC 4648 base32, lower case)."""
    return RunId(base64.b32encode(secrets.token_bytes(_RUN_ID_BYTES)).decode("ascii").rstrip("=").lower())
