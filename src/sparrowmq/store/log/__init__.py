"""The commit log: all records one after the other, and the scan of them.

Owns the files of the log, the scan with its checks of each record, and which files may be deleted.

May import: base.
Begin with `commit_log`; records are appended by `store.writer`.
"""
