"""Reads, checks, repairs, copies, backs up and restores store directories without a broker.

Owns the work of `sparrow store`, `backup` and `restore`. Nothing here changes a directory that a broker has
open. Only repair changes the directory that it works on.

May import: store, base, index, log, queues, recovery, tables, timers.
Begin with `directory`, then `verify`.
"""
