"""What the admin API lists runs by, the runs that operators cancelled, and answers kept for repeated requests."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WHO = ("user_id", "project_id", "runner_id")
LISTED = (("state",), ("account",), ("cluster",), ("issuer", "user_id"), ("project_id",), ("issuer", "runner_id"))


def upgrade() -> None:
    """Add the columns, filled from the grants that are there, their indexes, and two tables, empty."""
    for name in WHO:
        op.add_column("runs", sa.Column(name, NUMBER))
    sqlite = op.get_bind().dialect.name == "sqlite"
    member = (
        "json_extract(CAST(grant_json AS TEXT), '$.identity.{}')"
        if sqlite
        else "(convert_from(grant_json, 'UTF8')::json -> 'identity' ->> '{}')::bigint"
    )
    filled = ", ".join(f"{name} = {member.format(name)}" for name in WHO)
    op.execute(f"UPDATE runs SET {filled}")  # noqa: S608 - made of the words above
    op.drop_index("ix_runs_state", "runs")
    op.create_index("ix_runs_created_at_run_id", "runs", ["created_at", "run_id"])
    for columns in LISTED:
        op.create_index(f"ix_runs_{'_'.join(columns)}_created_at", "runs", [*columns, "created_at"])
    op.create_table(
        "run_cancels",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("cancelled_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_cancels"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_run_cancels_run_id"),
        sqlite_strict=True,
    )
    op.create_table(
        "idempotency",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_sha256", sa.Text(), nullable=False),
        sa.Column("answer", sa.LargeBinary()),
        sa.Column("expires_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("principal", "key", name="pk_idempotency"),
        sa.CheckConstraint("length(request_sha256) = 64", name=op.f("ck_idempotency_request_sha256")),
        sqlite_strict=True,
    )
    op.create_index("ix_idempotency_expires_at", "idempotency", ["expires_at"])


def downgrade() -> None:
    """Drop them; runs that were cancelled and have not ended yet go on."""
    op.drop_table("idempotency")
    op.drop_table("run_cancels")
    for columns in LISTED:
        op.drop_index(f"ix_runs_{'_'.join(columns)}_created_at", "runs")
    op.drop_index("ix_runs_created_at_run_id", "runs")
    op.create_index("ix_runs_state", "runs", ["state"])
    for name in WHO:
        op.drop_column("runs", name)
