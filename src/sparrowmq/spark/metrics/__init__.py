"""Streaming queries for Prometheus: what they do, how far they are behind, why they ended.

May import: bodies, cluster, offsets, options, read.

Begin with `listener`: it receives Spark's events. `figures` stores them, `cluster` asks for the ends of
queues, `collector` exports them, `http` serves them. `progress` reads the same from one progress event.
"""
