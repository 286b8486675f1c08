"""Services about brokers: availability, drains, disk capacity, and retention.

May import: alarms, cluster, database, records, replicas, services.base, upkeep.
Begin with `broker_check`.
"""
