"""Steps of orders, handled in order: one order's steps share a queue, and a queue has one handler at a time.

python examples/ordered.py 127.0.0.1:9876
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict

import sparrowmq as mq

TOPIC = "ExampleOrderSteps"
STEPS = (b"created", b"paid", b"packed", b"shipped")
ORDERS = 20


def send(namesrv: str) -> None:
    """Send every step of every order; equal keys share a queue."""
    with mq.Producer("example-orders", namesrv=namesrv) as producer:
        for step in STEPS:
            for order in range(ORDERS):
                producer.send(mq.Message(TOPIC, step, key=f"order-{order}"))


def consume(namesrv: str) -> dict[str, list[bytes]]:
    """Return the steps of each order as they were handled, one of them only at the second attempt."""
    steps: dict[str, list[bytes]] = defaultdict(list)
    done = threading.Event()

    def handle(message: mq.ReceivedMessage) -> None:
        order = message.key
        assert order is not None
        if order == "order-7" and message.body == b"paid" and message.reconsume_times == 0:
            raise mq.Retry("the bank does not answer", after=0.05)  # this queue waits, the others continue
        steps[order].append(message.body)
        if sum(map(len, steps.values())) == ORDERS * len(STEPS):
            done.set()

    with mq.PushConsumer("example-steps", namesrv=namesrv, consume_from="first", ordered=True) as consumer:
        consumer.subscribe(TOPIC, handler=handle)
        assert done.wait(30), "the steps did not come"
    return steps


def main(namesrv: str) -> None:
    """Send, consume, compare."""
    with mq.Admin(namesrv=namesrv) as admin:
        admin.topics.create(TOPIC, queues=4)
    send(namesrv)
    steps = consume(namesrv)
    assert len(steps) == ORDERS
    assert all(tuple(found) == STEPS for found in steps.values())
    print(f"{ORDERS} orders, each through {len(STEPS)} steps in order")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
