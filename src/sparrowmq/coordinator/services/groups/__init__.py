"""Services about groups: planning managed groups, and watching members, queues, lag and handlers.

May import: alarms, cluster, database, groups, leases, records, services.base.
Begin with `rebalance`; `lag` is a short alarm to learn the pattern from.
"""
