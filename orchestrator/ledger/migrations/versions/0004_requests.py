"""What people ask of the process that runs experiments."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE request (
            id INTEGER NOT NULL PRIMARY KEY,
            action VARCHAR NOT NULL,
            host VARCHAR NOT NULL REFERENCES host (name),
            run_id INTEGER REFERENCES run (id),
            arguments JSON NOT NULL,
            asked_by VARCHAR NOT NULL,
            asked_at VARCHAR NOT NULL,
            state VARCHAR NOT NULL,
            taken_by INTEGER,
            taken_at VARCHAR,
            ended_at VARCHAR,
            answer VARCHAR NOT NULL,
            result JSON NOT NULL
        )""")
    op.execute("CREATE INDEX request_by_host ON request (host, state)")
