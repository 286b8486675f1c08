"""The broker: request handlers over a store, on one event loop.

All state of a broker is accessed only on its loop, so nothing here takes a lock. Next to the rooms are
`server` (the listener and its place in a cluster), `parts` (the one place that makes and wires the parts of a
broker), `request_table` (from request code to handler), `chunk` (what one read of a socket brought, sorted)
and the wiring of larger parts (`exchange`, `upkeep`). The rooms; the docstring of each says what it owns:

    tables         topics, groups, connected clients
    base           the broker's own writes, group commit, offsets, registration
    access         who is asking, and may they
    delay          delay levels, timed messages, messages sent back, recalls
    transactions   half messages, their ends, asking producers
    send           the send path
    members        heartbeats, subscriptions, filters, locks, fences of managed groups
    pull           the pull path and held pulls
    pop            POP: hand-outs, acknowledgements, what comes back
    housekeeping   deleting old files, retention holds, the key index
    admin          requests of tools and operators

Begin with `chunk`, then `send.send_path` and `pull.pull_path`, the hot paths. `tests/test_layers.py` says
which room may import which.
"""
