"""`sparrow message …`: queries for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, UsageError, print_json, say, say_lines, with_admin
from sparrowmq.cli.base.times import millis, when

if TYPE_CHECKING:
    from sparrowmq.core.message import ReceivedMessage

app = typer.Typer(
    help="Messages: get, query, search, export, resend, life, delayed, halves, trace.", no_args_is_help=True
)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
Time = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Such as 2026-11-21T08:00, or with a zone 2026-11-21T08:00+01:00."),
]


@app.command("get")
def get(
    topic: Topic,
    message_id: Annotated[str, typer.Argument(help="The id from `sparrow send`, or an offset id.")],
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show one message, by its id."""
    message = with_admin(namesrv, lambda admin: admin.messages.get(topic, message_id))
    if message is None:
        raise UsageError(
            f"topic {topic} has no message with id {message_id}; it may have expired, or the broker keeps "
            f"no index (messageIndexEnable)"
        )
    show(message, as_json)


@app.command("query")
def query(
    topic: Topic,
    key: Annotated[str, typer.Argument(help="One of the messages' keys.")],
    count: Annotated[int, typer.Option(min=1, help="Maximum number per broker, the newest.")] = 32,
    begin: Time = None,
    end: Time = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show the messages with a key, oldest first."""

    limits = {"begin": millis(begin), "end": millis(end)}
    times: dict[str, Any] = {name: at for name, at in limits.items() if at is not None}

    found = with_admin(namesrv, lambda admin: admin.messages.query(topic, key, count=count, **times))
    for message in found:
        show(message, as_json)
    if not found and not as_json:
        say(f"no message of {topic} has the key {key}")


def show(message: ReceivedMessage, as_json: bool) -> None:
    """Print one message whole."""
    values = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": message.keys,
        "born": when(message.born_timestamp, "milliseconds"),
        "born_host": message.born_host,
        "stored": when(message.store_timestamp, "milliseconds"),
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "size": message.store_size,
        "properties": message.properties,
        "body": message.body.decode(errors="replace"),
    }
    if as_json:
        print_json({**values, "born_ms": message.born_timestamp, "stored_ms": message.store_timestamp})
        return
    own = {"properties": " ".join(f"{name}={value}" for name, value in message.properties.items())}
    own["keys"] = " ".join(message.keys)
    for name, value in {**values, **own}.items():
        if name != "body":
            say(f"{name:<18} {'-' if value in (None, '') else value}")
    say()
    say_lines(values["body"])
    say()
