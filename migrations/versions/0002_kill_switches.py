"""Kill switches: who and what may start nothing, until they are lifted."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "kill_switches",
        sa.Column("switch_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text()),
        sa.Column("number", NUMBER),
        sa.Column("account", sa.Text()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("lifted_at", NUMBER),
        sa.Column("lifted_by", sa.Text()),
        sa.PrimaryKeyConstraint("switch_id", name="pk_kill_switches"),
        sqlite_strict=True,
    )
    op.create_index("ix_kill_switches_lifted_at", "kill_switches", ["lifted_at"])


def downgrade() -> None:
    """Drop it, and with it every switch that is in force."""
    op.drop_table("kill_switches")
