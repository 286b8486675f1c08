"""Leases of services: one row with owner, epoch and expiry in the database's time (pmq:1.6).

May import: database.
Begin with `rules`.
"""
