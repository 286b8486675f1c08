"""Hooks: counting and timing sends, adding a property to every message, rejecting some.

python examples/hooks.py 127.0.0.1:9876
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import sparrowmq as mq
from sparrowmq.hooks import CheckForbiddenContext, CheckForbiddenHook, SendContext, SendHook


class Metrics(SendHook):
    """Counts how sends end and how long they take; marks every message with the request it belongs to."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.seconds = 0.0

    def before_send(self, context: SendContext) -> None:
        """Called before every attempt."""
        context.data = time.perf_counter()
        context.properties["request"] = "r-17"

    def after_send(self, context: SendContext) -> None:
        """Called after every attempt."""
        self.seconds += time.perf_counter() - context.data
        self.outcomes["failed" if context.error else "stored"] += 1


class NoSecrets(CheckForbiddenHook):
    """Rejects bodies that look like secrets."""

    def check_forbidden(self, context: CheckForbiddenContext) -> None:
        """Raise to reject the message."""
        if context.message.body.startswith(b"password="):
            raise mq.ClientError("secrets may not be sent")


def main(namesrv: str) -> None:
    """Send with both hooks."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create("Watched", queues=1)
    metrics = Metrics()
    settings = mq.ProducerSettings(namesrv=namesrv, hooks=(metrics, NoSecrets()))
    with mq.Producer("watched", settings=settings) as producer:
        producer.send(mq.Message("Watched", b"hello"))
        try:
            producer.send(mq.Message("Watched", b"password=1234"))
        except mq.ClientError as error:
            print("refused:", error)
    print(dict(metrics.outcomes))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
