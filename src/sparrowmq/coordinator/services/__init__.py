"""Timer services under elected leaders: schedules, runs, settings, and the services themselves (pmq:2).

`base` has the common parts; the services are in `groups`, `brokers` and `housekeeping`.
"""
