"""Account links, consents, and the head under which the broker seals them and the kill switches."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ACTIVE = sa.text("state = 'active'")
FOUR_EYES = "method <> 'admin' OR state <> 'active' OR (decided_by IS NOT NULL AND decided_by <> proposed_by)"


def upgrade() -> None:
    """Make the tables, and the head of a register that nobody has changed yet."""
    _account_links()
    _consents()
    _register_head()


def downgrade() -> None:
    """Drop every link and consent; the kill switches stay, without a seal."""
    for table in ("register_head", "consent_projects", "consents", "account_links"):
        op.drop_table(table)


def _account_links() -> None:
    op.create_table(
        "account_links",
        sa.Column("link_id", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("user_id", NUMBER, nullable=False),
        sa.Column("user_login", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("uid", NUMBER, nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("proposed_by", sa.Text(), nullable=False),
        sa.Column("proposed_at", NUMBER, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("decided_by", sa.Text()),
        sa.Column("decided_at", NUMBER),
        sa.Column("ended_by", sa.Text()),
        sa.Column("ended_at", NUMBER),
        sa.PrimaryKeyConstraint("link_id", name="pk_account_links"),
        sa.CheckConstraint("method IN ('self_service', 'admin', 'provider')", name=op.f("ck_account_links_method")),
        sa.CheckConstraint(
            "state IN ('proposed', 'active', 'rejected', 'revoked')", name=op.f("ck_account_links_state")
        ),
        sa.CheckConstraint("uid >= 0", name=op.f("ck_account_links_uid")),
        sa.CheckConstraint(FOUR_EYES, name=op.f("ck_account_links_four_eyes")),
        sqlite_strict=True,
    )
    op.create_index(
        "uq_account_links_active",
        "account_links",
        ["issuer", "user_id"],
        unique=True,
        sqlite_where=ACTIVE,
        postgresql_where=ACTIVE,
    )


def _consents() -> None:
    op.create_table(
        "consents",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("uid", NUMBER, nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("changed_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("account", name="pk_consents"),
        sa.CheckConstraint("mode IN ('site', 'listed', 'stopped', 'listed_stopped')", name=op.f("ck_consents_mode")),
        sa.CheckConstraint("uid >= 0", name=op.f("ck_consents_uid")),
        sqlite_strict=True,
    )
    op.create_table(
        "consent_projects",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("project_id", NUMBER, nullable=False),
        sa.Column("allowed", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("account", "issuer", "project_id", name="pk_consent_projects"),
        sa.ForeignKeyConstraint(["account"], ["consents.account"], name="fk_consent_projects_account"),
        sa.CheckConstraint("allowed IN (0, 1)", name=op.f("ck_consent_projects_allowed")),
        sqlite_strict=True,
    )


def _register_head() -> None:
    head = op.create_table(
        "register_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", NUMBER, nullable=False),
        sa.Column("seal", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_register_head"),
        sa.CheckConstraint("id = 1", name=op.f("ck_register_head_single")),
        sa.CheckConstraint("revision >= 0", name=op.f("ck_register_head_revision")),
        sqlite_strict=True,
    )
    op.bulk_insert(head, [{"id": 1, "revision": 0, "seal": b""}])
