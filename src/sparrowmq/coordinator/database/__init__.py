"""The coordinator's database: connections, tables, migrations, and errors that say what to do."""
