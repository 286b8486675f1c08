"""`sparrow send`, `sparrow request` and `sparrow serve`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    complain,
    namesrv_or_default,
    print_json,
    run,
    say,
    say_lines,
)
from sparrowmq.cli.base.lines import lines
from sparrowmq.cli.base.times import moment
from sparrowmq.core.errors import InvalidStateError, SparrowError
from sparrowmq.core.message import Message

if TYPE_CHECKING:
    from sparrowmq.core.message import ReceivedMessage
    from sparrowmq.core.results import SendResult

PRODUCER_GROUP: Final = "sparrow-cli"
SERVE_GROUP: Final = "sparrow-cli-serve"
IN_FLIGHT_MAX: Final = 64
"""Lines of a file that are in flight at a time."""

Tags = Annotated[str | None, typer.Option(help="The message's tag.")]
Keys = Annotated[str | None, typer.Option(help="Keys, separated by spaces.")]
Properties = Annotated[list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="Repeatable.")]


def send(
    topic: Annotated[str, typer.Argument(help="Topic to send to.")],
    body: Annotated[str | None, typer.Argument(help="Body of the message.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Send each line of a file; - is standard input.")
    ] = None,
    tags: Tags = None,
    keys: Keys = None,
    properties: Properties = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "--hash-key", help="Ordering key: equal keys go to one queue, in order."),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(min=0.0, help="Deliver after this number of seconds (brokers from 5.0 on)."),
    ] = None,
    delay_level: Annotated[
        int | None, typer.Option(min=1, help="Deliver after the delay of this level at the broker.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="Deliver at a time such as 2030-05-01T12:00, at most 3 days ahead (brokers from 5.0 on)."
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Maximum lines of a file per second.")] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Timeout of one send, in seconds.")] = 3.0,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Send one message, or each line of a file as a message."""
    if body is None and file is None:
        raise UsageError("give a BODY, or a file of bodies with --file (- is standard input)")
    if body is not None and file is not None:
        raise UsageError("give either a BODY or --file, not both")
    extra = _pairs(properties or [])
    when = None if at is None else _moment(at)

    def message(data: bytes) -> Message:
        return Message(
            topic,
            data,
            tags=tags,
            keys=keys or (),
            properties=extra,
            delay_level=delay_level,
            delay=delay,
            deliver_at=when,
            key=key,
        )

    address = namesrv_or_default(namesrv)
    if body is not None:
        run(_send_one(address, message(os.fsencode(body)), timeout, as_json))
        return
    messages = (message(line) async for line in lines(file) if line)
    count = run(_send_all(address, topic, messages, key is not None, rate, timeout))
    print_json({"topic": topic, "sent": count}) if as_json else say(f"{count} sent to {topic}")


def request(
    topic: Annotated[str, typer.Argument(help="Topic to send to.")],
    body: Annotated[str, typer.Argument(help="Body of the message.")],
    tags: Tags = None,
    keys: Keys = None,
    properties: Properties = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Timeout for the reply, in seconds.")] = 3.0,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Send a request and print the reply of a consumer."""
    message = Message(
        topic, os.fsencode(body), tags=tags, keys=keys or (), properties=_pairs(properties or [])
    )
    reply = run(_request(namesrv_or_default(namesrv), message, timeout))
    text = reply.body.decode("utf-8", "replace")
    if as_json:
        print_json({"body": text, "properties": reply.properties})
    else:
        say_lines(text)


def serve(
    topic: Annotated[str, typer.Argument(help="Topic whose requests to reply to.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="Program that gets a request's body on standard input and prints the reply. Default: echo."
        ),
    ] = None,
    group: Annotated[str, typer.Option(help="Consumer group.")] = SERVE_GROUP,
    tags: Annotated[str, typer.Option(help="Tag expression, for example 'TagA || TagB'.")] = "*",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this number of replies.")] = None,
    program_timeout: Annotated[
        float, typer.Option(min=0.001, help="Timeout of the program, in seconds.")
    ] = 30.0,
    namesrv: Namesrv = None,
) -> None:
    """Reply to the requests on a topic, until Ctrl-C, SIGTERM or --count."""
    served = run(
        _serve(namesrv_or_default(namesrv), topic, group, tags, command or [], count, program_timeout)
    )
    say(f"{served} answered")


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--property {text}: write it as name=value")
        found[name] = value
    return found


def _moment(text: str) -> float:
    try:
        return moment(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--at {text}: write it like 2030-05-01T12:00") from None


async def _send_one(namesrv: str, message: Message, timeout: float, as_json: bool) -> None:
    from sparrowmq import aio

    async with aio.Producer(PRODUCER_GROUP, namesrv=namesrv, send_timeout=timeout) as producer:
        result = await producer.send(message)
    if as_json:
        recall = {"recall_handle": result.recall_handle} if result.recall_handle else {}
        print_json(
            {
                "status": result.status.name,
                "message_id": result.message_id,
                "offset_message_id": result.offset_message_id,
                "topic": result.queue.topic,
                "broker": result.queue.broker_name,
                "queue": result.queue.queue_id,
                "offset": result.queue_offset,
                **recall,
            }
        )
    else:
        say(f"{result.status.name}  {result.queue}  offset {result.queue_offset}  id {result.message_id}")


async def _send_all(
    namesrv: str,
    topic: str,
    messages: AsyncIterator[Message],
    in_order: bool,
    rate: float | None,
    timeout: float,
) -> int:
    """Send all messages. Returns how many the broker has acknowledged.

    Up to `IN_FLIGHT_MAX` are in flight; `in_order` only one. After the first failure
    or Ctrl-C no more are sent, and those in flight are awaited, so that the number in the error is exact.
    """
    from sparrowmq import aio

    count, pending = 0, set[asyncio.Task["SendResult"]]()
    failure: BaseException | None = None
    async with aio.Producer(PRODUCER_GROUP, namesrv=namesrv, send_timeout=timeout) as producer:
        in_flight_max = 1 if in_order else IN_FLIGHT_MAX
        try:
            async for message in _paced(messages, rate):
                if len(pending) >= in_flight_max:
                    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    stored, failure = _settled(done)
                    count += stored
                    if failure is not None:
                        break
                pending.add(asyncio.create_task(producer.send(message)))
        except asyncio.CancelledError as stopped:
            failure = stopped
        if pending:
            stored, later = _settled((await asyncio.wait(pending))[0])
            count, failure = count + stored, failure or later
    if isinstance(failure, SparrowError):
        raise UsageError(f"{failure}; {count} messages are known to be stored") from failure
    if isinstance(failure, asyncio.CancelledError):
        complain(f"stopped; {count} sent to {topic}")
    if failure is not None:
        raise failure
    return count


async def _paced(messages: AsyncIterator[Message], rate: float | None) -> AsyncIterator[Message]:
    """The messages, at most `rate` a second on average: number n is due at n/rate, so delays are made up."""
    loop = asyncio.get_running_loop()
    began, number = loop.time(), 0
    async for message in messages:
        if rate is not None and (wait := began + number / rate - loop.time()) > 0:
            await asyncio.sleep(wait)
        number += 1
        yield message


def _settled(done: set[asyncio.Task[SendResult]]) -> tuple[int, BaseException | None]:
    """The number of ended sends that succeeded, and the error of one that did not."""
    errors = [error for task in done if (error := task.exception()) is not None]
    return len(done) - len(errors), errors[0] if errors else None


async def _request(namesrv: str, message: Message, timeout: float) -> ReceivedMessage:
    from sparrowmq import aio

    async with aio.Producer(PRODUCER_GROUP, namesrv=namesrv, send_timeout=timeout) as producer:
        return await producer.request(message, timeout)


async def _serve(
    namesrv: str,
    topic: str,
    group: str,
    tags: str,
    command: list[str],
    count: int | None,
    program_timeout: float,
) -> int:
    """Reply to requests one after another. Returns the number of replies.

    A message that cannot be answered (the program failed, or it is not a request) is reported and acked, so
    it does not come again.
    """
    from sparrowmq import aio

    served = 0
    async with (
        aio.Producer(PRODUCER_GROUP, namesrv=namesrv) as producer,
        aio.PushConsumer(group, namesrv=namesrv, consume_from="last") as consumer,
    ):
        consumer.subscribe(topic, tags)
        with suppress(InvalidStateError):  # another thread than the main one
            consumer.close_on_signals(signal.SIGTERM)
        async for message in consumer:
            try:
                await producer.reply(message, await _answer(message.body, command, program_timeout))
                served += 1
            except SparrowError as error:
                say(f"sparrow: {message.message_id} was not answered: {error}", err=True)
            await message.ack()
            if count is not None and served >= count:
                break
    return served


async def _answer(body: bytes, command: list[str], timeout: float) -> bytes:
    """The output of the program for a request body, or the body itself without a program."""
    if not command:
        return body
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, input=body, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{command[0]} did not finish within {timeout:g} s", limit=timeout) from None
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}", what=command[0]) from None
    if done.returncode:
        raise UsageError(f"{command[0]} ended with status {done.returncode}", value=done.returncode)
    if not done.stdout:
        text = f"{command[0]} printed nothing; a reply needs at least one byte"
        raise UsageError(text, what="body", value=b"")
    return done.stdout
