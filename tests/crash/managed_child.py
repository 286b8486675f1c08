"""A member of a managed group in a process of its own, to be frozen.

Arguments: name server, group, directory. Its one handler writes `begin <body>` to the file `journal`, and
ends once the file `gate` is there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import sparrowmq as mq

POLL_SECONDS = 0.01


def main(namesrv: str, group: str, directory: str) -> None:
    """Consume until killed."""
    gate = Path(directory, "gate")
    journal = Path(directory, "journal").open("a", buffering=1)  # noqa: SIM115 - open as long as the process

    def handle(message: mq.ReceivedMessage) -> None:
        journal.write(f"begin {message.body.decode()}\n")
        while not gate.exists():
            time.sleep(POLL_SECONDS)

    settings = mq.ConsumerSettings(managed=True, consume_from="first", threads=1)
    with mq.PushConsumer(group, namesrv=namesrv, settings=settings) as consumer:
        consumer.subscribe("Orders", handler=handle)
        consumer.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
