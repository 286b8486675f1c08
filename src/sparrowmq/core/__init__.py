"""Pure values and decisions shared by every other package.

`core` owns messages, queues, routes, results, errors, names, ids, allocation strategies, back-off and
the settings table. It imports nothing of SparrowMQ and does no I/O.
"""
