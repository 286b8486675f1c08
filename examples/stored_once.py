"""A producer that may repeat a send any number of times: the broker stores it once.

    python examples/stored_once.py 127.0.0.1:9876

Here, half of the responses are lost. The producer cannot know whether such a batch was stored, so it sends
the batch again with the same numbers, and the broker returns the position of the first copy.
"""

from __future__ import annotations

import random
import sys

import sparrowmq as mq
from sparrowmq.hooks import RpcHook
from sparrowmq.protocol.frame import Command

TOPIC = "ExampleReadings"
COUNT = 2000


class LosesAnswers(RpcHook):
    """A bad network: all requests arrive, but only half of the responses to sends."""

    def __init__(self) -> None:
        self.lost = 0
        self._rng = random.Random(7)

    def after_response(self, address: str, command: Command, answer: Command) -> None:
        """Lose a response."""
        if command.code == 320 and self._rng.random() < 0.5:
            self.lost += 1
            raise mq.ConnectionLostError("the answer was lost", address=address)


def main(namesrv: str) -> None:
    """Send readings over the bad network and count what is stored."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create(TOPIC, queues=2)
    network = LosesAnswers()
    settings = mq.ProducerSettings(namesrv=namesrv, hooks=(network,), idempotent=True, send_timeout=30.0)
    readings = [mq.Message(TOPIC, b"%d" % number) for number in range(COUNT)]
    with mq.Producer("example-sensors", settings=settings) as producer:
        for group in mq.split_batch(readings, count_max=50):
            producer.send_batch(group)
    with mq.PullConsumer("example-counting", namesrv=namesrv) as consumer:
        stored = sum(
            consumer.max_offset(queue) - consumer.min_offset(queue) for queue in consumer.queues(TOPIC)
        )
    print(f"{network.lost > 0 and 'answers were lost'}; {COUNT} sent, {stored} stored")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
