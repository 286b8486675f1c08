"""A shop that sends orders, for the programs that read them.

python examples/shop.py 127.0.0.1:9876
"""

from __future__ import annotations

import sys

import sparrowmq as mq

TOPIC = "ExampleOrders"
ORDERS = 1000


def send(namesrv: str) -> None:
    """Send the orders, the same number to each queue."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create(TOPIC, queues=4)
    with mq.Producer("example-shop", namesrv=namesrv) as producer:
        for queue in producer.queues(TOPIC):
            orders = [mq.Message(TOPIC, b"order %d" % number) for number in range(ORDERS // 4)]
            producer.send_batch(orders, queue=queue)


def main(namesrv: str) -> None:
    """Send the orders and print a line."""
    send(namesrv)
    print(f"{ORDERS} orders are sent")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
