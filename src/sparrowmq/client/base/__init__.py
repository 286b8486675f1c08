"""The base of all clients: settings and their checks, hooks, lifecycle states, background tasks.

Owns values and small helpers that need no connection: `settings`, `hooks`, `lifecycle`, `tasks`, `callables`.

May import: no other room.
Begin with `settings`: every option of every client, with its unit and default.
"""
