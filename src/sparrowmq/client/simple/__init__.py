"""The simple consumer: receives single messages by POP and acknowledges each. No member owns a queue.

Owns the consumer (`simple_consumer`).

May import: base, cluster.
Begin with `simple_consumer`.
"""
