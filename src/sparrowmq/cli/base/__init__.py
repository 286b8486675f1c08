"""Shared by the commands: options, output, times, identity, and calls of a coordinator.

May import: no other room.
Begin with `common`.
"""
