"""Routes that search messages by a filter, between two times, or the newest ones, and export messages as a
file.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from typing import IO, Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from sparrowmq.coordinator.api.cluster import explorer
from sparrowmq.coordinator.api.messages import SECONDS, TIME_MAX, Count, Heads, Text, Time, head_views, views
from sparrowmq.coordinator.api.shared import Answer, Who
from sparrowmq.coordinator.api.told.answering import PIECE_BYTES, close_when_sent, keep, look
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.cluster.exporting import (
    BYTES_MAX,
    MEDIA_TYPES,
    MESSAGES_MAX,
    FileFormat,
    file_name,
    write_file,
)
from sparrowmq.coordinator.cluster.looking import one_at, place_in
from sparrowmq.coordinator.cluster.message_search import MessageSearch, SearchResult, expression_of, search
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.protocol.sql92 import EXPRESSION_CHARS_MAX

router = APIRouter(prefix="/cluster", tags=["messages"])
FILTER_CHARS_MAX = min(4096, EXPRESSION_CHARS_MAX)
Filter = Annotated[str, Query(max_length=FILTER_CHARS_MAX)]
SELECTED_MAX = 100
"""Number of single messages in one file."""
Place = Annotated[str, Field(max_length=300)]


@router.get("/messages/{topic}/search")
async def search_messages(
    topic: str,
    who: Who,
    tags: Filter = "",
    sql: Filter = "",
    begin_ms: Time = 0,
    end_ms: Time = TIME_MAX,
    count: Count = 32,
    heads: Heads = False,
) -> Answer:
    """Messages of a topic with one of some tags (`A || B`) or that fit a SQL92 expression over properties,
    stored between two times, the oldest first.

    The search is bounded: the result is complete up to the store time `stopped_ms`, or entirely if that is
    null. `passed` is the number of messages that were examined; `failed` has the reasons why queues were not
    searched. The search also stops at 8 MiB of bodies; with `heads`, only their beginnings are returned.
    """
    who.need(RoleRight.READ)
    wish = MessageSearch(topic, expression_of(tags, sql), begin_ms, end_ms, count)
    explores = explorer(who)
    async with look(who, is_short=heads):
        admin, reader = await explores.admin(), await explores.reader()
        found = await asked(search(admin, reader, wish), SECONDS)
        messages = await views(found.messages, heads=heads)
    found = found.first(len(messages))
    return {
        "messages": messages,
        "passed": found.passed,
        "stopped_ms": found.stopped_ms,
        "failed": dict(found.failed),
    }


@router.get("/messages/{topic}/newest")
async def newest_messages(
    topic: str, who: Who, tags: Filter = "", sql: Filter = "", count: Count = 32
) -> Answer:
    """The newest messages of a topic that match a filter, the newest first; with the beginnings of their
    bodies, in base64. No group's offsets change. Equal requests share one search in two seconds.
    """
    who.need(RoleRight.READ)
    wish = MessageSearch(topic, expression_of(tags, sql), count=count)
    found = await asked(explorer(who).tails.newest(wish), SECONDS)
    messages = head_views(found.messages, found.sizes)
    return {"looked_ms": found.looked_ms, "messages": messages, "failed": dict(found.failed)}


@router.get("/messages/{topic}/export", response_class=Response)
async def export_messages(
    topic: str,
    who: Who,
    form: Annotated[FileFormat, Query(alias="format")] = FileFormat.JSONL,
    key: Text = "",
    tags: Filter = "",
    sql: Filter = "",
    begin_ms: Time = 0,
    end_ms: Time = TIME_MAX,
    count: Annotated[int, Query(ge=1, le=MESSAGES_MAX)] = MESSAGES_MAX,
) -> Response:
    """Messages that a key or a filter finds, stored between two times, as a file: JSON Lines with bodies in
    base64, or Parquet. At most 10,000 messages and 32 MiB of bodies and properties; the header
    `Sparrow-Stopped-Ms` is the store time from which on there may be more. Each user can run one export at a
    time (else 429), all users together two (else 503). An export that is not sent within a minute is aborted.
    """
    who.need(RoleRight.READ)
    wish = MessageSearch(topic, expression_of(tags, sql), begin_ms, end_ms, count)
    explores = explorer(who)
    await keep(explores.exports, who)
    admin, reader = await explores.admin(), await explores.reader()
    if key:
        listed = admin.messages.query(topic, key, count=count, begin=begin_ms, end=end_ms, decompress=False)
        found = SearchResult(await asked(listed, SECONDS))
    else:
        found = await asked(search(admin, reader, wish, bytes_max=BYTES_MAX), SECONDS)
    file = await run_in_threadpool(tempfile.TemporaryFile)
    close_when_sent(file)
    found = found.first(await run_in_threadpool(write_file, found.messages, form, file))
    stopped = {} if found.stopped_ms is None else {"Sparrow-Stopped-Ms": str(found.stopped_ms)}
    return _sent(topic, form, file, stopped)


@router.get("/messages/{topic}/selection", response_class=Response)
async def export_selection(
    topic: str,
    who: Who,
    place: Annotated[list[Place], Query(min_length=1, max_length=SELECTED_MAX)],
    form: Annotated[FileFormat, Query(alias="format")] = FileFormat.JSONL,
) -> Response:
    """Single messages as a file, in the given order; each `place` is BROKER/QUEUE/OFFSET. Formats and limits
    are those of `export`. 404 names a message that is not there.
    """
    who.need(RoleRight.READ)
    wanted = [place_in(topic, one) for one in place]
    await keep(explorer(who).exports, who)
    reader = await explorer(who).reader()
    found = [await asked(one_at(reader, *one), SECONDS) for one in wanted]
    file = await run_in_threadpool(tempfile.TemporaryFile)
    close_when_sent(file)
    count = await run_in_threadpool(write_file, found, form, file)
    return _sent(topic, form, file, {"Sparrow-Messages": str(count)})


def _sent(topic: str, form: FileFormat, file: IO[bytes], more: Mapping[str, str]) -> Response:
    """A written file as an answer."""
    size = file.tell()
    file.seek(0)
    headers = {
        "Content-Disposition": f'attachment; filename="{file_name(topic, form)}"',
        "Content-Length": str(size),
        **more,
    }
    return StreamingResponse(_pieces(file), media_type=MEDIA_TYPES[form], headers=headers)


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await run_in_threadpool(file.read, PIECE_BYTES):
        yield piece
