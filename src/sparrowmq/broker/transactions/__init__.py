"""Transactions: half messages, their ends, and checks with producers.

Owns the decisions (`half_messages`), the end of a transaction and the check back.

May import: base, delay, tables.
Begin with `half_messages`; `check_back` runs the rest.
"""
