"""Producers, consumers and the admin client.

asyncio is the native form; `sparrowmq.aio` offers it, `sparrowmq` the synchronous facade over it. One
`ClientInstance` per client object owns connections, routes and heartbeats; everything lives on one event
loop.
"""
