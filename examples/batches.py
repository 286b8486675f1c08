"""Many small messages: explicit batches, and batches collected by the producer.

python examples/batches.py 127.0.0.1:9876
"""

from __future__ import annotations

import sys

import sparrowmq as mq

COUNT = 1000


def main(namesrv: str) -> None:
    """Send the same messages in both ways and count what is stored."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create("Readings", queues=4)
    readings = [mq.Message("Readings", b"%d" % number) for number in range(COUNT)]
    with mq.Producer("meters", namesrv=namesrv) as producer:
        requests = [producer.send_batch(group) for group in mq.split_batch(readings, bytes_max=16 * 1024)]
        print(f"{COUNT} messages in {len(requests)} batches")
    settings = mq.ProducerSettings(namesrv=namesrv, linger=0.005)
    with mq.Producer("meters", settings=settings) as producer:
        futures = [producer.send_async(message) for message in readings]
        results = [future.result() for future in futures]
        print(f"{len(results)} messages gathered by the producer, each with its own id and offset")
    with mq.PullConsumer("audit", namesrv=namesrv) as consumer:
        stored = sum(consumer.max_offset(queue) for queue in consumer.queues("Readings"))
        print(f"{stored} stored")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
