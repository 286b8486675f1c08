"""The coordinator's database: connections, tables, migrations, and errors that say what to do.

May import: no other room.
Begin with `connect`; `tables` has all tables.
"""
