"""A member of a group in a process of its own, for tests that signal it.

Arguments: name server, group, kind, journal, seconds of a handler.

The journal gets a line for each event: `has <queues>`, `begin <body>`, `end <body>`, `closed`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any

import sparrowmq as mq
from sparrowmq import aio

POLL_SECONDS = 0.01


class Child:
    """Consumes `group` (which is the topic, too) in one of the ways there are."""

    def __init__(self, namesrv: str, group: str, kind: str, journal: str, seconds: str) -> None:
        self.kind = kind
        self.seconds = float(seconds)
        self.topic = group
        self._journal = Path(journal).open("a", buffering=1)  # noqa: SIM115 - open as long as the process
        settings = mq.ConsumerSettings(
            namesrv=namesrv,
            consume_from="first",
            ordered="ordered" in kind,
            threads=3,
            rebalance_interval_min=0.02,
            close_timeout=0.5 if kind == "hung" else 20,
        )
        made: Any = aio.PushConsumer if "async" in kind else mq.PushConsumer
        self.consumer = made(group, settings=settings)

    def note(self, *words: object) -> None:
        """Write a line."""
        self._journal.write(" ".join(map(str, words)) + "\n")

    def handle(self, message: mq.ReceivedMessage) -> None:
        """A plain handler that takes its time."""
        self.note("begin", message.body.decode())
        time.sleep(3600 if self.kind == "hung" else self.seconds)
        self.note("end", message.body.decode())

    async def handle_async(self, message: mq.ReceivedMessage) -> None:
        """An async one."""
        self.note("begin", message.body.decode())
        await asyncio.sleep(self.seconds)
        self.note("end", message.body.decode())

    def watch(self) -> None:
        """Note how many queues of the topic there are, whenever that changes. Runs in a thread."""
        noted = -1
        while self.consumer.state is mq.State.RUNNING:
            held = sum(queue.topic == self.topic for queue in self.consumer.assignment)
            if held != noted:
                noted = held
                self.note("has", held)
            time.sleep(POLL_SECONDS)

    def run(self) -> None:
        """The synchronous kinds."""
        loops = "loop" in self.kind
        self.consumer.subscribe(self.topic, handler=None if loops else self.handle)
        with self.consumer:
            threading.Thread(target=self.watch, daemon=True).start()
            self.consumer.close_on_signals()
            if loops:
                for message in self.consumer:
                    self.handle(message)
                    assert message.ack()
            else:
                self.consumer.wait()
        self.note("closed")

    async def run_async(self) -> None:
        """The asyncio kinds."""
        loops = "loop" in self.kind
        self.consumer.subscribe(self.topic, handler=None if loops else self.handle_async)
        async with self.consumer:
            threading.Thread(target=self.watch, daemon=True).start()
            self.consumer.close_on_signals()
            if loops:
                async for message in self.consumer:
                    await self.handle_async(message)
                    assert await message.ack()
            else:
                await self.consumer.wait()
        self.note("closed")


if __name__ == "__main__":
    child = Child(*sys.argv[1:])
    if "async" in child.kind:
        asyncio.run(child.run_async())
    else:
        child.run()
