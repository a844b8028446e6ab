"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create them."""
    op.create_table(
        "diagnoses",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("language", sa.String(8), nullable=False),
        sa.Column("input_masked", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
    )
    op.create_index("diagnoses_created_at", "diagnoses", ["created_at"])
    op.create_table(
        "chats",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_index("chats_updated_at", "chats", ["updated_at"])
    op.create_table(
        "feedback",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("diagnosis_id", sa.String(32), nullable=False),
        sa.Column("helpful", sa.String(8), nullable=False),
        sa.Column("cause", sa.String(64)),
        sa.Column("comment_masked", sa.Text),
    )
    op.create_table(
        "cases",
        sa.Column("sequence", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(200), nullable=False, unique=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("yaml", sa.Text, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("platform", sa.String(16), nullable=False),
        sa.Column("event_id", sa.String(200), nullable=False),
        sa.Column("seen_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("platform", "event_id"),
    )
    op.create_index("events_seen_at", "events", ["seen_at"])
    op.create_table(
        "idempotency",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("body_sha256", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("response", sa.Text, nullable=False),
    )
    op.create_index("idempotency_created_at", "idempotency", ["created_at"])


def downgrade() -> None:
    """Drop them."""
    for table in ("idempotency", "events", "cases", "feedback", "chats", "diagnoses"):
        op.drop_table(table)
