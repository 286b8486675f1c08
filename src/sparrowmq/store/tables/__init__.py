"""Small files that are rewritten as a whole: configuration files, consumer offsets, delay offsets, producer
states.

Owns their formats and how they are saved.

May import: no other room.
Begin with `config_file`.
"""
