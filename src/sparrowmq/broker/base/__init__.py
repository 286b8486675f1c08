"""Shared by several rooms: the broker's own writes, group commit, offsets, registration, answers that wait.

Owns `internal_store` (writes of the broker itself), `flushing`, the requests for `offsets`, and
`registration`.

May import: tables.
Begin with `internal_store` and `flushing`.
"""
