"""Alembic's scripts, shipped with the package and run by `orchestrator.ledger.schema`."""
