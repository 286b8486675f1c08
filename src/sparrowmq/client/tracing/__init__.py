"""Message tracing: sends and consumption are recorded in the trace topic. Off by default.

Owns the `dispatcher`, which collects and sends traces, and `on_demand`, which loads it only where settings
ask for it.

May import: base, cluster, send.
Begin with `dispatcher`.
"""
