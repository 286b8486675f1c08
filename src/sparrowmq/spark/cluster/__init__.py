"""How Spark processes connect to a cluster: shared clients on the event loop of the process, retries.

May import: offsets, options.

Begin with `clients`: the clients of a process, kept between tasks. `faults` says which faults are temporary,
`retry` how long a task waits for a broker, `garbage` which objects the collector skips.
"""
