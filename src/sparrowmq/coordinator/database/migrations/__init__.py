"""Alembic's scripts; `sparrowmq.coordinator.database.migrate` runs them."""
