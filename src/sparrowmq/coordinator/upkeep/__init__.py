"""Decisions of the services for disks, retention, consistency and governance. Pure.

May import: records.
Begin with `landscape`, the input of the rules.
"""
