"""Commands that run servers: `sparrow up|nameserver|broker|proxy|coordinator|torture`.

May import: base.
Begin with `servers`.
"""
