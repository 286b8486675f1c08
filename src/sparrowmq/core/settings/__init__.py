"""The settings of name server, broker, coordinator and gRPC proxy.

Owns the tables of settings (`servers`, `coordinator`, `proxy`, and `shared_rows` for what they have in
common), the texts they are read from (`text`), those of TLS (`tls`), and the names of RocketMQ's settings
that have no effect here (`without_effect`).

May import: core.
Begin with `servers`.
"""
