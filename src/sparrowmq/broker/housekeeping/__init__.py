"""Background work on stored data: deletion of old files, retention holds, the key index.

Owns when this work runs and how much is done at a time; `store.log.retention` decides what may be deleted.

May import: base, tables.
Begin with `cleaning`.
"""
