"""Figures over time, for charts: how fine they are kept and how long, how they are packed, and their tables.

May import: database.
Begin with `grains`; `store` is what reads and writes.
"""
