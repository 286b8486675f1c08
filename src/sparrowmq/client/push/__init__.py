"""The push consumer: messages are passed to handlers, or iterated with `async for`.

Owns the member with its assigned queues, concurrent and ordered consumption, the workers that run handlers,
and the return of failed messages.

May import: base, cluster, consumer, tracing.
Begin with `member`, which joins the parts; `concurrent` processes a batch.
"""
