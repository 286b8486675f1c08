"""What Alembic runs: the migrations on the connection it is handed."""

from __future__ import annotations

from alembic import context

from sparrowmq.coordinator.database.tables import VERSION_TABLE, metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # The caller's transaction, which holds the migration lock, is the one that everything happens in.
    transactional_ddl=False,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
