"""The common parts of services: schedule, lease, runs, and the handling of alarms.

May import: alarms, database, leases, records.
Begin with `runner`: `ServiceRunner` runs a service's step when it is due and this process leads.
"""
