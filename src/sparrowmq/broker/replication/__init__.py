"""A second copy of the log, by RocketMQ's classic HA protocol (broker:12).

May import: access, base, tables.

`frames` is the wire format and `replicas` decides which copies a message has; both are pure. `master` sends
the log to slaves, `slave` follows a master, `comparison` decides whether it may. `metadata` copies tables by
ordinary requests, which `tables_for_slaves` answers. `replication` makes the parts of a broker's role.
"""
