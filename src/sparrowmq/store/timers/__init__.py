"""Timed messages on disk: the timer log, the timer wheel, and their checkpoint.

Owns the three files and their consistency; the broker decides what is planned and delivered.

May import: base.
Begin with `timers`.
"""
