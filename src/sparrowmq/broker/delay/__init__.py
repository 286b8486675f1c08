"""Messages that wait: delay levels, timed messages, messages sent back for a later try, and recalls.

Owns where such messages wait (`rerouting`, `timer_slots`) and who delivers them (`schedule`, `timer`);
`delayed_messages` joins the parts.

May import: base, tables.
Begin with `rerouting`.
"""
