"""Texts of diagnoses are kept once; submitted cases have an owner."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them; rows of before keep their texts themselves."""
    op.create_table(
        "contents",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("input_masked", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
    )
    op.create_index("contents_used_at", "contents", ["used_at"])
    op.add_column("diagnoses", sa.Column("content", sa.String(64)))
    op.create_index("diagnoses_content", "diagnoses", ["content"])
    op.add_column("cases", sa.Column("owner", sa.String(64), nullable=False, server_default=""))


def downgrade() -> None:
    """Give every diagnosis its texts back and drop the rest."""
    op.execute(
        "UPDATE diagnoses SET input_masked = (SELECT input_masked FROM contents WHERE sha256 = content), "
        "result = (SELECT result FROM contents WHERE sha256 = content) WHERE content IS NOT NULL"
    )
    op.drop_index("diagnoses_content", "diagnoses")
    with op.batch_alter_table("diagnoses") as table:
        table.drop_column("content")
    with op.batch_alter_table("cases") as table:
        table.drop_column("owner")
    op.drop_table("contents")
