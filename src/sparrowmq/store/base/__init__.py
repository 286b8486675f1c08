"""The base of the store's rooms: settings, files in sequence, number files, the lock, counters.

Owns `SegmentSequence` (files of equal size that form one range of bytes) and the `StoreSettings`.

May import: no other room.
Begin with `segments`.
"""
