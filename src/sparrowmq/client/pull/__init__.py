"""The pull consumer: the application requests messages, by offset or by polling.

Owns the public asyncio `PullConsumer`, polling, pulls by offset, its membership in a group, and schedules
of pulls.

May import: base, cluster, consumer, tracing.
Begin with `pull_consumer`; `polling` reads ahead in the background.
"""
