"""The tables. ``migrations/`` makes them, and a test keeps both the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)

NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
"""Constraints with names of their own can be changed by later migrations in both dialects."""

metadata = MetaData(naming_convention=NAMES)

Number = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits in both dialects; SQLite's STRICT tables know the word INTEGER only."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Moment(TypeDecorator[datetime]):
    """An aware UTC time, kept as microseconds since 1970: compares and sorts alike in both dialects."""

    impl = Number
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> Any:
        """To microseconds; a naive time raises TypeError."""
        return None if value is None else (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: Any | None, _dialect: Dialect) -> datetime | None:
        """From microseconds."""
        return None if value is None else _EPOCH + timedelta(microseconds=value)


runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("issuer", Text, nullable=False),
    Column("job_id", Number, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("uid", Number, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("not_after", Moment, nullable=False),
    Column("grant_json", LargeBinary, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    Column("session_hash", LargeBinary, nullable=False),
    # Of the grant, to list runs by; nobody decides by them.
    Column("user_id", Number),
    Column("project_id", Number),
    Column("runner_id", Number),
    UniqueConstraint("issuer", "job_id"),
    Index(None, "state", "created_at"),
    Index(None, "created_at", "run_id"),
    Index(None, "account", "created_at"),
    Index(None, "cluster", "created_at"),
    Index(None, "issuer", "user_id", "created_at"),
    Index(None, "project_id", "created_at"),
    Index(None, "issuer", "runner_id", "created_at"),
    sqlite_strict=True,
)

token_uses = Table(
    "token_uses",
    metadata,
    Column("issuer", Text, nullable=False),
    Column("jti", Text, nullable=False),
    Column("run_id", Text, ForeignKey("runs.run_id"), nullable=False),
    Column("job_token_hash", LargeBinary, nullable=False),
    Column("expires_at", Moment, nullable=False),
    PrimaryKeyConstraint("issuer", "jti"),
    Index(None, "run_id"),
    Index(None, "expires_at"),
    sqlite_strict=True,
)

stages = Table(
    "stages",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), nullable=False),
    Column("invocation", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("slurm_job_id", Number),
    Column("slurm_name", Text, nullable=False),
    Column("exit_code", Integer),
    Column("node", Text),
    Column("created_at", Moment, nullable=False),
    Column("changed_at", Moment, nullable=False),
    PrimaryKeyConstraint("run_id", "invocation"),
    UniqueConstraint("run_id", "position"),
    Index(None, "cluster", "slurm_job_id"),
    sqlite_strict=True,
)

audit = Table(
    "audit",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("ts", Number, nullable=False),
    Column("type", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("reference", Text, nullable=False),
    Column("run_id", Text),
    Column("job_id", Number),
    Column("leaf", LargeBinary, nullable=False),
    Column("leaf_hash", LargeBinary, nullable=False),
    Column("root", LargeBinary, nullable=False),
    Index(None, "reference"),
    Index(None, "run_id"),
    Index(None, "job_id"),
    sqlite_strict=True,
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("size", Number, nullable=False),
    Column("compact_range", LargeBinary, nullable=False),
    Column("root", LargeBinary, nullable=False),
    CheckConstraint("id = 1", name="single"),
    sqlite_strict=True,
)

kill_switches = Table(
    "kill_switches",
    metadata,
    Column("switch_id", Text, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("issuer", Text),
    Column("number", Number),
    Column("account", Text),
    Column("reason", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("lifted_at", Moment),
    Column("lifted_by", Text),
    Index(None, "lifted_at"),
    sqlite_strict=True,
)

account_links = Table(
    "account_links",
    metadata,
    Column("link_id", Text, primary_key=True),
    Column("issuer", Text, nullable=False),
    Column("user_id", Number, nullable=False),
    Column("user_login", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("uid", Number, nullable=False),
    Column("method", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("proposed_by", Text, nullable=False),
    Column("proposed_at", Moment, nullable=False),
    Column("reason", Text, nullable=False),
    Column("decided_by", Text),
    Column("decided_at", Moment),
    Column("ended_by", Text),
    Column("ended_at", Moment),
    CheckConstraint("method IN ('self_service', 'admin', 'provider')", name="method"),
    CheckConstraint("state IN ('proposed', 'active', 'rejected', 'revoked')", name="state"),
    CheckConstraint("uid >= 0", name="uid"),
    # A comparison with NULL would pass, hence both halves.
    CheckConstraint(
        "method <> 'admin' OR state <> 'active' OR (decided_by IS NOT NULL AND decided_by <> proposed_by)",
        name="four_eyes",
    ),
    Index(
        "uq_account_links_active",
        "issuer",
        "user_id",
        unique=True,
        sqlite_where=text("state = 'active'"),
        postgresql_where=text("state = 'active'"),
    ),
    sqlite_strict=True,
)

consents = Table(
    "consents",
    metadata,
    Column("account", Text, primary_key=True),
    Column("uid", Number, nullable=False),
    Column("mode", Text, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("changed_at", Moment, nullable=False),
    CheckConstraint("mode IN ('site', 'listed', 'stopped', 'listed_stopped')", name="mode"),
    CheckConstraint("uid >= 0", name="uid"),
    sqlite_strict=True,
)

consent_projects = Table(
    "consent_projects",
    metadata,
    Column("account", Text, ForeignKey("consents.account"), nullable=False),
    Column("issuer", Text, nullable=False),
    Column("project_id", Number, nullable=False),
    Column("allowed", Integer, nullable=False),
    # Without ``allowed``: nobody can allow and deny the same project.
    PrimaryKeyConstraint("account", "issuer", "project_id"),
    CheckConstraint("allowed IN (0, 1)", name="allowed"),
    sqlite_strict=True,
)

register_head = Table(
    "register_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", Number, nullable=False),
    Column("seal", LargeBinary, nullable=False),
    CheckConstraint("id = 1", name="single"),
    CheckConstraint("revision >= 0", name="revision"),
    sqlite_strict=True,
)

bundles = Table(
    "bundles",
    metadata,
    Column("content_hash", Text, primary_key=True),
    # Canonical JSON of {path: text}; nobody changes it, and whoever reads it hashes it again.
    Column("files", Text, nullable=False),
    Column("size", Number, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Text, nullable=False),
    CheckConstraint("length(content_hash) = 64", name="content_hash"),
    sqlite_strict=True,
)

proposals = Table(
    "proposals",
    metadata,
    Column("proposal_id", Text, primary_key=True),
    Column("content_hash", Text, ForeignKey("bundles.content_hash"), nullable=False),
    Column("base_hash", Text, nullable=False),
    Column("base_number", Number, nullable=False),
    Column("author", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Number, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("changed_at", Moment, nullable=False),
    Column("decided_by", Text),
    Column("decided_at", Moment),
    Column("reason", Text, nullable=False),
    Column("activated_by", Text),
    CheckConstraint("state IN ('draft', 'submitted', 'approved', 'activated', 'rejected', 'withdrawn')", name="state"),
    CheckConstraint("version >= 1 AND base_number >= 0", name="version"),
    CheckConstraint(
        "(decided_by IS NULL OR decided_by <> author)"
        " AND (state NOT IN ('approved', 'activated') OR (decided_by IS NOT NULL AND decided_at IS NOT NULL))",
        name="four_eyes",
    ),
    CheckConstraint("state = 'activated' OR activated_by IS NULL", name="activated"),
    sqlite_strict=True,
)

activations = Table(
    "activations",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("content_hash", Text, ForeignKey("bundles.content_hash"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", Moment, nullable=False),
    Column("proposal_id", Text, ForeignKey("proposals.proposal_id")),
    Column("second", Text),
    Column("ends_at", Moment),
    # An approval is used once.
    UniqueConstraint("proposal_id"),
    CheckConstraint("number >= 1", name="number"),
    CheckConstraint(
        "(kind = 'activate' AND proposal_id IS NOT NULL) OR (kind IN ('roll_back', 'break_glass')"
        " AND proposal_id IS NULL)",
        name="kind",
    ),
    CheckConstraint("second IS NULL OR (kind = 'break_glass' AND second <> \"by\")", name="four_eyes"),
    CheckConstraint(
        "(kind <> 'break_glass' AND ends_at IS NULL)"
        " OR (kind = 'break_glass' AND ends_at IS NOT NULL"
        ' AND ends_at > "at" AND ends_at <= "at" + 14400000000)',
        name="four_hours",
    ),
    sqlite_strict=True,
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("token_id", Text, primary_key=True),
    Column("secret_hash", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Column("revoked_at", Moment),
    Column("revoked_by", Text),
    UniqueConstraint("secret_hash"),
    CheckConstraint("length(secret_hash) = 64", name="secret_hash"),
    CheckConstraint("created_by = principal", name="own"),
    # 366 days.
    CheckConstraint("expires_at > created_at AND expires_at <= created_at + 31622400000000", name="life"),
    CheckConstraint(
        "(revoked_at IS NULL AND revoked_by IS NULL) OR (revoked_at IS NOT NULL AND revoked_by IS NOT NULL)",
        name="revoked",
    ),
    sqlite_strict=True,
)

session_epochs = Table(
    "session_epochs",
    metadata,
    Column("principal", Text, primary_key=True),
    Column("epoch", Number, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("changed_at", Moment, nullable=False),
    CheckConstraint("epoch >= 1", name="epoch"),
    sqlite_strict=True,
)

# Not of the register: it changes with every hour in which a token is used, and decides nothing.
api_token_uses = Table(
    "api_token_uses",
    metadata,
    Column("token_id", Text, ForeignKey("api_tokens.token_id"), primary_key=True),
    Column("used_at", Moment, nullable=False),
    sqlite_strict=True,
)

# Under no seal: a row can only stop a run.
run_cancels = Table(
    "run_cancels",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("cancelled_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    sqlite_strict=True,
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("principal", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("request_sha256", Text, nullable=False),
    # Null while the request is at work, and where nobody can know what became of it.
    Column("answer", LargeBinary),
    Column("expires_at", Moment, nullable=False),
    PrimaryKeyConstraint("principal", "key"),
    CheckConstraint("length(request_sha256) = 64", name="request_sha256"),
    Index(None, "expires_at"),
    sqlite_strict=True,
)

decisions = Table(
    "decisions",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("at", Moment, nullable=False),
    Column("issuer", Text, nullable=False),
    Column("user_id", Number, nullable=False),
    Column("project_id", Number, nullable=False),
    Column("job_id", Number, nullable=False),
    Column("account", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("bundle_hash", Text, nullable=False),
    Column("question", LargeBinary, nullable=False),
    Index(None, "at"),
    sqlite_strict=True,
)
