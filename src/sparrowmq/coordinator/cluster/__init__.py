"""Queries of the services to brokers and name servers.

May import: cluster.bodies, groups, upkeep.
Begin with `view`.
"""
