"""`sparrow send` and `sparrow consume`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrowmq.cli.common import AsJson, Namesrv, UsageError, namesrv_or_default, print_json, run
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import Message
from sparrowmq.core.subscription import Expression, Sql

if TYPE_CHECKING:
    from sparrowmq import aio
    from sparrowmq.core.message import MessageQueue, ReceivedMessage
    from sparrowmq.core.results import SendResult

PRODUCER_GROUP: Final = "sparrow-cli"
IN_FLIGHT_MAX: Final = 64
"""Lines of a file that are on their way at one time."""
HAND_MAX: Final = 256
"""Messages that were read and not yet printed; the queues wait then."""
WAIT_SECONDS: Final = 5.0
"""How long the broker holds a pull that finds nothing."""
PULL_MESSAGES: Final = 32


class Format(StrEnum):
    """How received messages are printed."""

    TEXT = "text"
    JSON = "json"


def send(
    topic: Annotated[str, typer.Argument(help="Topic to send to.")],
    body: Annotated[str | None, typer.Argument(help="Body of the message.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Send each line of a file; - is standard input.")
    ] = None,
    tags: Annotated[str | None, typer.Option(help="The message's tag.")] = None,
    keys: Annotated[str | None, typer.Option(help="Keys, separated by blanks.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="May be repeated.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds one send may take.")] = 3.0,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Send one message, or each line of a file as one."""
    if (body is None) == (file is None):
        raise UsageError("give either a BODY or --file, not both")
    extra = _pairs(properties or [])

    def message(data: bytes) -> Message:
        return Message(topic, data, tags=tags, keys=keys or (), properties=extra)

    address = namesrv_or_default(namesrv)
    if body is not None:
        run(_send_one(address, message(body.encode()), timeout, as_json))
        return
    lines = (message(line) for line in _lines(file) if line)
    count = run(_send_all(address, lines, timeout))
    print_json({"topic": topic, "sent": count}) if as_json else print(f"{count} sent to {topic}")


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--property {text}: write it as name=value")
        found[name] = value
    return found


def _lines(file: Path | None) -> Iterable[bytes]:
    """The lines without their ends; blank lines stay and are left out by the caller."""
    if file is None or str(file) == "-":
        yield from (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
        return
    try:
        with file.open("rb") as source:
            yield from (line.rstrip(b"\r\n") for line in source)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


async def _send_one(namesrv: str, message: Message, timeout: float, as_json: bool) -> None:
    from sparrowmq import aio

    async with aio.Producer(PRODUCER_GROUP, namesrv=namesrv, send_timeout=timeout) as producer:
        result = await producer.send(message)
    if as_json:
        print_json(
            {
                "status": result.status.name,
                "message_id": result.message_id,
                "offset_message_id": result.offset_message_id,
                "topic": result.queue.topic,
                "broker": result.queue.broker_name,
                "queue": result.queue.queue_id,
                "offset": result.queue_offset,
            }
        )
    else:
        print(f"{result.status.name}  {result.queue}  offset {result.queue_offset}  id {result.message_id}")


async def _send_all(namesrv: str, messages: Iterable[Message], timeout: float) -> int:
    """Send with many on their way; the first failure ends it, telling how many are stored for certain."""
    from sparrowmq import aio

    count, pending = 0, set[asyncio.Task["SendResult"]]()
    failure: BaseException | None = None
    async with aio.Producer(PRODUCER_GROUP, namesrv=namesrv, send_timeout=timeout) as producer:
        for message in messages:
            if len(pending) >= IN_FLIGHT_MAX:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                stored, failure = _settled(done)
                count += stored
                if failure is not None:
                    break
            pending.add(asyncio.create_task(producer.send(message)))
        if pending:
            stored, later = _settled((await asyncio.wait(pending))[0])
            count, failure = count + stored, failure or later
    if isinstance(failure, SparrowError):
        raise UsageError(f"{failure}; {count} messages are stored for certain") from failure
    if failure is not None:
        raise failure
    return count


def _settled(done: set[asyncio.Task[SendResult]]) -> tuple[int, BaseException | None]:
    """How many of the sends that ended were stored, and why one was not."""
    errors = [error for task in done if (error := task.exception()) is not None]
    return len(done) - len(errors), errors[0] if errors else None


def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    group: Annotated[
        str | None,
        typer.Option(help="Consume as a member of this group and commit. Default: look without any group."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="last, first, or a time such as 2024-05-01T12:00 (local).")
    ] = "last",
    tags: Annotated[str, typer.Option(help="Tag expression, for example 'TagA || TagB'.")] = "*",
    sql: Annotated[
        str | None, typer.Option(help="SQL92 filter over properties, for example \"a > 5 AND b = 'x'\".")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many messages.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.0, help="End when no message came for so many seconds.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print messages.")] = Format.TEXT,
    namesrv: Namesrv = None,
) -> None:
    """Print the messages of a topic until Ctrl-C, --count or --timeout."""
    begin = _start(start)
    address = namesrv_or_default(namesrv)
    if sql is not None and tags != "*":
        raise UsageError("--tags and --sql: give one of them; in SQL the tag is the property TAGS")
    wanted = tags if sql is None else Sql(sql)
    run(_consume(address, topic, group, begin, wanted, count, timeout, form))


def _start(text: str) -> Any:
    if text in ("first", "last"):
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--from {text}: give last, first, or a time such as 2024-05-01T12:00") from None


async def _consume(
    namesrv: str,
    topic: str,
    group: str | None,
    begin: Any,
    wanted: Expression,
    count: int | None,
    timeout: float | None,
    form: Format,
) -> None:
    reading = (
        _look(namesrv, topic, begin, wanted) if group is None else _join(namesrv, topic, group, begin, wanted)
    )
    shown = 0
    async with aclosing(reading) as messages:
        while count is None or shown < count:
            try:
                async with asyncio.timeout(timeout):
                    message = await anext(messages)
            except TimeoutError:
                return
            _show(message, form)
            shown += 1


async def _join(
    namesrv: str, topic: str, group: str, begin: Any, wanted: Expression
) -> AsyncGenerator[ReceivedMessage, None]:
    """Messages as a member of the group; each is acknowledged after it was printed."""
    from sparrowmq import aio

    consumer = aio.PushConsumer(group, namesrv=namesrv, consume_from=begin)
    consumer.subscribe(topic, wanted)
    async with consumer:
        async for message in consumer:
            try:
                yield message
            finally:  # the caller may leave after it: what was printed is done
                await message.ack()


async def _look(
    namesrv: str, topic: str, begin: Any, wanted: Expression
) -> AsyncGenerator[ReceivedMessage, None]:
    """Messages of all queues without a group: nothing is committed, nobody else is disturbed."""
    from sparrowmq import aio

    hand: asyncio.Queue[ReceivedMessage] = asyncio.Queue(HAND_MAX)
    async with aio.PullConsumer(namesrv=namesrv) as consumer:
        readers = [
            asyncio.create_task(_read(consumer, queue, begin, wanted, hand))
            for queue in await consumer.queues(topic)
        ]
        if not readers:
            raise UsageError(f"topic {topic} has no queue that may be read")
        taking: asyncio.Task[ReceivedMessage] | None = None
        try:
            while True:  # until the caller closes this generator
                taking = asyncio.create_task(hand.get())
                done, _ = await asyncio.wait([taking, *readers], return_when=asyncio.FIRST_COMPLETED)
                for reader in done - {taking}:
                    await reader  # it never ends but by an error, which is raised here
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
        offset = await consumer.search_offset(queue, round(begin.timestamp() * 1000))
    while True:  # until it is cancelled
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
        stored = time.strftime("%H:%M:%S", time.localtime(message.store_timestamp / 1000))
        print(f"{stored}  {message.queue}  {message.queue_offset}  {message.tags or '-'}  {body}")
    sys.stdout.flush()
