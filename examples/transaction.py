"""Orders are announced only after they are in the database: transactions with check-back.

    python examples/transaction.py 127.0.0.1:9876

The message is stored first and held back. Then `execute` writes the order; consumers get the message when it
says COMMIT and never when it says ROLLBACK. If this process dies in between, or the outcome is unknown, the
broker calls `check`, here or in any other process of the producer group.
"""

from __future__ import annotations

import sys
from typing import Any

import sparrowmq as mq


class Orders:
    """A table of orders, and the listener of its transactions."""

    def __init__(self) -> None:
        self.table: dict[str, str] = {}

    def execute(self, message: mq.HalfMessage, argument: Any) -> mq.TransactionState:
        """Store the order, or roll the message back if the order is not valid."""
        if argument["amount"] <= 0:
            return mq.TransactionState.ROLLBACK
        self.table[message.transaction_id] = argument["name"]
        return mq.TransactionState.COMMIT

    def check(self, message: mq.ReceivedMessage) -> mq.TransactionState:
        """Check whether the order is stored."""
        known = message.message_id in self.table
        return mq.TransactionState.COMMIT if known else mq.TransactionState.ROLLBACK


def main(namesrv: str) -> None:
    """Send two orders, one of which is refused, and read what consumers see."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create("OrderEvents", queues=1)
    orders = Orders()
    with mq.Producer("order-service", namesrv=namesrv, transaction_listener=orders) as producer:
        for name, amount in (("book", 12), ("nothing", 0)):
            event = mq.Message("OrderEvents", name.encode(), keys=name)
            result = producer.send_in_transaction(event, {"name": name, "amount": amount})
            print(name, result.state.name)
    settings = mq.ConsumerSettings(namesrv=namesrv, consume_from="first")
    with mq.PushConsumer("shipping", settings=settings) as consumer:
        consumer.subscribe("OrderEvents")
        for message in consumer:
            message.ack()
            print("to be shipped:", message.body.decode())
            break


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
