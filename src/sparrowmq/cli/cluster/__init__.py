"""Commands about brokers, topics, groups, access and holds, which call name servers and brokers.

May import: base.
Begin with `topics`.
"""
