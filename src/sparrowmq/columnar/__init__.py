"""Stored records as Arrow columns, and Arrow columns as batch bodies.

`decode` turns a chunk of stored records into a `pyarrow.RecordBatch`, `encode` turns columns into the body of
a batch send. The byte layouts are `sparrowmq.protocol`'s. Needs numpy and pyarrow: `pip install
'sparrowmq[columnar]'`; nothing outside this package and `sparrowmq.spark` imports them.
"""
