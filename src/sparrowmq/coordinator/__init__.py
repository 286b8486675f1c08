"""The coordinator: services under elected leaders, alarms, users and audit, over a SQL database.

Its own process, never the broker's: no broker, client or store module imports it, and nothing here imports
them. Decisions (`leases.rules`, `services.schedule`, `alarms.machine`, `users.roles`) take values and return
values; what reads and writes the database stands beside them. Needs the extra `coordinator`.
"""
