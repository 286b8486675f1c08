"""Each order counts once although messages may arrive twice: the id is stored with its effect.

    python examples/deduplicate.py 127.0.0.1:9876

A broker delivers a message at least once: after a crash, a timeout or a retry it may arrive again, and a
producer that got no response may send it again. The program writes the key of the order in the same database
transaction as its effect, so it recognizes the second message.
"""

from __future__ import annotations

import sqlite3
import sys

import sparrowmq as mq

TOPIC = "ExamplePayments"
PAYMENTS = {"pay-1": 30, "pay-2": 12, "pay-3": 8}


def book(database: sqlite3.Connection, key: str, amount: int) -> bool:
    """Book a payment unless it is already booked. Returns whether it was new."""
    with database:  # both statements or none
        known = database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount == 0
        if not known:
            database.execute("UPDATE account SET balance = balance + ?", (amount,))
    return not known


def main(namesrv: str) -> None:
    """Send every payment twice, like a producer that lost a response, and book each once."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create(TOPIC, queues=2)
    with mq.Producer("example-payers", namesrv=namesrv) as producer:
        for key, amount in [*PAYMENTS.items()] * 2:
            producer.send(mq.Message(TOPIC, b"%d" % amount, keys=key))
    database = sqlite3.connect(":memory:")
    database.executescript("CREATE TABLE seen (key PRIMARY KEY); CREATE TABLE account (balance)")
    database.execute("INSERT INTO account VALUES (0)")
    settings = mq.ConsumerSettings(namesrv=namesrv, consume_from="first")
    with mq.PushConsumer("example-accounts", settings=settings) as consumer:
        consumer.subscribe(TOPIC)
        for number, message in enumerate(consumer, 1):
            new = book(database, message.keys[0], int(message.body))
            message.ack()  # after the commit: after a crash in between, the message comes again
            print(message.keys[0], "booked" if new else "known already")
            if number == 2 * len(PAYMENTS):
                break
    ((balance,),) = database.execute("SELECT balance FROM account")
    print("balance:", balance)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
