"""Sends: from a request to a record in the log, a chunk of requests at a time.

Owns the send path with its checks in RocketMQ's order, batches, half messages on the hot path, idempotent
sends, and replies to requests.

May import: base, delay, tables, transactions.
Begin with `send_path`: `SendPath.store_chunk` is the hot path, `SendPath.handle` every other send.
"""
