"""Delayed messages: by delay level, after some seconds, at a given time.

python examples/delay.py 127.0.0.1:9876
"""

from __future__ import annotations

import sys
import time

import sparrowmq as mq


def main(namesrv: str) -> None:
    """Send three messages that come a second later, in three ways, and wait for them."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create("Reminders", queues=1)
    with mq.Producer("reminders", namesrv=namesrv) as producer:
        producer.send(mq.Message("Reminders", b"by level", delay_level=1))
        producer.send(mq.Message("Reminders", b"after a second", delay=1.0))
        producer.send(mq.Message("Reminders", b"at a moment", deliver_at=time.time() + 1.0))
    settings = mq.ConsumerSettings(namesrv=namesrv, consume_from="first")
    with mq.PushConsumer("reminded", settings=settings) as consumer:
        consumer.subscribe("Reminders")
        for number, message in enumerate(consumer, 1):
            message.ack()
            waited = message.store_timestamp - message.born_timestamp
            print(f"{message.body.decode()}: {waited / 1000:.1f} s after it was sent")
            if number == 3:
                break


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
