"""Sending: from a message to an acknowledged offset in a queue.

Owns the choice of queues, the encoding, batching, the limit of sends in flight, retries and avoided brokers,
and the sequence numbers of idempotent producers.

May import: base, cluster.
Begin with `sender`: `Sender.send` is the path of a message; `attempts` makes a single attempt.
"""
