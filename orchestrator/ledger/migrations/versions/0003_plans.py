"""The todo can be ranked by hand, by a decision, and a plan that people wrote is kept as they wrote it."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("ALTER TABLE hypothesis ADD COLUMN pin FLOAT")
    op.execute("ALTER TABLE hypothesis ADD COLUMN decision_id INTEGER REFERENCES decision (id)")
    op.execute("""
        CREATE TABLE plan (
            campaign VARCHAR NOT NULL PRIMARY KEY REFERENCES campaign (name),
            text VARCHAR NOT NULL,
            imported_at VARCHAR NOT NULL
        )""")
