"""API tokens and session epochs in their tables; none is ever deleted. When a token was used is under no seal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, insert, select, update

from bridge.access import ApiToken, SessionEpoch
from bridge.db.schema import api_token_uses, api_tokens, session_epochs

_TOKEN_FIELDS: Final = tuple(one.name for one in dataclasses.fields(ApiToken))
_EPOCH_FIELDS: Final = tuple(one.name for one in dataclasses.fields(SessionEpoch))
_TOKENS: Final = select(*(api_tokens.c[name] for name in _TOKEN_FIELDS))
_EPOCHS: Final = select(*(session_epochs.c[name] for name in _EPOCH_FIELDS))


class AccessViews:
    """Reads who was let in, on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def api_tokens(self) -> Sequence[ApiToken]:
        """All that ever were."""
        rows = self._connection.execute(_TOKENS).mappings()
        return [ApiToken(**{**row, "scopes": tuple(row["scopes"].split())}) for row in rows]

    def session_epochs(self) -> Sequence[SessionEpoch]:
        """Of every principal whose sessions were ended."""
        return [SessionEpoch(**row) for row in self._connection.execute(_EPOCHS).mappings()]

    def api_token_uses(self) -> Mapping[str, datetime]:
        """See ``View.api_token_uses``."""
        return {row.token_id: row.used_at for row in self._connection.execute(select(api_token_uses))}


class AccessChanges:
    """Changes who is let in, on one connection, inside a writing transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put_api_token(self, token: ApiToken) -> ApiToken:
        """See ``Tx.put_api_token``; returns what a reader will find."""
        stored = dataclasses.replace(token, scopes=tuple(sorted(set(token.scopes))))
        row = {name: getattr(stored, name) for name in _TOKEN_FIELDS} | {"scopes": " ".join(stored.scopes)}
        self._put(api_tokens, "token_id", row)
        return stored

    def put_session_epoch(self, epoch: SessionEpoch) -> SessionEpoch:
        """See ``Tx.put_session_epoch``; returns what a reader will find."""
        self._put(session_epochs, "principal", dataclasses.asdict(epoch))
        return epoch

    def note_api_token_use(self, token_id: str, at: datetime) -> None:
        """See ``Tx.note_api_token_use``."""
        self._put(api_token_uses, "token_id", {"token_id": token_id, "used_at": at})

    def _put(self, table: Any, key: str, row: Mapping[str, Any]) -> None:
        known = self._connection.execute(update(table).where(table.c[key] == row[key]).values(row))
        if known.rowcount == 0:
            self._connection.execute(insert(table), row)
