"""Runs, used tokens, stages, and the audit log, which nobody may change."""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()
EMPTY_ROOT = hashlib.sha256(b"").digest()

_NO_CHANGE = "the audit log is only appended to"


def upgrade() -> None:
    """Make the tables, the empty log's head, and the triggers that keep honest administrators from mistakes."""
    _runs()
    _token_uses()
    _stages()
    _audit()
    _audit_head()
    if op.get_bind().dialect.name == "sqlite":
        _sqlite_triggers()
    else:
        _postgresql_triggers()


def downgrade() -> None:
    """Drop everything, the audit log too."""
    for table in ("audit_head", "audit", "stages", "token_uses", "runs"):
        op.drop_table(table)
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION refuse_audit_change()")


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("job_id", NUMBER, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("uid", NUMBER, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("not_after", NUMBER, nullable=False),
        sa.Column("grant_json", BYTES, nullable=False),
        sa.Column("seal", BYTES, nullable=False),
        sa.Column("session_hash", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
        sa.UniqueConstraint("issuer", "job_id", name="uq_runs_issuer_job_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_runs_state", "runs", ["state"])


def _token_uses() -> None:
    op.create_table(
        "token_uses",
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("jti", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("job_token_hash", BYTES, nullable=False),
        sa.Column("expires_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("issuer", "jti", name="pk_token_uses"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_token_uses_run_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_token_uses_run_id", "token_uses", ["run_id"])
    op.create_index("ix_token_uses_expires_at", "token_uses", ["expires_at"])


def _stages() -> None:
    op.create_table(
        "stages",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("invocation", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("slurm_job_id", NUMBER),
        sa.Column("slurm_name", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("node", sa.Text()),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("changed_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "invocation", name="pk_stages"),
        sa.UniqueConstraint("run_id", "position", name="uq_stages_run_id_position"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_stages_run_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_stages_cluster_slurm_job_id", "stages", ["cluster", "slurm_job_id"])


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", NUMBER, autoincrement=False, nullable=False),
        sa.Column("ts", NUMBER, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text()),
        sa.Column("job_id", NUMBER),
        sa.Column("leaf", BYTES, nullable=False),
        sa.Column("leaf_hash", BYTES, nullable=False),
        sa.Column("root", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
        sqlite_strict=True,
    )
    for column in ("reference", "run_id", "job_id"):
        op.create_index(f"ix_audit_{column}", "audit", [column])


def _audit_head() -> None:
    head = op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("size", NUMBER, nullable=False),
        sa.Column("compact_range", BYTES, nullable=False),
        sa.Column("root", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
        sa.CheckConstraint("id = 1", name="ck_audit_head_single"),
        sqlite_strict=True,
    )
    op.bulk_insert(head, [{"id": 1, "size": 0, "compact_range": b"", "root": EMPTY_ROOT}])


def _sqlite_triggers() -> None:
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_no_{verb.lower()} BEFORE {verb} ON audit "
            f"BEGIN SELECT RAISE(ABORT, '{_NO_CHANGE}'); END"
        )


def _postgresql_triggers() -> None:
    op.execute(
        "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_NO_CHANGE}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()"
    )
