"""Housekeeping services: consistency, governance, history, clean-up, notices, and repairs.

May import: alarms, cluster, database, groups, history, records, services.base, services.groups,
upkeep, users.
Begin with `consistency`.
"""
