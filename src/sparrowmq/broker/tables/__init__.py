"""The broker's tables: topics, groups and connected clients.

Owns the tables in memory and how they are saved: `table_file`, `coalesced_run`, `changes`.

May import: no other room.
Begin with `topics`.
"""
