"""API tokens and when they were used, and the epochs of people's sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LIFE = "expires_at > created_at AND expires_at <= created_at + 31622400000000"
REVOKED = "(revoked_at IS NULL AND revoked_by IS NULL) OR (revoked_at IS NOT NULL AND revoked_by IS NOT NULL)"


def upgrade() -> None:
    """Make the tables, empty."""
    op.create_table(
        "api_tokens",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("expires_at", NUMBER, nullable=False),
        sa.Column("revoked_at", NUMBER),
        sa.Column("revoked_by", sa.Text()),
        sa.PrimaryKeyConstraint("token_id", name="pk_api_tokens"),
        sa.UniqueConstraint("secret_hash", name="uq_api_tokens_secret_hash"),
        sa.CheckConstraint("length(secret_hash) = 64", name=op.f("ck_api_tokens_secret_hash")),
        sa.CheckConstraint("created_by = principal", name=op.f("ck_api_tokens_own")),
        sa.CheckConstraint(LIFE, name=op.f("ck_api_tokens_life")),
        sa.CheckConstraint(REVOKED, name=op.f("ck_api_tokens_revoked")),
        sqlite_strict=True,
    )
    op.create_table(
        "session_epochs",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("changed_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("principal", name="pk_session_epochs"),
        sa.CheckConstraint("epoch >= 1", name=op.f("ck_session_epochs_epoch")),
        sqlite_strict=True,
    )
    op.create_table(
        "api_token_uses",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("used_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("token_id", name="pk_api_token_uses"),
        sa.ForeignKeyConstraint(["token_id"], ["api_tokens.token_id"], name="fk_api_token_uses_token_id"),
        sqlite_strict=True,
    )


def downgrade() -> None:
    """Drop them all: no API token counts any more.

    A register that had any of them is under a seal that no longer fits, and the broker says so.
    """
    for table in ("api_token_uses", "session_epochs", "api_tokens"):
        op.drop_table(table)
