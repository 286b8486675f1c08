"""A batch job: read the messages since the last run, up to the end at the start of the job, then stop.

    python examples/nightly_batch.py 127.0.0.1:9876

The group stores the position. The job commits only after it has written its result, so a failed job is
repeated completely.
"""

from __future__ import annotations

import sys
from collections import Counter

import sparrowmq as mq

TOPIC = "ExampleSales"


def sell(namesrv: str, *articles: str) -> None:
    """Another program: it sends the sales of a day."""
    with mq.Producer("example-tills", namesrv=namesrv) as producer:
        for article in articles:
            producer.send(mq.Message(TOPIC, article.encode()))


def run(namesrv: str) -> Counter[str]:
    """One nightly run: count what was sold since the last one."""
    sold: Counter[str] = Counter()
    settings = mq.PullSettings(namesrv=namesrv, consume_from="first", auto_commit=False)
    with mq.PullConsumer("example-nightly", settings=settings) as consumer:
        ends = {queue: consumer.max_offset(queue) for queue in consumer.queues(TOPIC)}
        ends = {queue: end for queue, end in ends.items() if (consumer.committed(queue) or 0) < end}
        if not ends:
            return sold
        consumer.assign(ends)
        left = set(ends)
        while left:
            for message in consumer.poll(timeout=10):
                if message.queue_offset < ends[message.queue]:
                    sold[message.body.decode()] += 1
                if message.queue_offset >= ends[message.queue] - 1:
                    left.discard(message.queue)
        consumer.commit(ends)  # after the result is safe
    return sold


def main(namesrv: str) -> None:
    """Two days and two nights."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create(TOPIC, queues=4)
    sell(namesrv, "tea", "tea", "bread")
    print("first night:", dict(sorted(run(namesrv).items())))
    sell(namesrv, "milk")
    print("second night:", dict(sorted(run(namesrv).items())))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
