"""Figures for operators, in Prometheus' format (`core.figures.exposition`).

Owns the names of the metrics, and computes them from what the other rooms count. Runs only when `/metrics` is
requested: in a thread of the scrape, and what only the loop can tell in small steps of the loop.

May import: admin, base, delay, housekeeping, members, pop, pull, replication, tables, transactions.
Begin with `traffic`; `broker/operated.py` collects all of them.
"""
