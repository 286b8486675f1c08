"""Runs of a batch whose rows are named by keys: where its rows may be, and how often it was started.

A key names a row wherever it is: in another partition, after another shuffle, on other cores. So a repeated
run finds the rows that earlier ones stored by reading the queues back, from their ends before the first run,
and sends the rest. For this the driver stores, before a batch's first task, the ends of the queues, and
counts the runs. Before a repeated run it tells the brokers that earlier runs have ended, so that their tasks
that are still running can no longer store anything.

A queue may have lost its end since, because a slave that did not have it yet became the master. Rows of the
batch are then before the noted end, but not before the time when its first run began.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.cluster.clients import admin, reader
from sparrowmq.spark.offsets.resets import SKEW_MS
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write.identity import RUNS_MAX, family, first_epoch
from sparrowmq.spark.write.queue_choice import FILES_KEPT, SUFFIX, Folder, KeyedRun
from sparrowmq.spark.write.send import retried

FOLDER: Final = "runs"
"""The folder inside the directory of a query's or job's plans."""
VERSION: Final = 1

EndsOf = Callable[[], Mapping[MessageQueue, int]]
SinceOf = Callable[[Iterable[MessageQueue], int], Mapping[MessageQueue, int]]
"""For each queue the offset of the first message stored at a time, epoch ms, or later."""


def next_run(
    folder: Folder, batch: int, topic: str, ends_of: EndsOf, since_of: SinceOf, *, now_ms: int
) -> KeyedRun:
    """Count a run of a batch. Raises OSError, `SettingsError` for an unreadable file."""
    numbers, ends = folder.numbers(SUFFIX), ends_of()
    run, began_ms = KeyedRun(1, ends), now_ms
    if batch in numbers:
        known, began_ms = _decode(folder, batch, topic)
        since = since_of(known.begins.keys() & ends.keys(), began_ms - SKEW_MS) if began_ms else {}
        # A queue with a smaller end than before was created again: its rows may be anywhere.
        begins = {
            queue: min(at, since.get(queue, at)) if at <= ends.get(queue, at) else 0
            for queue, at in known.begins.items()
        }
        run = KeyedRun(min(known.number + 1, RUNS_MAX - 1), begins)
    folder.write(batch, _encode(topic, run, began_ms))
    for old in numbers[:-FILES_KEPT]:
        folder.delete(old)
    return run


def begin(
    folder: Folder,
    batch: int,
    scope: str,
    options: WriteOptions,
    *,
    clock: Callable[[], float] = time.time,
) -> KeyedRun:
    """Count a run and end those before it. Raises the errors of `next_run` and of the brokers."""
    loop, topic = loop_thread(), options.topic

    async def ends() -> dict[MessageQueue, int]:
        client = await reader(options)
        queues = [q for q in await client.queues(topic) if q.broker_name not in options.lost_brokers]
        return {queue: await client.max_offset(queue) for queue in queues}

    async def end_others(run: KeyedRun) -> None:
        client = await admin(options)
        await client.producers.end(topic, family(scope, topic), first_epoch(batch, run.number))

    async def since(queues: list[MessageQueue], at_ms: int) -> dict[MessageQueue, int]:
        client = await reader(options)
        found = await asyncio.gather(*(client.search_offset(queue, at_ms) for queue in queues))
        return dict(zip(queues, found, strict=True))

    def since_of(queues: Iterable[MessageQueue], at_ms: int) -> dict[MessageQueue, int]:
        asked = list(queues)
        return loop.run(retried(options, f"searching in {topic}", lambda: since(asked, at_ms)))

    run = next_run(
        folder,
        batch,
        topic,
        lambda: loop.run(retried(options, f"reading the ends of {topic}", ends)),
        since_of,
        now_ms=int(1000 * clock()),
    )
    if not run.is_first:
        loop.run(retried(options, f"ending earlier runs to {topic}", lambda: end_others(run)))
    return run


def _encode(topic: str, run: KeyedRun, began_ms: int) -> bytes:
    begins = [[queue.broker_name, queue.queue_id, offset] for queue, offset in run.begins.items()]
    data = {"version": VERSION, "topic": topic, "run": run.number, "begins": begins, "beganMs": began_ms}
    return json.dumps(data).encode()


def _decode(folder: Folder, batch: int, topic: str) -> tuple[KeyedRun, int]:
    """The last run, and when the first one began, epoch ms; 0 in a file of a release that did not note it."""
    where = f"{folder.location}/{batch}{SUFFIX}"
    try:
        data = json.loads(folder.read(batch))
        version, stored, number = data["version"], data["topic"], int(data["run"])
        began_ms = int(data.get("beganMs", 0))
        begins = {
            MessageQueue(stored, str(broker), int(queue)): int(offset)
            for broker, queue, offset in data["begins"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{where} cannot be read as a run of a batch ({error}); if you delete it, rows that were "
            f"already sent may be stored twice",
            what="run",
            value=where,
        ) from None
    if version != VERSION:
        text = f"{where} was written by another release (version {version}); use that one"
        raise SettingsError(text, what="version", value=version, limit=VERSION)
    if stored != topic:
        text = f"{where} belongs to topic {stored!r}, this query writes to {topic!r}; use another checkpoint"
        raise SettingsError(text, what="topic", value=stored, limit=topic)
    return KeyedRun(number, begins), began_ms
