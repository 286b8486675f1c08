"""Routes about brokers, members and pipelines: access control, clients, progress, searches.

A part of the room `api`, whose rules hold here.
"""
