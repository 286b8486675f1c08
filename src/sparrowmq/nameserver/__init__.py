"""The name server: knows which brokers are alive, and which of them serve a topic.

`registry` decides, `kv` keeps the key-value tables, `handlers` speak the protocol, `server` listens and
watches.
"""
