"""The store: commit log, consume queues, checkpoint, recovery, consumer offsets and configuration files.

Its files are byte for byte those of RocketMQ, so each side can open a directory that the other has closed.
One `MessageStore` owns one directory; all its calls but `flush` and `flush_queues` belong to one event loop.
The store handles records and queues; topics, groups, connections and permissions belong to the broker. Next
to the rooms are `message_store` (what the broker sees), `writer` with `packing` (appending), and
`queue_deletion`. The rooms, each with a docstring that says what it owns:

    base       settings, files in sequence, the lock, counters
    log        the commit log, the walk through it, which files may be deleted
    queues     consume queues, reads, the search by time
    index      the key index
    tables     small files that are rewritten as a whole: configuration, offsets, producer states
    timers     timer log and timer wheel
    recovery   opening a store

Begin with `message_store`, then `writer` for writes and `queues.reads` for reads. Which room may import which
is in `tests/test_layers.py`.
"""
