"""Alembic's scripts: one file per revision, applied in order."""
