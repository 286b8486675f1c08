"""Timer services under elected leaders: schedule, runs, what people set, and the services themselves
(pmq:2).
"""
