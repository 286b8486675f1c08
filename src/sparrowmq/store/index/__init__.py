"""The key index: which records have a key, a unique key or a tag.

Owns the index files and the hashes of keys.

May import: base, log.
Begin with `index`.
"""
