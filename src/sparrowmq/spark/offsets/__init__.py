"""Offsets, and decisions that depend only on them, such as the plan of tasks. Pure.

May import: options.

Begin with `offsets`: spans of queues, and the offset that Spark keeps in a checkpoint. `planning` cuts a
batch into tasks, `pushdown` narrows it by filters, `resets` says where to resume in a queue that was deleted
or truncated.
"""
