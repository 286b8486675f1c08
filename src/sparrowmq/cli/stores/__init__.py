"""`sparrow store`, `backup` and `restore`: store directories, without a broker.

May import: base.
Begin with `store`.
"""
