"""`sparrow find`: anything by its name, messages by id or key."""

from __future__ import annotations

from typing import Annotated

import typer

from sparrowmq.cli.base.common import AsJson, print_json, print_table, say
from sparrowmq.cli.base.remote import Url, call
from sparrowmq.cli.base.times import when


def find(
    text: Annotated[str, typer.Argument(help="Part of a name; with --messages an id or a key.")],
    messages: Annotated[
        bool, typer.Option("--messages", help="Look for messages with this id or key in all topics.")
    ] = False,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Find topics, groups, brokers, services and users by name, or messages of any topic."""
    if not messages:
        named = call(coordinator, "GET", "/find", query={"text": text})
        if as_json:
            print_json(named)
            return
        print_table(("kind", "name"), [(one["kind"], one["name"]) for one in named["found"]])
        return
    found = call(coordinator, "GET", "/cluster/messages", query={"text": text})
    if as_json:
        print_json(found)
        return
    rows = [
        (when(one["stored_ms"]), one["topic"], one["broker"], one["queue"], one["offset"], one["message_id"])
        for one in found["messages"]
    ]
    print_table(("stored", "topic", "broker", "queue", "offset", "id"), rows, right=("queue", "offset"))
    say(f"{found['topics']} topics searched, {found['left']} not searched")
