"""Consume queues: for each queue the positions of its messages in the log, and reads by them.

Owns the files of the queues, the table of them, reads with filters, and the search by time.

May import: base, log.
Begin with `consume_queue`, then `reads`.
"""
