"""Following one message: producers and consumers write traces, and the program reads them.

    python examples/trace.py 127.0.0.1:9876

The same from a shell: `sparrow trace ID`. Brokers create the trace topic with `traceTopicEnable`, or
automatically with `autoCreateTopicEnable`.
"""

from __future__ import annotations

import sys

import sparrowmq as mq

TOPIC = "ExampleParcels"


def main(namesrv: str) -> None:
    """Send and consume with tracing on, then print the path of the message."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create(TOPIC, queues=1)
    settings = mq.ProducerSettings(namesrv=namesrv, trace=True)
    with mq.Producer("example-senders", settings=settings) as producer:
        sent = producer.send(mq.Message(TOPIC, b"a parcel", keys="parcel-1"))
    consuming = mq.ConsumerSettings(namesrv=namesrv, consume_from="first", trace=True)
    with mq.PushConsumer("example-receivers", settings=consuming) as consumer:
        consumer.subscribe(TOPIC)
        for message in consumer:
            message.ack()
            break
    with mq.Admin(namesrv) as admin:  # clients write their records when they close, or after a few seconds
        for record in admin.messages.trace(sent.message_id):
            print(type(record).__name__.removesuffix("Trace"), getattr(record, "group", ""))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
