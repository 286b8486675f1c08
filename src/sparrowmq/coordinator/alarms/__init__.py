"""Alarms: their states, notices and acknowledgements (pmq:T3).

May import: database, records.
Begin with `machine`, the table of an alarm's states, then `table`.
"""
