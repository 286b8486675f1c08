"""Batch and streaming writes, at least once or exactly once.

May import: bodies, cluster, offsets, options.

Begin with `writer`: what Spark calls, and `plan`: what the driver decides. `guarantees` says what a write
promises; a task sends by `send`, and by `idempotent_send` so that rows that were stored are not stored again;
`row_states` has the table of what happens to them. The driver's notes are `queue_choice`, `batch_runs` and
`finished_jobs`.
"""
