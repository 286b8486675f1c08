"""Alarms: what fires, who was told, and who took it on (pmq:T3)."""
