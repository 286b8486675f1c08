"""A client's connection to a cluster: connections, name servers, routes, heartbeats, and requests.

Owns the `ClientInstance` that producers, consumers and admin clients of one client id share, what it knows
about brokers, and one method for each request (`broker_api`, and `pop_calls` for those of POP).

May import: base.
Begin with `instance`, then `broker_api`.
"""
