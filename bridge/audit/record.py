"""What is written down of each privileged act, and its one byte form (RFC 8785), which is what the log hashes.

An act leaves two records with the same reference: an intent before it, an outcome after it. A refusal leaves one. Ids
of people are in them, names and e-mail addresses are not; no secret ever is. Text that came from outside is made
harmless here (T45): one record in is one line out, whatever a claim holds.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from bridge.errors import Defect
from bridge.model import Identity, RunId

VERSION: Final = 1
MAX_LEAF_BYTES: Final = 8 * 1024
MAX_TEXT: Final = 512
"""Bytes of one text; longer ones are cut, and end in an ellipsis."""
MAX_ITEMS: Final = 32
MAX_INTEGER: Final = 2**53 - 1
_CUT: Final = "…"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class RecordType(enum.StrEnum):
    """What a record is about."""

    ADMISSION = "admission"
    """A job asks to run as a person: intent, then outcome with tickets, or denied."""
    STAGE = "stage"
    """A stage is started: intent, then outcome when it is over."""
    TICKETS = "tickets"
    """Tickets are made or handed to a node."""
    RUN = "run"
    """A run is prepared or ends."""
    KEYS = "keys"
    """An issuer's key set has changed, or could not be trusted."""
    POLICY = "policy"
    """A bundle was activated."""
    SERVICE = "service"
    """A process of the bridge started or stopped."""
    LINK = "link"
    """A GitLab user and an account were linked, or no longer are; the link's id is the reference."""
    CONSENT = "consent"
    """The owner of an account said which projects may act as them."""
    ACCESS = "access"
    """An API token was made or revoked, or sessions were opened or ended; the token's id is the reference."""
    KILL = "kill"
    """A kill switch was thrown or lifted; its id is the reference."""


class Phase(enum.StrEnum):
    """Where in its act a record stands: ``INTENT -> OK | FAILED | UNKNOWN -> RECONCILED``; DENIED, EVENT are alone."""

    INTENT = "intent"
    """It is about to be done; nothing of it has been done yet."""
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It may have been done: its answer was lost."""
    RECONCILED = "reconciled"
    """What an unknown one came to, found out later."""
    DENIED = "denied"
    EVENT = "event"
    """Something happened that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The GitLab person and job, by ids only."""

    issuer: str
    user_id: int
    project_id: int
    job_project_id: int
    pipeline_id: int
    job_id: int
    runner_id: int
    jti: str

    @classmethod
    def of(cls, identity: Identity) -> Actor:
        """The ids in an identity."""
        return cls(**{one.name: getattr(identity, one.name) for one in dataclasses.fields(cls)})


@dataclass(frozen=True, slots=True)
class Target:
    """Whom and where it concerns on the cluster."""

    cluster: str | None = None
    account: str | None = None
    uid: int | None = None
    principal: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Basis:
    """The decision that it rests upon."""

    bundle_hash: str
    policy_ids: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tickets:
    """The tickets of an outcome, without anything secret."""

    services: tuple[str, ...]
    end: datetime
    ccache_sha256: str
    ticket_ids: tuple[str, ...] = ()
    """Ids of the same tickets in the KDC's audit."""


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the audit log, before it has its number and time."""

    type: RecordType
    phase: Phase
    reference: str
    """The id that the person sees in the job log, and that joins an intent with its outcome."""
    run_id: RunId | None = None
    invocation: str | None = None
    """Of the stage."""
    stage: str | None = None
    actor: Actor | None = None
    target: Target | None = None
    basis: Basis | None = None
    tickets: Tickets | None = None
    slurm_job_id: int | None = None
    exit_code: int | None = None
    request_sha256: str | None = None
    """Hex; of what was asked, e.g. the stage's script."""
    code: str | None = None
    """Error code of a denial or failure."""
    detail: Mapping[str, str | int | bool | tuple[str, ...]] = field(default_factory=dict)
    """What else is known; for administrators. Names are ours: lower-case words."""


_FIELDS: Final = tuple(one.name for one in dataclasses.fields(Record))


def members(record: Record, seq: int, moment: datetime, instance: str, boot_id: str) -> dict[str, Any]:
    """The members of ``record`` as number ``seq`` of the log, written at ``moment`` by the process ``instance``.

    Objects, lists, strings, integers and booleans; what is None or empty is left out. Raises Defect
    ``audit.record_malformed`` for other types, and for integers beyond 2^53 - 1.
    """
    return _members(
        {
            "v": VERSION,
            "seq": seq,
            "ts": int(moment.timestamp() * 1000),
            "boot_id": boot_id,
            "instance": instance,
            **{name: getattr(record, name) for name in _FIELDS},
        }
    )


def leaf(members: Mapping[str, Any]) -> bytes:
    """The canonical JSON (RFC 8785) of what the function ``members`` made; raises Defect beyond 8 KiB.

    Without floats, control characters and names that are not ASCII, RFC 8785 asks for no more than this: names sorted,
    no spaces, no escapes but those of quotation mark and backslash.
    """
    text = json.dumps(members, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    data = text.encode("utf-8")
    if len(data) > MAX_LEAF_BYTES:
        raise _malformed(f"{len(data)} bytes")
    return data


def plain_text(text: str) -> str:
    """``text`` with everything that a terminal, a log or an eye could misread written as ``\\u{...}``.

    A backslash is doubled, so that no text can pass as another's escaped form. At most 512 bytes of UTF-8 come out.
    """
    kept = text[:MAX_TEXT]
    if not kept.isprintable() or "\\" in kept:
        kept = "".join(_escaped(one) for one in kept)
    data = kept.encode("utf-8")
    if len(text) <= MAX_TEXT and len(data) <= MAX_TEXT:
        return kept
    return data[: MAX_TEXT - len(_CUT.encode())].decode("utf-8", errors="ignore") + _CUT


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return plain_text(str(value))
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise _malformed("an integer beyond 2^53 - 1")
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if isinstance(value, tuple | list):
        return [_harmless(item) for item in value[:MAX_ITEMS]]
    if isinstance(value, Mapping):
        return _members(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _members({one.name: getattr(value, one.name) for one in dataclasses.fields(value)})
    raise _malformed(type(value).__name__)


def _members(members: Mapping[str, Any]) -> dict[str, Any]:
    kept = {}
    for name, value in members.items():
        if value is None or value == () or value == {}:
            continue
        if _NAME.fullmatch(name) is None:
            raise _malformed("a member's name")
        kept[name] = _harmless(value)
    return kept


def _malformed(reason: str) -> Defect:
    return Defect(
        "audit.record_malformed",
        "An audit record could not be written.",
        "Give the reference to the administrators of the bridge.",
        reason=reason,
    )
