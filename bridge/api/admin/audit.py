"""The audit log, for auditors: entries as they were written, with the hashes that a verifier needs, and the head."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel

from bridge.api.admin.entry import PREFIX, Auditor
from bridge.api.pages import CURSOR, DEFAULT_LIMIT, Limit, Page
from bridge.api.values import MAX_NUMBER, Number, Reference
from bridge.audit.ledger import View
from bridge.audit.log import Entry
from bridge.audit.record import Phase, RecordType
from bridge.listing import EntryFilter

router = APIRouter(prefix=f"{PREFIX}/audit", tags=["audit"])

WINDOW: Final = 20_000
"""Entries that one page looks at, at most, where no index has what is asked for."""


class LogEntry(BaseModel):
    """An entry of the log."""

    seq: int
    leaf: dict[str, Any]
    """Its canonical JSON (RFC 8785) is what was hashed."""
    leaf_hash: str
    """Hex; RFC 6962 section 2.1."""
    root: str
    """Hex; of the tree up to here."""


class Head(BaseModel):
    """The log's tree as it is now."""

    size: int
    root: str


@router.get("/entries", response_model=Page[LogEntry], operation_id="list_audit_entries")
async def entries(
    member: Auditor,
    type: RecordType | None = None,  # noqa: A002 - the word of the log
    phase: Phase | None = None,
    run_id: Annotated[str | None, Query(pattern=r"^[a-z0-9]{26}$")] = None,
    job_id: Annotated[Number | None, Query()] = None,
    reference: Annotated[Reference | None, Query()] = None,
    since: AwareDatetime | None = None,
    cursor: Annotated[int | None, Query(ge=0, le=MAX_NUMBER, description=CURSOR)] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """List entries, oldest first. A page may be short where there is a next one. Role auditor."""
    wanted = EntryFilter(type, phase, run_id, job_id, reference)

    def read(view: View) -> dict[str, Any]:
        size = view.head().tree.size
        first = max(0 if cursor is None else cursor, 0 if since is None else view.first_seq_since(since))
        indexed = (run_id, job_id, reference) != (None, None, None)
        last = size - 1 if indexed else min(size - 1, first + WINDOW - 1)
        found = view.find_entries(wanted, first, last, limit, newest=False)
        following = found[-1].seq + 1 if len(found) == limit else last + 1
        return {
            "items": [_shown(entry) for entry in found],
            "next_cursor": str(following) if following < size else None,
        }

    return await member.read(read)


@router.get("/head", response_model=Head, operation_id="get_audit_head")
async def head(member: Auditor) -> Any:
    """Return the size and root of the log. Role auditor."""
    now = await member.read(lambda view: view.head())
    return {"size": now.tree.size, "root": now.root.hex()}


def _shown(entry: Entry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "leaf": json.loads(entry.leaf),
        "leaf_hash": entry.leaf_hash.hex(),
        "root": entry.root.hex(),
    }
