"""The admin client: topics, groups, access, dead letters, queries, tables of brokers and name servers.

Owns the public asyncio `Admin`; each module is one part of its calls.

May import: base, cluster.
Begin with `admin`, then `calls`, which all parts use.
"""
