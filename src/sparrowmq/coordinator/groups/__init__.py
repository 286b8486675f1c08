"""Managed groups: plans, hand-overs, and their settings.

May import: database, records, services.base.
Begin with `plan` and `handover`, which decide, then `leader`, which acts.
"""
