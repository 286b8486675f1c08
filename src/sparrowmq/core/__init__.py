"""Pure values and decisions shared by every other package.

`core` owns messages, queues, routes, results, errors, names, ids, allocation strategies, back-off and the
settings table. It imports nothing else of SparrowMQ and does no I/O. Its rooms `allocation` and `settings`
may import the modules beside them.

Begin with `message` and `errors`.
"""
