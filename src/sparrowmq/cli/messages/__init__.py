"""Commands about messages: sending, consuming, queries, dead letters, traces.

May import: base.
Begin with `sends` and `consume`.
"""
