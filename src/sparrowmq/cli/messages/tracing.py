"""`sparrow trace` and `sparrow message trace`: the history of a message, from clients with tracing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, UsageError, print_json, print_table, with_admin
from sparrowmq.cli.base.times import when

if TYPE_CHECKING:
    from sparrowmq import aio

_OUTCOMES: Final = {"True": "success", "False": "failed"}


def trace(
    message_id: Annotated[str, typer.Argument(help="The message's unique id, or one of its keys.")],
    topic: Annotated[str, typer.Option(help="Topic that contains the traces.")] = "RMQ_SYS_TRACE_TOPIC",
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show where a message was sent and who consumed it, with times and results."""

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        found = await admin.messages.trace(message_id, topic=topic)
        if not found:
            is_there = topic in await admin.topics.list(system=True)
            raise UsageError(_missing(message_id, topic, is_there=is_there))
        return [
            {"record": type(one).__name__.removesuffix("Trace"), **dataclasses.asdict(one)} for one in found
        ]

    rows = with_admin(namesrv, work)
    if as_json:
        print_json(*rows)
        return
    print_table(("time", "record", "group", "topic", "outcome", "cost ms"), [_line(row) for row in rows])


def _missing(message_id: str, topic: str, *, is_there: bool) -> str:
    if not is_there:
        return (
            f"no trace of {message_id!r}: there is no topic {topic}; brokers create the default one with "
            f"traceTopicEnable, and --topic names another one"
        )
    return (
        f"no trace of {message_id!r} in {topic}: clients write traces only with `trace` on, and a few "
        f"seconds late"
    )


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    shown = when(row.get("time"), "milliseconds")
    outcome = row.get("state") or _OUTCOMES.get(str(row.get("success")), "begun")
    cells = (row.get("group") or "-", row.get("topic") or "-", outcome, row.get("cost", "-"))
    return shown, row["record"], *(str(cell) for cell in cells)
