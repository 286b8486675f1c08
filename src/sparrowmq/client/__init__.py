"""Producers, consumers and the admin client.

asyncio is the native form; `sparrowmq.aio` offers it, `sparrowmq` the synchronous classes over it. One
`ClientInstance` for each client id owns connections, routes and heartbeats; everything lives on one event
loop. The package has rooms, each with a docstring that says what it owns:

    base        settings, hooks, states, background tasks
    cluster     connections, name servers, routes, heartbeats, one method for each request
    send        the path of a message: queue, encoding, batching, retries
    tracing     traces of sent and consumed messages
    producer    the producer, transactions, recalls
    consumer    what push and pull consumers share
    push        the push consumer
    pull        the pull consumer
    simple      the simple consumer: single messages by POP
    admin       the admin client
    sync        the synchronous classes

Begin with `producer.producer` or `push.push_consumer`, and follow the calls down. Which room may import which
is in `tests/test_layers.py`.
"""
