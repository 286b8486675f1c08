"""The synchronous classes over the asyncio ones.

Owns the synchronous classes (`sync_generated`, written by `scripts/generate_sync.py`) and what they share
(`sync_base`). They use the loop thread of the process (`loops.event_loop`).

May import: admin, base, cluster, consumer, producer, pull, push, send, simple.
Begin with `sync_base`.
"""
