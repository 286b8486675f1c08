"""The producer: applications use it to send, to make requests and to run transactions.

Owns the public asyncio `Producer`, transactions, and recalls of timed messages. The work of a send is in
`client.send`.

May import: base, cluster, send, tracing.
Begin with `producer`.
"""
