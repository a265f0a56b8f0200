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
    UniqueConstraint("issuer", "job_id"),
    Index(None, "state"),
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
