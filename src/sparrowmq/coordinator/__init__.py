"""The coordinator: managed groups, elected services, alarms, users and audit over a SQL database.

It runs in its own process, never in the broker's: no broker, client or store module imports it. Decisions
(`plan`, `handover`, `leases.rules`, `alarms.machine`, `users.roles` and others) take values and return
values; the modules that read and write the database are next to them. The database needs the extra
`coordinator`; plans and hand-overs do not. The rooms:

    database   connections, tables, migrations
    records    the audit log, and what services found
    users      people, roles, passwords, tokens
    alarms     states of alarms and their notices
    leases     who leads a service
    services   the services, and what every service stands on
    groups     managed groups: plans and hand-overs
    upkeep     decisions about disks, retention, consistency and governance
    cluster    what the services ask of brokers and name servers
    history    figures over time, for charts
    api        the HTTP API

Begin with `server`, which wires all of them. Which room may import which is in `tests/test_layers.py`.
"""
