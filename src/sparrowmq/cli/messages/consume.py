"""`sparrow consume`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from sparrowmq.cli.base.common import Namesrv, UsageError, namesrv_or_default, print_json, run, say
from sparrowmq.cli.base.times import moment, usual_zone
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.subscription import Expression, Sql

if TYPE_CHECKING:
    from sparrowmq import aio
    from sparrowmq.core.message import MessageQueue, ReceivedMessage

Reading = AsyncGenerator["ReceivedMessage | None", None]
"""First None, when reading begins, then messages."""

HAND_MAX: Final = 256
"""Maximum messages that were read but not printed; the queues wait then."""
WAIT_SECONDS: Final = 5.0
"""Seconds that the broker may hold a pull without messages."""
PULL_MESSAGES: Final = 32


class Format(StrEnum):
    """The output format of received messages."""

    TEXT = "text"
    JSON = "json"


def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    group: Annotated[
        str | None,
        typer.Option(help="Consume as a member of this group and commit. Default: read without a group."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="last, first, or a time such as 2024-05-01T12:00.")
    ] = "last",
    tags: Annotated[str, typer.Option(help="Tag expression, for example 'TagA || TagB'.")] = "*",
    sql: Annotated[
        str | None, typer.Option(help="SQL92 filter over properties, for example \"a > 5 AND b = 'x'\".")
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="With --group: each queue in order, by one member at a time.")
    ] = False,
    broadcasting: Annotated[
        bool,
        typer.Option("--broadcasting", help="With --group: broadcasting, every member gets every message."),
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this number of messages.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after this number of seconds without a message.")
    ] = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="How to print messages; text: time stored, queue, offset, tag or -, and body."
        ),
    ] = Format.TEXT,
    namesrv: Namesrv = None,
) -> None:
    """Print the messages of a topic until Ctrl-C, SIGTERM, --count or --timeout."""
    begin = _start(start)
    address = namesrv_or_default(namesrv)
    if sql is not None and tags != "*":
        raise UsageError("--tags and --sql: give one of them; in SQL the tag is the property TAGS")
    wanted = tags if sql is None else Sql(sql)
    if group is None and (ordered or broadcasting):
        raise UsageError("--ordered and --broadcasting apply to consumer groups: give --group as well")
    if group is None:
        reading = _look(address, topic, begin, wanted)
    else:
        import sparrowmq as mq

        model: Literal["clustering", "broadcasting"] = "broadcasting" if broadcasting else "clustering"
        settings = mq.ConsumerSettings(namesrv=address, consume_from=begin, ordered=ordered, model=model)
        reading = _join(group, topic, wanted, settings)
    run(_consume(reading, count, timeout, form))


def _start(text: str) -> Any:
    if text in ("first", "last"):
        return text
    try:
        return moment(text)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--from {text}: give last, first, or a time such as 2024-05-01T12:00") from None


async def _consume(reading: Reading, count: int | None, timeout: float | None, form: Format) -> None:
    """Print the messages. SIGTERM ends it like Ctrl-C, but gracefully: a member leaves its group first.

    The time-out begins when reading has begun, because errors may occur before.
    """
    told: list[None] = []
    me = asyncio.current_task()
    assert me is not None

    def stop() -> None:
        told.append(None)
        me.cancel()

    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows; another thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    shown = 0
    try:
        async with aclosing(reading) as messages:
            await anext(messages)
            while count is None or shown < count:
                try:
                    async with asyncio.timeout(timeout):
                        message = await anext(messages)
                except SparrowError:
                    raise
                except TimeoutError:
                    return
                if message is not None:
                    _show(message, form)
                    shown += 1
    except asyncio.CancelledError:
        if not told:
            raise


async def _join(group: str, topic: str, wanted: Expression, settings: aio.ConsumerSettings) -> Reading:
    """Messages for a member of the group; each is acknowledged after it was printed."""
    from sparrowmq import aio

    consumer = aio.PushConsumer(group, settings=settings)
    consumer.subscribe(topic, wanted)
    async with consumer:
        yield None
        async for message in consumer:
            try:
                yield message
            finally:  # the caller may end here: printed messages are acknowledged
                await message.ack()


async def _look(namesrv: str, topic: str, begin: Any, wanted: Expression) -> Reading:
    """Messages of all queues without a group: it commits nothing and affects no other consumer."""
    from sparrowmq import aio

    hand: asyncio.Queue[ReceivedMessage] = asyncio.Queue(HAND_MAX)
    async with aio.PullConsumer(namesrv=namesrv) as consumer:
        readers = [
            asyncio.create_task(_read(consumer, queue, begin, wanted, hand))
            for queue in await consumer.queues(topic)
        ]
        if not readers:
            raise UsageError(f"topic {topic} has no readable queue")
        taking: asyncio.Task[ReceivedMessage] | None = None
        try:
            yield None
            while True:  # until the caller closes this generator
                taking = asyncio.create_task(hand.get())
                done, _ = await asyncio.wait([taking, *readers], return_when=asyncio.FIRST_COMPLETED)
                for reader in done - {taking}:
                    await reader  # it only ends with an error, which is raised here
                yield await taking
        finally:
            tasks = [*readers, taking] if taking is not None else readers
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _read(
    consumer: aio.PullConsumer,
    queue: MessageQueue,
    begin: Any,
    wanted: Expression,
    hand: asyncio.Queue[ReceivedMessage],
) -> None:
    if begin == "first":
        offset = await consumer.min_offset(queue)
    elif begin == "last":
        offset = await consumer.max_offset(queue)
    else:
        offset = await consumer.search_offset(queue, begin)
    while True:  # until cancelled
        result = await consumer.pull(
            queue, offset, max_messages=PULL_MESSAGES, expression=wanted, wait=WAIT_SECONDS
        )
        for message in result.messages:
            await hand.put(message)
        offset = result.next_offset


def _show(message: ReceivedMessage, form: Format) -> None:
    body = message.body.decode(errors="replace")
    if form is Format.JSON:
        print_json(
            {
                "topic": message.topic,
                "broker": message.queue.broker_name,
                "queue": message.queue.queue_id,
                "offset": message.queue_offset,
                "message_id": message.message_id,
                "tags": message.tags,
                "keys": message.keys,
                "born_ms": message.born_timestamp,
                "stored_ms": message.store_timestamp,
                "reconsume_times": message.reconsume_times,
                "properties": message.properties,
                "body": body,
            }
        )
    else:
        at = datetime.fromtimestamp(message.store_timestamp / 1000, usual_zone())
        stored = at.timetz().isoformat(timespec="seconds")
        say(f"{stored}  {message.queue}  {message.queue_offset}  {message.tags or '-'}  {body}")
    sys.stdout.flush()
