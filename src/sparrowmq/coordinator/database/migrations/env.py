"""Run by Alembic: the migrations, on the connection that is passed in."""

from __future__ import annotations

from alembic import context

from sparrowmq.coordinator.database.tables import VERSION_TABLE, metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # Everything runs in the caller's transaction, which holds the migration lock.
    transactional_ddl=False,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
