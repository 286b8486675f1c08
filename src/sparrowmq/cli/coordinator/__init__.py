"""Commands that call a coordinator: managed groups, dynamic settings, services, alarms, people, drains.

May import: base.
Begin with `managed_groups`; `cli.base.remote` makes the calls.
"""
