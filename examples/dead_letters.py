"""Dead letters: messages that no handler can process are read and resent.

python examples/dead_letters.py 127.0.0.1:9876
"""

from __future__ import annotations

import sys
import threading

import sparrowmq as mq

TOPIC = "ExampleInvoices"
GROUP = "example-bookkeeping"


def consume(namesrv: str, wanted: int, *, knows_pounds: bool) -> list[bytes]:
    """Run the bookkeeping until it has seen `wanted` invoices. Returns the ones it booked."""
    booked: list[bytes] = []
    seen: list[bytes] = []
    enough = threading.Event()

    def handle(message: mq.ReceivedMessage) -> None:
        seen.append(message.body)
        if len(seen) == wanted:
            enough.set()
        if message.body.endswith(b"GBP") and not knows_pounds:
            raise mq.Retry("an unknown currency", dead=True)  # a retry would not help
        booked.append(message.body)

    settings = mq.ConsumerSettings(namesrv=namesrv, consume_from="first")
    with mq.PushConsumer(GROUP, settings=settings) as consumer:
        consumer.subscribe(TOPIC, handler=handle)
        assert enough.wait(30), seen
    return booked


def main(namesrv: str) -> None:
    """Send three invoices, one of which only the next release of the program understands."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create(TOPIC, queues=1)
    with mq.Producer("example-billing", namesrv=namesrv) as producer:
        for text in (b"10 EUR", b"20 GBP", b"30 EUR"):
            producer.send(mq.Message(TOPIC, text))
    print("booked:", consume(namesrv, 3, knows_pounds=False))
    with mq.Admin(namesrv) as admin:
        letters = admin.dead_letters.list(GROUP)
        print("dead:", [letter.body for letter in letters])
        admin.dead_letters.resend(GROUP, [letter.message_id for letter in letters])
    print("booked after all:", consume(namesrv, 1, knows_pounds=True))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
