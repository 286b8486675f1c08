"""Pulls: checks, reading, holding a request until a message comes, and waking it.

Owns the pull path and the table of held pulls.

May import: base, members, tables.
Begin with `pull_path`.
"""
