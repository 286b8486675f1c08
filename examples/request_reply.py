"""Send a request to a service over a topic and wait for its reply.

    python examples/request_reply.py 127.0.0.1:9876

Any number of services share the requests as members of one consumer group; the reply goes directly to the
requester.
"""

from __future__ import annotations

import asyncio
import sys

from sparrowmq import ConsumerSettings, Message, ReceivedMessage, aio


async def ask(namesrv: str) -> None:
    """Run a service that adds numbers, and ask it."""
    async with aio.Admin(namesrv) as admin:
        await admin.topics.create("Sums", queues=2)
    settings = ConsumerSettings(namesrv=namesrv, consume_from="first")
    async with (
        aio.Producer("sum-service", namesrv=namesrv) as answers,
        aio.PushConsumer("sum-service", settings=settings) as service,
        aio.Producer("sum-clients", namesrv=namesrv) as client,
    ):

        async def add(message: ReceivedMessage) -> None:
            numbers = [int(word) for word in message.body.split()]
            await answers.reply(message, str(sum(numbers)).encode())

        service.subscribe("Sums", handler=add)
        questions = [f"{number} 1" for number in range(5)]
        replies = await asyncio.gather(
            *(client.request(Message("Sums", question.encode()), 30.0) for question in questions)
        )
        for question, reply in zip(questions, replies, strict=True):
            print(question, "=", reply.body.decode())


def main(namesrv: str) -> None:
    """Ask five questions at once."""
    asyncio.run(ask(namesrv))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
