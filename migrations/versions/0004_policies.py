"""Policy bundles, who proposed and approved them, and which of them came into force when."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STATES = "state IN ('draft', 'submitted', 'approved', 'activated', 'rejected', 'withdrawn')"
APPROVED_BY_ANOTHER = (
    "(decided_by IS NULL OR decided_by <> author)"
    " AND (state NOT IN ('approved', 'activated') OR (decided_by IS NOT NULL AND decided_at IS NOT NULL))"
)
KINDS = (
    "(kind = 'activate' AND proposal_id IS NOT NULL) OR (kind IN ('roll_back', 'break_glass') AND proposal_id IS NULL)"
)
CONFIRMED_BY_ANOTHER = "second IS NULL OR (kind = 'break_glass' AND second <> \"by\")"
FOUR_HOURS = (
    "(kind <> 'break_glass' AND ends_at IS NULL) OR (kind = 'break_glass' AND ends_at IS NOT NULL"
    ' AND ends_at > "at" AND ends_at <= "at" + 14400000000)'
)


def upgrade() -> None:
    """Make the tables, empty: the bundle of the settings' directory stays in force."""
    _bundles()
    _proposals()
    _activations()


def downgrade() -> None:
    """Drop them all: the bundle of the settings' directory is in force then.

    A register that had any of them is under a seal that no longer fits, and the broker says so: whoever takes the
    policy away decides on purpose what is to be in force instead.
    """
    for table in ("activations", "proposals", "bundles"):
        op.drop_table(table)


def _bundles() -> None:
    op.create_table(
        "bundles",
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("size", NUMBER, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("content_hash", name="pk_bundles"),
        sa.CheckConstraint("length(content_hash) = 64", name=op.f("ck_bundles_content_hash")),
        sqlite_strict=True,
    )


def _proposals() -> None:
    op.create_table(
        "proposals",
        sa.Column("proposal_id", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("base_hash", sa.Text(), nullable=False),
        sa.Column("base_number", NUMBER, nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("changed_at", NUMBER, nullable=False),
        sa.Column("decided_by", sa.Text()),
        sa.Column("decided_at", NUMBER),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("activated_by", sa.Text()),
        sa.PrimaryKeyConstraint("proposal_id", name="pk_proposals"),
        sa.ForeignKeyConstraint(["content_hash"], ["bundles.content_hash"], name="fk_proposals_content_hash"),
        sa.CheckConstraint(STATES, name=op.f("ck_proposals_state")),
        sa.CheckConstraint("version >= 1 AND base_number >= 0", name=op.f("ck_proposals_version")),
        sa.CheckConstraint(APPROVED_BY_ANOTHER, name=op.f("ck_proposals_four_eyes")),
        sa.CheckConstraint("state = 'activated' OR activated_by IS NULL", name=op.f("ck_proposals_activated")),
        sqlite_strict=True,
    )


def _activations() -> None:
    op.create_table(
        "activations",
        sa.Column("number", NUMBER, autoincrement=False, nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", NUMBER, nullable=False),
        sa.Column("proposal_id", sa.Text()),
        sa.Column("second", sa.Text()),
        sa.Column("ends_at", NUMBER),
        sa.PrimaryKeyConstraint("number", name="pk_activations"),
        sa.ForeignKeyConstraint(["content_hash"], ["bundles.content_hash"], name="fk_activations_content_hash"),
        sa.ForeignKeyConstraint(["proposal_id"], ["proposals.proposal_id"], name="fk_activations_proposal_id"),
        sa.UniqueConstraint("proposal_id", name="uq_activations_proposal_id"),
        sa.CheckConstraint("number >= 1", name=op.f("ck_activations_number")),
        sa.CheckConstraint(KINDS, name=op.f("ck_activations_kind")),
        sa.CheckConstraint(CONFIRMED_BY_ANOTHER, name=op.f("ck_activations_four_eyes")),
        sa.CheckConstraint(FOUR_HOURS, name=op.f("ck_activations_four_hours")),
        sqlite_strict=True,
    )
