"""Runs inside the transaction that `schema.migrate` opened: a migration happens whole or not at all."""

from __future__ import annotations

from alembic import context

from orchestrator.ledger.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
