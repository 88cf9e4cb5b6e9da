"""A host may end on a configuration that was kept: which, in a person's words."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("ALTER TABLE host ADD COLUMN kept VARCHAR")
