"""The HTTP API: every change goes through here, checked on the server and audited in its own transaction.

May import: alarms, cluster, cluster.bodies, database, groups, history, leases, records, replicas,
services.base, services.brokers, services.groups, services.housekeeping, users.
Begin with `app`, then `shared`, which every route uses.
"""
