"""POP: delivers single messages for an invisible time; no member owns a queue (broker:13).

A POP stores a check point in the revive topic, raises the group's offset, and answers; an acknowledgement is
a message of that topic, too. Messages without an acknowledgement at the end of their invisible time go to a
retry topic. Owns the hand-out (`pop_path`), the waiting requests (`waiting`), the acknowledgements (`acks`),
the return of messages (`revive`, with its decisions in `check_points`), ordered hand-outs (`order`), the
offsets after a crash (`replay`) and who gets a topic by POP (`request_modes`); `pop_service` joins them.

May import: base, delay, members, tables.
Begin with `pop_path`, then `revive`.
"""
