"""`sparrow message life|delayed|halves`: what became of a message, and messages that wait at brokers."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    complain,
    namesrv_or_default,
    print_json,
    print_table,
    run,
    with_admin,
)
from sparrowmq.cli.base.times import when
from sparrowmq.cli.messages.message_query import Topic

if TYPE_CHECKING:
    from sparrowmq import aio
    from sparrowmq.aio import Admin
    from sparrowmq.coordinator.cluster.lives import Life, Stage
    from sparrowmq.coordinator.cluster.waiting import AllHalves, AllWaiting


def life(
    topic: Topic,
    message_id: Annotated[str, typer.Argument(help="The message's unique id.")],
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show what became of a message: stored, delayed, half, retried, dead; and which groups have read it."""

    async def work(admin: aio.Admin) -> Life:
        from sparrowmq.coordinator.cluster import lives

        return await lives.life(admin, topic, message_id)

    found = with_admin(namesrv, work)
    if not found.stages:
        raise UsageError(
            f"topic {topic} has no message {message_id}; it may have expired, or the broker keeps no index "
            f"(messageIndexEnable)"
        )
    if as_json:
        for stage in found.stages:
            print_json(dataclasses.asdict(stage))
        for standing in found.groups:
            print_json(dataclasses.asdict(standing))
    else:
        rows = [
            (when(one.at_ms), one.what, one.group or "-", one.tries, when(one.due_ms or 0), _place(one))
            for one in found.stages
        ]
        print_table(("time", "stage", "group", "tries", "due", "where"), rows, right=("tries",))
        groups = [(one.group, one.state or "unknown", one.tries) for one in found.groups]
        print_table(("group", "state", "tries"), groups, right=("tries",))
    _tell(found.failed)


def delayed(namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """List messages that wait for their delay level or time, the soonest first; at most 500."""

    async def work() -> AllWaiting:
        from sparrowmq import aio
        from sparrowmq.coordinator.cluster.waiting import waiting

        address = namesrv_or_default(namesrv)
        async with aio.Admin(namesrv=address) as admin, aio.PullConsumer(namesrv=address) as reader:
            return await waiting(admin, reader, await _masters(admin), int(time.time() * 1000))

    found = run(work())
    values = [
        {
            "due_ms": one.due_ms,
            "topic": one.topic,
            "message_id": one.message.message_id,
            "level": one.level,
            "broker": one.message.queue.broker_name,
            "tags": one.message.tags,
            "keys": one.message.keys,
        }
        for one in found.messages
    ]
    _print(values, ("due", "topic", "message id", "level", "broker"), as_json, time_of="due_ms")
    _tell(found.failed)
    if not found.is_whole:
        complain("more messages wait than are listed")


def halves(namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """List half messages that were not ended, and those given up after too many checks; at most 500."""

    async def work() -> AllHalves:
        from sparrowmq import aio
        from sparrowmq.coordinator.cluster import waiting

        address = namesrv_or_default(namesrv)
        async with aio.Admin(namesrv=address) as admin, aio.PullConsumer(namesrv=address) as reader:
            return await waiting.halves(admin, reader, await _masters(admin))

    found = run(work())
    values = [
        {
            "born_ms": one.message.born_timestamp,
            "topic": one.topic,
            "message_id": one.message.message_id,
            "group": one.group,
            "checks": one.checks,
            "state": "given up" if one.is_given_up else "open",
        }
        for one in found.messages
    ]
    _print(values, ("born", "topic", "message id", "group", "checks", "state"), as_json, time_of="born_ms")
    _tell(found.failed)
    if not found.is_whole:
        complain("more half messages are open than are listed")


def _print(values: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool, *, time_of: str) -> None:
    if as_json:
        print_json(*values)
        return
    rows = [
        [when(value or 0) if name == time_of else value for name, value in one.items()][: len(columns)]
        for one in values
    ]
    print_table(columns, rows)


def _place(one: Stage) -> str:
    return one.broker if one.what == "born" else f"{one.topic}/{one.broker}/{one.queue} at {one.offset}"


def _tell(failed: Any) -> None:
    for name, why in sorted(failed.items()):
        complain(f"{name} could not be asked: {why}")


async def _masters(admin: Admin) -> list[str]:
    return sorted({one.broker_name for one in await admin.brokers.list() if one.broker_id == 0})
