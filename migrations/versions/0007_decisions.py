"""Decisions with their questions, so that they can be explained and replayed."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "decisions",
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("at", NUMBER, nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("user_id", NUMBER, nullable=False),
        sa.Column("project_id", NUMBER, nullable=False),
        sa.Column("job_id", NUMBER, nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("bundle_hash", sa.Text(), nullable=False),
        sa.Column("question", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("reference", name="pk_decisions"),
        sqlite_strict=True,
    )
    op.create_index("ix_decisions_at", "decisions", ["at"])


def downgrade() -> None:
    """Drop it; the audit log keeps what was decided, without the questions."""
    op.drop_table("decisions")
