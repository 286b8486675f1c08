"""Users and permissions: people, their roles, passwords and tokens.

May import: alarms, database, records.
Begin with `roles`: what each role allows.
"""
