"""Opening a store: log and queues are reconciled, and damage is detected.

Owns the recovery, the checkpoint and the safe point it starts from, and the repair of single queue entries.

May import: base, index, log, queues, tables.
Begin with `recovery`; `recover` does all steps.
"""
