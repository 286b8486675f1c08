"""`sparrow bench`: how fast a cluster takes messages and gives them back."""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    namesrv_or_default,
    print_json,
    print_table,
    run,
    say,
)
from sparrowmq.core.message import Message

if TYPE_CHECKING:
    from sparrowmq import aio
    from sparrowmq.core.message import MessageQueue, ReceivedMessage

GROUP: Final = "sparrow-bench"
RUN_BYTES: Final = 8
"""At the start of each body: whose run it is. Then `NUMBER_BYTES`: which message."""
NUMBER_BYTES: Final = 8
PULL_MESSAGES: Final = 4096
MESSAGES_MAX: Final = 10_000_000
MIB: Final = 1024 * 1024
Ends = dict["MessageQueue", int]


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: `messages` bodies of `size` bytes to one topic, at most `in_flight` at a time."""

    topic: str
    messages: int
    size: int
    in_flight: int
    linger: float | None

    def rate(self, seconds: float) -> dict[str, float]:
        """Messages and MiB per second of all messages."""
        per_second = self.messages / max(seconds, 1e-9)
        return {"messages_per_s": round(per_second), "mib_per_s": round(per_second * self.size / MIB, 2)}


def bench(
    topic: Annotated[str, typer.Argument(help="Topic to send to. Its consumers get the messages, too.")],
    messages: Annotated[int, typer.Option(min=1, max=MESSAGES_MAX, help="Messages to send.")] = 100_000,
    size: Annotated[
        int, typer.Option(min=RUN_BYTES + NUMBER_BYTES, max=4 * MIB, help="Bytes of each body.")
    ] = 1024,
    in_flight: Annotated[int, typer.Option(min=1, max=4096, help="Sends in flight at a time.")] = 64,
    linger: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Collect sends for so many seconds into batches. Default: do not."
        ),
    ] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Measure how fast one client sends messages and reads them back, and check that each is there once.

    Latencies are those of single sends, from the call to the broker's answer. The messages stay in the topic,
    so use one of your own.
    """
    load = Load(topic, messages, size, in_flight, linger)
    found = run(_measure(namesrv_or_default(namesrv), load))
    if as_json:
        print_json(found)
    else:
        _show(found)
    if found["missing"]:
        raise UsageError(
            f"{found['missing']} of {messages} acknowledged messages were not read back from {topic}; "
            "compare `sparrow topic status` and the retention of the brokers",
            what="messages",
            value=found["missing"],
        )


async def _measure(namesrv: str, load: Load) -> dict[str, Any]:
    from sparrowmq import aio

    run_id = os.urandom(RUN_BYTES)
    async with (
        aio.Producer(GROUP, namesrv=namesrv, linger=load.linger) as producer,
        aio.PullConsumer(GROUP, namesrv=namesrv) as reader,
    ):
        await producer.send(Message(load.topic, b"connect"))  # also creates the topic if brokers may
        begins = await _ends(reader, load.topic)
        spent, latencies = await _send(producer, load, run_id)
        counts = bytearray(load.messages)
        began = time.perf_counter()
        for queue, end in (await _ends(reader, load.topic)).items():
            await _read(reader, queue, begins.get(queue, 0), end, run_id, counts)
        read = time.perf_counter() - began
    return {
        "topic": load.topic,
        "messages": load.messages,
        "size": load.size,
        "in_flight": load.in_flight,
        "send": {"seconds": round(spent, 3), **load.rate(spent), **_percentiles(latencies)},
        "read": {"seconds": round(read, 3), **load.rate(read)},
        "missing": counts.count(0),
        "doubled": load.messages - counts.count(0) - counts.count(1),
    }


async def _send(producer: aio.Producer, load: Load, run_id: bytes) -> tuple[float, array[float]]:
    """Send everything. Returns the seconds that it took, and those of each send. Raises the first error."""
    filling = os.urandom(load.size - RUN_BYTES - NUMBER_BYTES)
    numbers = iter(range(load.messages))
    latencies = array("f")

    async def work() -> None:
        for number in numbers:
            message = Message(load.topic, b"%b%b%b" % (run_id, number.to_bytes(NUMBER_BYTES), filling))
            began = time.perf_counter()
            await producer.send(message)
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(load.in_flight, load.messages)):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return time.perf_counter() - began, latencies


async def _ends(reader: aio.PullConsumer, topic: str) -> Ends:
    return {queue: await reader.max_offset(queue) for queue in await reader.queues(topic)}


async def _read(
    reader: aio.PullConsumer, queue: MessageQueue, offset: int, end: int, run_id: bytes, counts: bytearray
) -> None:
    """Count this run's messages in a queue, up to twice each."""
    while offset < end:
        found = await reader.pull(queue, offset, max_messages=PULL_MESSAGES)
        if found.next_offset <= offset:
            raise UsageError(
                f"{queue} at offset {offset}: the broker answers {found.status.name} before the end, {end}",
                what="offset",
                value=offset,
                limit=end,
            )
        _count(found.messages, run_id, counts)
        offset = found.next_offset


def _count(messages: Sequence[ReceivedMessage], run_id: bytes, counts: bytearray) -> None:
    for message in messages:
        body = message.body
        if body.startswith(run_id):
            number = int.from_bytes(body[RUN_BYTES : RUN_BYTES + NUMBER_BYTES])
            counts[number] = min(counts[number] + 1, 2)


def _percentiles(seconds: array[float]) -> dict[str, float]:
    """Latencies in milliseconds."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: round(ordered[int(last * share)] * 1000, 3) for name, share in shares.items()}


def _show(found: dict[str, Any]) -> None:
    send, read = found["send"], found["read"]
    columns = ("", "seconds", "messages/s", "MiB/s", "p50 ms", "p99 ms", "max ms")
    print_table(columns, [("send", *send.values()), ("read", *read.values(), "", "", "")], right=columns[1:])
    say(
        f"{found['messages']} messages of {found['size']} bytes in {found['topic']}: {found['missing']} "
        f"missing, {found['doubled']} twice"
    )
