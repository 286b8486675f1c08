"""The store: commit log, consume queues, checkpoint, recovery, consumer offsets and configuration files.

It keeps RocketMQ's files byte for byte, so either side opens a directory the other has closed. One
`MessageStore` owns one directory; all its calls but `flush` and `flush_queues` belong to one event loop. The
store knows records and queues. Topics, groups, connections and permissions are the broker's.
"""
