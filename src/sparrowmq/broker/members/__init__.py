"""Members of groups: heartbeats, subscriptions and filters, queue locks, fences of managed groups.

Owns who is in a group and which queues a member may read.

May import: base, tables.
Begin with `membership`; `fence` decides about managed groups.
"""
