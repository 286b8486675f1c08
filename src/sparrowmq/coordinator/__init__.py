"""The coordinator: managed groups, elected services, alarms, users and audit over a SQL database.

Its own process, never the broker's: no broker, client or store module imports it, and nothing here imports
them. Decisions (`plan`, `handover`, `leases.rules`, `alarms.machine`, `users.roles` and others) take
values and return values; what reads and writes the database stands beside them. The database needs the extra
`coordinator`; plans and hand-overs do not.
"""
