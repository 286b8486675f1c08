"""Bodies of messages: decompressed with a limit, and decoded with the schemas of a file. No queries.

May import: no other room.
"""
