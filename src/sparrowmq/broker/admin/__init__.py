"""Requests of tools and operators: topics, groups, queries, statistics, runtime information, settings.

Owns one handler class per family of requests.

May import: base, housekeeping, pop, pull, tables.
Begin with `admin`; the table from code to handler is in `broker/server.py`.
"""
